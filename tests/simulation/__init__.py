"""One agent with all three channels through weeks of trouble, with virtual time and seeded
randomness.
"""
