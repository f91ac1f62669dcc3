"""Scaling studies: a ladder of sizes, and the laws fitted to their results."""
