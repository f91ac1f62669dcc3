"""Models for other libraries."""
