"""What synthetic programs are composed of: vocabulary, typed expressions, statements, loops, helper functions."""
