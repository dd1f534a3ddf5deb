"""One-line summary of the agent's state for `systemctl status`."""

from __future__ import annotations

from typing import Any


def summarise_status(status: dict[str, Any]) -> str:
    """Return a one-line summary of `status`, the response to `GET /api/status`."""
    phrases = _summarise_sos(status["sos"])
    links = {name: link for name, link in status["channels"].items() if link["configured"]}
    phrases += [_summarise_link(name, link) for name, link in links.items()] or [
        "no channel is configured"
    ]
    waits = sum(link["queued"] for link in links.values())
    phrases.append(f"{waits} to send" if waits else "nothing to send")
    return "; ".join(phrases)


def _summarise_sos(sos: dict[str, Any]) -> list[str]:
    if not sos["active"]:
        return []
    incident = sos["incident"]
    last = incident["steps"][-1]
    return [f"SOS {incident['short']} {last['state']}{' ' + last['by'] if 'by' in last else ''}"]


def _summarise_link(name: str, link: dict[str, Any]) -> str:
    reason = f" ({link['reason']})" if link["reason"] else ""
    return f"{name} {link['state']}{reason}"
