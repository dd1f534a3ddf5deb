"""The agent's journal on disk, and the queries on it.

`journal` opens the file and commits. `outbound` holds Packages on their way to the hub or to
neighbours, `inbound` holds payloads on their way to hooks, and `incident` holds each SOS. `history`
holds the events of each Package; `records` defines the rows as other modules see them.
"""
