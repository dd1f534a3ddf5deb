"""The durable store of the agent, and the only place that knows SQL.

`commit` opens the file and makes callers share one sync; `outbound` holds Packages on their way
down, `inbound` payloads on their way up.
"""
