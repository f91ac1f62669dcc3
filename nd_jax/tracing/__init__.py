"""Recording real executions."""
