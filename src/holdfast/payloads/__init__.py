"""Conversion, encryption and external storage of payloads. Nothing about their meaning."""
