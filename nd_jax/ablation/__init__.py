"""Which form of the trace language is learned best: variants, trained alike, compared state by state."""
