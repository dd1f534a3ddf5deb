"""What is done with a damaged journal, and at no other time: `mending` writes a new one beside it,
of what `salvage` finds to be whole."""
