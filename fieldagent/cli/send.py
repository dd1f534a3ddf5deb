"""`fieldagent send` and `fieldagent sos`: post a Package and wait for its terminal status."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

from fieldagent.cli.exit_codes import CANCELED, OF_STATUS, OK, USAGE
from fieldagent.cli.item import data_of, location_of, message_of, waypoint_of
from fieldagent.cli.local_http import CallFailed, call, report, show
from fieldagent.cli.sent import holder
from fieldagent.cli.terminal import escaped
from fieldagent.package.package import CALLED_OFF, SOS_PRIORITY
from fieldagent.package.writing import clock_time
from fieldagent.system.wording import counted

CONFIRMED_EVERY = 2.0
"""Seconds between two looks whether an SOS is confirmed."""


def message(given: argparse.Namespace) -> int:
    return _send(given, message_of)


def location(given: argparse.Namespace) -> int:
    return _send(given, location_of)


def waypoint(given: argparse.Namespace) -> int:
    return _send(given, waypoint_of)


def data(given: argparse.Namespace) -> int:
    return _send(given, data_of)


def sos(given: argparse.Namespace) -> int:
    if given.cancel:
        return _call_off(given)
    if not given.yes and not _confirmed():
        print("fieldagent: no SOS was sent; use --yes where nobody can be asked", file=sys.stderr)
        return USAGE
    items: list[dict[str, Any]] = [{"message": {"content": given.content}}]
    if given.position is not None:
        latitude, longitude = given.position
        items.insert(0, {"location": {"latitude": latitude, "longitude": longitude}})
    try:
        # All are queued before any is waited for: they share a session.
        posted = [_post(given, {**item, "priority": SOS_PRIORITY}) for item in items]
        code = max([finish(given, package) for package in posted])
        return _until_confirmed(given.port, posted[-1]) if given.until_confirmed else code
    except CallFailed as failed:
        return report(failed)


def _until_confirmed(port: int, package: dict[str, Any]) -> int:
    """Wait until somebody's agent has stored it, or it is called off; the agent repeats it
    meanwhile."""
    number = package["id"]
    if sys.stderr.isatty():
        print("waiting until somebody confirms it; Ctrl-C does not end the SOS", file=sys.stderr)
    while True:
        # In this order: one that is confirmed in between is not taken for called off.
        declared = [each["id"] for each in call(port, "GET", "/api/sos").body["packages"]]
        receipts = call(port, "GET", f"/api/package/{number}").body["receipts"]
        if receipts:
            who = escaped(holder(receipts[0]))
            print(f"confirmed: {who} has it since {clock_time(receipts[0]['at'])}")
            if receipts[0]["kind"] != "person":
                print(
                    "nobody has acknowledged it in person yet; `fieldagent status` tells who does"
                )
            return OK
        if number not in declared:
            print("called off before anybody confirmed it")
            return CANCELED
        time.sleep(CONFIRMED_EVERY)


def _call_off(given: argparse.Namespace) -> int:
    try:
        ended = call(given.port, "DELETE", "/api/sos").body["packages"]
        text = f"{len(ended)} called off" if ended else "no SOS was on its way"
        if any(_may_have_left(package) for package in ended):
            # Who got it sets out for nothing, unless told.
            _post(given, {"message": {"content": CALLED_OFF}, "priority": SOS_PRIORITY - 1})
            text += "; those who may have got it are told so"
        show(given, {"packages": ended}, text)
        return OK
    except CallFailed as failed:
        return report(failed)


def _may_have_left(package: dict[str, Any]) -> bool:
    return any(leg["status"] in (None, "Delivered") for leg in package["channels"].values())


def _confirmed() -> bool:
    if not sys.stdin.isatty():
        return False
    return input("Send an SOS now? Type SOS to confirm: ").strip().upper() == "SOS"


def _send(
    given: argparse.Namespace, item_of: Callable[[argparse.Namespace], dict[str, Any]]
) -> int:
    try:
        body = {
            **item_of(given),
            "id": given.id,
            "channels": given.channels,
            "priority": given.priority,
            "collapseKey": given.collapse_key,
            "timeToLive": given.time_to_live,
        }
        if given.dry_run:
            return _estimate(given, body)
        return finish(given, _post(given, body))
    except CallFailed as failed:
        return report(failed)


def _estimate(given: argparse.Namespace, body: dict[str, Any]) -> int:
    costs = call(given.port, "POST", "/api/package/cost", _present(body)).body
    lines = [
        f"{channel}: {counted(cost['parts'], 'part')}, {counted(cost['bytes'], 'byte')},"
        f" {counted(cost['credits'], 'credit')}"
        + ("" if cost["creditsLeft"] is None else f" of {cost['creditsLeft']} left today")
        for channel, cost in costs["channels"].items()
    ]
    show(given, costs, "\n".join(lines) or "no channel that it names is configured")
    return OK


def _present(body: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if value is not None}


def _post(given: argparse.Namespace, body: dict[str, Any]) -> dict[str, Any]:
    queued: dict[str, Any] = call(given.port, "POST", "/api/package/async", _present(body)).body
    return queued


def finish(given: argparse.Namespace, package: dict[str, Any]) -> int:
    if not given.no_wait:
        package = _wait(given.port, package)
    status = package["status"]
    show(given, package, f"Package {package['id']}: {status or 'queued'}{_reasons(package)}")
    return OF_STATUS[status] if status else OK


def _reasons(package: dict[str, Any]) -> str:
    legs = package.get("channels", {}).items()
    text = [package["reason"]] if "reason" in package else []
    text += [f"{name}: {leg['reason']}" for name, leg in legs if leg.get("reason")]
    return f" ({'; '.join(text)})" if text else ""


def _wait(port: int, package: dict[str, Any]) -> dict[str, Any]:
    """Ask until it has ended; on a terminal, say meanwhile what the channels are doing."""
    began = time.monotonic()
    telling = sys.stderr.isatty()
    pause = 0.05
    try:
        while package["status"] is None:
            if telling:
                waited = int(time.monotonic() - began)
                print(
                    f"\r\x1b[K{waited} s: {escaped(_doing(port))}",
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
        if telling:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    return package


def _doing(port: int) -> str:
    channels = call(port, "GET", "/api/status").body["channels"]
    text = [
        f"{name} {channel['state']}"
        + (f", {channel['signal']} of 5 bars" if channel["signal"] is not None else "")
        + (f" ({channel['reason']})" if channel["reason"] else "")
        for name, channel in channels.items()
        if channel["configured"]
    ]
    return "; ".join(text) or "no channel is configured"
