"""What synthetic programs are composed of: vocabulary, expressions, statements, loops, helper functions."""
