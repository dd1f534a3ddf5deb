"""`fieldagent sent`: shows the sent Packages and their receivers, newest first."""

from __future__ import annotations

import argparse
from typing import Any
from urllib.parse import urlencode

from fieldagent.cli.kit.answer import make_calling, show
from fieldagent.kit.local_http import call
from fieldagent.system.exit_codes import OK
from fieldagent.system.terminal import escape_line, format_local_time, format_state

PAGE_ROWS = 100
TEXT_CHARACTERS_MAX = 60
"""Maximum number of characters of a text. --json and `show` print more."""


@make_calling
def print_sent(arguments: argparse.Namespace) -> int:
    """Print the sent Packages, two lines each."""
    packages = _fetch_packages(arguments)
    lines = [line for package in packages for line in format_package(package)]
    show(arguments, {"packages": packages}, "\n".join(lines) or "nothing of that kind was sent yet")
    return OK


def _fetch_packages(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    listing_query = {
        "state": arguments.state,
        "kind": arguments.kind,
        "limit": min(PAGE_ROWS, arguments.limit),
    }
    query = urlencode({name: value for name, value in listing_query.items() if value is not None})
    path: str | None = f"/api/packages?{query}"
    packages: list[dict[str, Any]] = []
    while path is not None and len(packages) < arguments.limit:
        page = call(arguments.port, "GET", path).body
        packages += page["packages"]
        path = page["next"]
    return packages[: arguments.limit]


def format_package(package: dict[str, Any]) -> list[str]:
    """Return the lines of one Package, escaped for a terminal: the item, and its delivery."""
    alarm = "SOS " if package["sos"] else ""
    relayed = " (a neighbour's)" if package["relayed"] else ""
    status = format_state(package["status"] or "waits", 9)
    text = format_content(package)[:TEXT_CHARACTERS_MAX]
    lines = [
        f"{package['id']:>10}  {format_local_time(package['accepted'])}  {status}"
        f"  {alarm}{package['kind']}{relayed}  {text}".rstrip()
    ]
    ways = [
        f"{name} {format_state(delivery['status'] or 'waits')}"
        + (f" ({delivery['reason']})" if delivery.get("reason") else "")
        for name, delivery in package["channels"].items()
    ]
    if package["credits"]:
        price_text = "1 credit" if package["credits"] == 1 else f"{package['credits']:g} credits"
        ways.append(f"{price_text}, {package['money']}" if package.get("money") else price_text)
    ways += [step["text"] for step in package["reached"]]
    if package["receipts"]:
        ways.append(f"received by {format_holders(package['receipts'])}")
    lines.append(f"{'':>10}  {'; '.join(ways)}")
    return [escape_line(line) for line in lines]


def format_content(package: dict[str, Any]) -> str:
    """Return a Package's position, its text, or both."""
    position = package["position"]
    words = [] if position is None else [f"{position[0]} {position[1]}"]
    return " ".join([*words, *filter(None, [package["text"]])])


def format_holders(receipts: list[dict[str, Any]]) -> str:
    """Return a text with the holders of a Package and the times of their receipts."""
    return ", ".join(
        f"{format_holder(each)} at {format_local_time(each['at'])}" for each in receipts
    )


def format_holder(receipt: dict[str, Any]) -> str:
    """Return the holder of a receipt for people. The text says that the agent has the item, because
    its user may not have seen it.
    """
    holder_name = receipt["name"] or receipt["id"]
    return str(holder_name) if receipt["kind"] == "hub" else f"{holder_name}'s agent"
