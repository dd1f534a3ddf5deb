"""`fieldagent send`: posts a Package and waits for its terminal status."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from fieldagent.cli.item import make_item
from fieldagent.cli.kit.answer import make_calling, show
from fieldagent.cli.kit.expected import describe_forecast, describe_start, describe_turns
from fieldagent.kit.local_http import CallFailed, call
from fieldagent.system.exit_codes import NO_PERSON, OF_STATUS, OK
from fieldagent.system.terminal import escape_line, format_state
from fieldagent.system.wording import format_count

REFUSAL_WAIT_S = 3.0
"""Seconds after the status Delivered during which the hub may report that it does not know the
name."""


def find_unreached_reason(port: int, package: dict[str, Any]) -> str:
    """Wait up to `REFUSAL_WAIT_S` for the hub's reason for not passing on a Package. Return the
    reason, or "". Raises CallFailed if the agent does not respond.
    """
    end = time.monotonic() + REFUSAL_WAIT_S
    while True:
        steps = call(port, "GET", f"/api/package/{package['id']}").body.get("reached", [])
        reasons = [each["text"] for each in steps if each["stage"] == "nobody"]
        if reasons or time.monotonic() > end or any(each["stage"] == "stored" for each in steps):
            return str(reasons[-1]) if reasons else ""
        time.sleep(0.2)


@make_calling
def send(arguments: argparse.Namespace) -> int:
    """Post an item of `arguments.kind`, and return the exit code of its status. If `--dry-run` is
    set, only print its price.
    """
    body = {
        **make_item(arguments),
        "id": arguments.id,
        "channels": arguments.channels,
        "priority": arguments.priority,
        "collapseKey": arguments.collapse_key,
        "timeToLive": arguments.time_to_live,
        "by": arguments.by,
        "to": _read_addressee(arguments.to),
        "receipt": arguments.receipt,
    }
    if arguments.dry_run:
        return _estimate(arguments, body)
    queued = _post(arguments, body)
    _hint_at_sos(body)
    return finish(arguments, queued)


def _hint_at_sos(body: dict[str, Any]) -> None:
    """Show how to raise an SOS if a message reads like one."""
    from fieldagent.package import distress
    from fieldagent.package.package import SOS_PRIORITY

    text = body.get("message", {}).get("content", "")
    is_sos = (body["priority"] or 0) >= SOS_PRIORITY
    if not is_sos and distress.read(text).call is distress.Call.SOS:
        hint = "this was sent as a message. If it is an emergency, run `fieldagent sos TEXT`"
        print(f"fieldagent: {hint}", file=sys.stderr)


def _read_addressee(text: str | None) -> str | int | None:
    """Return the addressee. A number is returned as an integer."""
    is_number = text and text.lstrip("-").isdecimal() and text.isascii() and len(text) < 20
    return int(text) if text and is_number else text


def _estimate(arguments: argparse.Namespace, body: dict[str, Any]) -> int:
    costs = call(arguments.port, "POST", "/api/package/cost", _present(body)).body
    lines = []
    for channel, cost in costs["channels"].items():
        if cost.get("reason"):
            lines.append(f"{channel}: {escape_line(cost['reason'])}")
            continue
        lines.append(f"{channel}: {format_count(cost['parts'], 'part')}, {_format_cost(cost)}")
        lines += describe_start(cost)
        lines += describe_forecast(cost.get("expected"))
    lines += describe_turns(costs["channels"])
    show(arguments, costs, "\n".join(lines) or "none of its channels is configured")
    return OK


def _format_cost(cost: dict[str, Any]) -> str:
    by_bytes = cost.get("byBytes", False)
    spent_text = format_count(cost["bytes"], "byte")
    spent_text += " paid for" if by_bytes else f", {format_count(cost['credits'], 'credit')}"
    remaining = cost["bytesLeft"] if by_bytes else cost["creditsLeft"]
    spent_text = spent_text if remaining is None else f"{spent_text} of {remaining} left today"
    return f"{spent_text}: {cost['money']}" if cost.get("money") else spent_text


def _present(body: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if value is not None}


def _post(arguments: argparse.Namespace, body: dict[str, Any]) -> dict[str, Any]:
    queued: dict[str, Any] = call(arguments.port, "POST", "/api/package/async", _present(body)).body
    return queued


def finish(arguments: argparse.Namespace, package: dict[str, Any]) -> int:
    """Wait for the end of a Package, unless --no-wait is set, and print the Package. Return the
    exit code of its status, or OK if it has no status yet. Return NO_PERSON if the hub has the
    Package but cannot reach the addressee. Raises CallFailed if the agent does not respond.
    """
    if not arguments.no_wait:
        try:
            package = _wait(arguments.port, package)
        except CallFailed as failed:
            # Report the Package as queued, because a repeated command would send it twice.
            hint = f"Package {package['id']} was accepted: `fieldagent show {package['id']}` shows"
            raise CallFailed(f"{hint} its progress; {failed}", failed.code) from None
    status = package["status"]
    status_text = format_state(status or "queued")
    show(arguments, package, f"Package {package['id']}: {status_text}{_format_reasons(package)}")
    addressee_name = getattr(arguments, "to", None)
    if (
        status == "Delivered"
        and addressee_name
        and (unreached_reason := find_unreached_reason(arguments.port, package))
    ):
        print(
            f"fieldagent: received by the hub, but {escape_line(unreached_reason)}", file=sys.stderr
        )
        return NO_PERSON
    return OF_STATUS[status] if status else OK


def _format_reasons(package: dict[str, Any]) -> str:
    deliveries = package.get("channels", {}).items()
    text = [package["reason"]] if "reason" in package else []
    text += [
        f"{_add_status(name, delivery, package)}: {delivery['reason']}"
        for name, delivery in deliveries
        if delivery.get("reason")
    ]
    if disk_fault := package.get("notOnDisk"):
        text.append(f"not on the disk, and lost if power fails: {escape_line(disk_fault)}")
    return f" ({'; '.join(text)})" if text else ""


def _add_status(name: str, delivery: dict[str, Any], package: dict[str, Any]) -> str:
    """Return the name of a channel, and the Package's status on this channel if it differs from the
    status of the whole Package.
    """
    status = delivery.get("status")
    return f"{name} {status}" if status and status != package["status"] else name


def _wait(port: int, package: dict[str, Any]) -> dict[str, Any]:
    """Poll until the Package has ended. On a terminal, print the states of the channels while
    waiting.
    """
    started_at = time.monotonic()
    shows_progress = sys.stderr.isatty()
    pause = 0.05
    try:
        while package["status"] is None:
            if shows_progress:
                waited = int(time.monotonic() - started_at)
                print(
                    f"\r\x1b[K{waited} s: {escape_line(_describe_progress(port))}",
                    end="",
                    file=sys.stderr,
                    flush=True,
                )
            time.sleep(pause)
            pause = min(1.0, pause * 1.5)
            package = call(port, "GET", f"/api/package/{package['id']}").body
    except KeyboardInterrupt:
        number = package["id"]
        print(
            f"\nPackage {number} stays in the queue; `fieldagent cancel {number}` withdraws it",
            file=sys.stderr,
        )
        raise
    finally:
        if shows_progress:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    return package


def _describe_progress(port: int) -> str:
    channels = call(port, "GET", "/api/status").body["channels"]
    text = [
        f"{name} {channel['state']}"
        + (f", {channel['signal']} of 5 bars" if channel["signal"] is not None else "")
        + (f" ({channel['reason']})" if channel["reason"] else "")
        for name, channel in channels.items()
        if channel["configured"]
    ]
    return "; ".join(text) or "no channel is configured"
