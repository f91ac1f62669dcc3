"""Checkpoints for inference elsewhere."""
