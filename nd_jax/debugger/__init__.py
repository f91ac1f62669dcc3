"""The state tree, debugger actions and sampled trajectories."""
