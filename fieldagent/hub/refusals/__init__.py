"""What the hub refuses, in each language: a catalogue is a JSON file beside this one, which
`fieldagent.page.refusals` reads."""
