"""Phases, spans and metrics, and their exporter. Nothing that changes what is measured."""
