"""Hours of faults on real processes, and their effects (`python -m tests.soak`)."""
