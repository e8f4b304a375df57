"""Deployments of workers: seen, made current, drained, moved. Nothing that prints."""
