"""What the agent keeps on disk, and what it asks of it.

`journal` opens the file and commits. `outbound` holds Packages on their way to the hub or to
neighbours, `inbound` payloads on their way to hooks, `sos` what nobody has confirmed, `history`
what became of each; `records` are the rows as others see them.
"""
