"""Hours of faults on real processes, and what they leave behind (`python -m tests.soak`)."""
