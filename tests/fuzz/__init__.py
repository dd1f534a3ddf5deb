"""Coverage-guided fuzzing of every decoder that reads what others sent: see `__main__`."""
