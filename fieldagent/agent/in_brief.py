"""How the agent stands, in one line: what `systemctl status` shows."""

from __future__ import annotations

from typing import Any


def in_brief(status: dict[str, Any]) -> str:
    """Of what `GET /api/status` answers."""
    active = status["sos"]["active"]
    told = [f"SOS: {active} active, nobody has confirmed"] if active else []
    links = {name: link for name, link in status["channels"].items() if link["configured"]}
    told += [_link(name, link) for name, link in links.items()] or ["no channel is configured"]
    waits = sum(link["queued"] for link in links.values())
    told.append(f"{waits} to send" if waits else "nothing to send")
    return "; ".join(told)


def _link(name: str, link: dict[str, Any]) -> str:
    reason = f" ({link['reason']})" if link["reason"] else ""
    return f"{name} {link['state']}{reason}"
