"""CRUXEval, next-state accuracy and reports."""
