"""One agent with all three channels through weeks of trouble, in virtual time and seeded chance."""
