"""Sweeps: studies of many runs, which are run here or on a cluster, resumed, told about and collected."""
