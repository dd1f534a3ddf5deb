"""People's radios: what a person with a phone and a handheld says to the kit, and is told back."""
