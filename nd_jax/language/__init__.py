"""The trace language and its tokenizer."""
