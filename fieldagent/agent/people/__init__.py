"""People's radios: messages between the kit and people with a phone and a handheld."""
