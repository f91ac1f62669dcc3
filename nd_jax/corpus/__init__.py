"""Corpora worth training on: collected, deduplicated, kept apart from benchmarks."""
