"""What calling Python's builtins, types and library means on symbolic values."""
