"""Optimiser, step, checkpoints and the training loop."""
