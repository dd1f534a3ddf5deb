"""Coverage-guided fuzzing of each decoder that reads foreign data: see `__main__`."""
