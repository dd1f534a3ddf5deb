"""Coverage-guided fuzzing of each decoder that reads third-party data: see `__main__`."""
