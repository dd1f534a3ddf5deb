"""The durable store of the agent, and the only place that knows SQL.

`group` makes callers share one sync, `commit` opens the file; `outbound` holds Packages on their
way down, `inbound` payloads on their way up.
"""
