"""The transformer and how it is sharded."""
