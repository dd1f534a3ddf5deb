"""The agent's journal on disk, and the queries on it.

`journal` opens the file and commits. `outbound` contains Packages on their way to the hub or to
neighbours, `inbound` payloads on their way to hooks, and `incident` each SOS. `history` contains
the events of each Package. `records` defines the types in which other modules get the rows.
"""
