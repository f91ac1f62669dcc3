"""Ladders of model sizes."""
