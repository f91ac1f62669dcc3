"""Where programs with inputs come from."""
