"""`fieldagent checkin`, `cancel`, `queue`, `status` and `inbound`: check-ins, waiting Packages, the
agent's state, and received payloads.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any
from urllib.parse import quote

from fieldagent.cli.kit.answer import make_calling, show
from fieldagent.cli.kit.expected import format_forecast
from fieldagent.cli.kit.listing import TEXT_CHARACTERS_MAX, format_content, format_holders
from fieldagent.cli.kit.send import finish
from fieldagent.cli.kit.sos import format_heard, format_incident
from fieldagent.kit.local_http import CallFailed, call
from fieldagent.package.writing import format_minutes
from fieldagent.system.exit_codes import OK, USAGE
from fieldagent.system.terminal import escape_line, format_local_time, format_state
from fieldagent.system.wording import format_count, format_duration


@make_calling
def check_in(arguments: argparse.Namespace) -> int:
    """Start, change or end (--done) a check-in. Unless --no-wait is set, wait for its delivery."""
    if arguments.done:
        return finish(arguments, call(arguments.port, "DELETE", "/api/check-in").body)
    body = {"within": int(arguments.within)}
    return finish(arguments, call(arguments.port, "POST", "/api/check-in", body).body)


def format_check_in(record: dict[str, Any] | None) -> list[str]:
    """Return the line about the check-in for `fieldagent status`, or an empty list if there is no
    check-in.
    """
    if record is None:
        return []
    if record["within"] is None:
        consequence = "the hub is notified of its end"
    else:
        within = format_minutes(record["within"])
        consequence = f"the hub raises an alarm if it hears nothing for {within}"
    if record["confirmed"] is None:
        state_text = "THE HUB HAS NOT CONFIRMED IT YET"
        if record["status"] not in (None, "Delivered"):
            state_text = "NOT RECEIVED BY THE HUB: send it again with `fieldagent checkin`"
    else:
        state_text = (
            f"received by the hub; the next check-in is due by {format_local_time(record['due'])}"
        )
    return [f"check-in of {format_local_time(record['since'])}: {consequence}; {state_text}"]


LETTER_CHARACTERS_MAX = 160
"""Maximum number of characters of an unreadable message. --json prints all."""


def _query(arguments: argparse.Namespace) -> str:
    return f"?channel={arguments.channel}" if arguments.channel else ""


@make_calling
def cancel(arguments: argparse.Namespace) -> int:
    """Cancel a Package, on `--channel` or on all channels, and print its status."""
    path = f"/api/package/{arguments.id}/cancel{_query(arguments)}"
    package = call(arguments.port, "POST", path).body
    status = package["status"] or "still queued on its other channels"
    show(arguments, package, f"Package {arguments.id}: {status}")
    return OK


@make_calling
def show_package(arguments: argparse.Namespace) -> int:
    """Print one Package: its status, its holders, the stations that do not have it, and its
    history.
    """
    package = call(arguments.port, "GET", f"/api/package/{arguments.id}").body
    status = format_state(package["status"] or "queued")
    late = ", but reached its addressee" if package["late"] else ""
    lines = [f"Package {package['id']}: {status}{late}"]
    if "kind" in package:
        alarm = "SOS " if package["sos"] else ""
        addressee_text = f"  to {package['toName']}" if package["toName"] else ""
        lines.append(
            escape_line(
                f"{alarm}{package['kind']}  {format_content(package)}{addressee_text}".rstrip()
            )
        )
    if package["receipts"]:
        lines.append(escape_line(f"received by {format_holders(package['receipts'])}"))
    if package["unconfirmed"]:
        lines.append(
            f"heard within the hour, and has not: {_format_stations(package['unconfirmed'])}"
        )
    lines += _list_waits(package)
    lines += [package["reason"]] if "reason" in package else []
    lines += [_format_history_line(line) for line in package["history"]]
    lines += [
        escape_line(f"{format_local_time(step['at'])}  {step['text']}")
        for step in package["reached"]
        if step["stage"] in STAGES_BEYOND_HISTORY
    ]
    show(arguments, package, "\n".join(lines))
    return OK


STAGES_BEYOND_HISTORY = ("programs", "read", "handed_over", "nobody", "radio")
"""Stages that the history does not contain."""


def _format_stations(stations: list[dict[str, Any]]) -> str:
    return escape_line(", ".join(each["name"] or f"station {each['station']}" for each in stations))


def _format_history_line(line: dict[str, Any]) -> str:
    event_text = " ".join(filter(None, [line["channel"], line["event"]]))
    detail = f": {line['detail']}" if line["detail"] else ""
    times = f" ({line['times']} times; this is the last)" if line["times"] > 1 else ""
    return escape_line(f"{format_local_time(line['at'])}  {event_text}{detail}{times}")


@make_calling
def queue(arguments: argparse.Namespace) -> int:
    """Print all waiting Packages, or cancel them if --clear is set."""
    if arguments.clear:
        deleted = call(arguments.port, "DELETE", f"/api/queue{_query(arguments)}").body
        show(arguments, deleted, f"{deleted['deleted']} canceled")
        return OK
    waiting = call(arguments.port, "GET", f"/api/queue{_query(arguments)}").body
    packages = waiting["packages"]
    while waiting["next"] is not None:
        waiting = call(arguments.port, "GET", waiting["next"]).body
        packages += waiting["packages"]
    waiting["packages"] = packages
    show(arguments, waiting, "\n".join(_format_queue(packages)))
    return OK


def _format_queue(packages: list[dict[str, Any]]) -> list[str]:
    if not packages:
        return ["nothing waits"]
    lines = [f"{'id':>10}  {'kind':<8}  {'priority':>8}  {'since':<20}  channels, text"]
    for package in packages:
        priority = "?" if package["priority"] is None else package["priority"]
        lines.append(
            f"{package['id']:>10}  {package['kind']:<8}  {priority:>8}"
            f"  {format_local_time(package['accepted']):<20}  {' '.join(package['channels'])}"
            + escape_line(
                f"  {'SOS ' if package['sos'] else ''}"
                f"{format_content(package)[:TEXT_CHARACTERS_MAX]}".rstrip()
            )
        )
        lines += _list_waits(package)
    return lines


def _list_waits(package: dict[str, Any]) -> list[str]:
    """Return the reasons why the Package waits, and the times of the next attempts."""
    return [
        escape_line(f"{'':>10}  {name} waits: {delivery['reason']}")
        for name, delivery in package["channels"].items()
        if delivery["status"] is None and delivery.get("reason")
    ]


def _format_track(track: dict[str, Any]) -> list[str]:
    lines = []
    if track["chosenInterval"] is not None:
        lasts = format_duration(track["chosenInterval"])
        lines.append(f"track: a position each {lasts} at rest, as was chosen on the page")
    if track["due"] is not None:
        lines.append(
            f"track: the next position is due at {format_local_time(track['due'])} at the latest"
        )
    return lines


@make_calling
def print_status(arguments: argparse.Namespace) -> int:
    """Print the agent's state. An SOS comes first. Each channel is shown with its forecast."""
    answer = call(arguments.port, "GET", "/api/status").body
    lines = _format_sos(answer["sos"])
    lines += format_check_in(answer["checkIn"])
    lines.append(f"fieldagent {answer['version']}, up for {int(answer['uptime'])} s")
    if answer["journal"]["full"]:
        lines.append("the disk is full: the agent waits until you free space")
    lines += [
        escape_line(f"{format_local_time(loss['at'])}: {loss['text']}")
        for loss in answer["journal"]["losses"]
    ]
    if not answer["clock"]["trusted"]:
        lines.append(
            f"the clock shows {format_local_time(answer['clock']['time'])} and is not confirmed"
            " since"
            " the start: connect a network or a GPS receiver (gpsd), or set the clock"
        )
    lines += _format_track(answer["track"])
    forecasts = _fetch_forecasts(arguments.port)
    for name, channel in answer["channels"].items():
        lines += _format_channel(name, channel)
        if name in forecasts and channel["configured"]:
            lines += format_forecast(forecasts[name])
    lines += [escape_line(notice) for notice in answer["notices"]]
    lines += _summarise_dead_letters(answer["deadLetters"])
    lines += [_format_fault(fault) for fault in answer["faults"]]
    show(arguments, answer, "\n".join(lines))
    return OK


def _fetch_forecasts(port: int) -> dict[str, Any]:
    """Return the forecast of each channel. Return an empty dict if an agent of an older version is
    still running.
    """
    try:
        forecasts: dict[str, Any] = call(port, "GET", "/api/forecast").body["channels"]
    except CallFailed:
        return {}
    return forecasts


def _format_sos(sos: dict[str, Any]) -> list[str]:
    """Return the lines about incidents: first this kit's SOS, then those of other kits."""
    own = [] if sos["incident"] is None else [format_incident(sos["incident"])]
    return [escape_line(each) for each in (*own, *map(format_heard, sos["heard"]))]


def _format_channel(name: str, channel: dict[str, Any]) -> list[str]:
    if not channel["configured"]:
        return [f"{name}: not configured"]
    signal = "unknown" if channel["signal"] is None else f"{channel['signal']} of 5"
    last = channel["lastSuccess"]
    reason = f": {channel['reason']}" if channel["reason"] else ""
    return [
        escape_line(f"{name}: {format_state(channel['state'])}{reason}"),
        f"  signal {signal}, {channel['queued']} queued, last success"
        f" {format_local_time(last) if last else 'none yet'}",
        f"  today {format_count(channel['bytesToday'], 'byte')}, {_format_cost(channel)}",
    ]


def _format_cost(channel: dict[str, Any]) -> str:
    spent_text = _format_credits(channel)
    return f"{spent_text}: {channel['moneyToday']}" if channel.get("moneyToday") else spent_text


def _format_credits(channel: dict[str, Any]) -> str:
    limit, reserve = channel.get("creditsPerDay"), channel.get("creditsForSos")
    today, doubtful = channel["creditsToday"], channel["creditsInDoubtToday"]
    if limit is None:
        return (
            f"{today} to {today + doubtful} credits" if doubtful else format_count(today, "credit")
        )
    spent_text = f"{today} to {today + doubtful}" if doubtful else str(today)
    spent_part = f"{spent_text} of {format_count(limit, 'credit')}"
    return f"{spent_part}, {reserve} of them reserved for an SOS" if reserve else spent_part


def _summarise_dead_letters(letters: dict[str, Any]) -> list[str]:
    latest = letters["latest"]
    if latest is None:
        return []
    dropped = f", {letters['dropped']} older ones were dropped" if letters["dropped"] else ""
    return [
        escape_line(
            f"{format_count(letters['kept'], 'received message')} could not be used{dropped}; last"
            f" over {latest['channel']}, {format_local_time(latest['received'])}:"
            f" {latest['reason']}."
            " See `fieldagent inbound list`"
        )
    ]


def _format_fault(fault: dict[str, Any]) -> str:
    then = "and does not recover" if fault["down"] else "and was started again"
    return escape_line(
        f"{fault['part']} failed {format_count(fault['times'], 'time')} {then}; last"
        f" {format_local_time(fault['at'])}: {fault['error']}. Please report it with the lines of"
        " the log"
    )


@make_calling
def print_inbound(arguments: argparse.Namespace) -> int:
    """Print received payloads and dead letters, from all pages."""
    state = f"?state={arguments.state}" if arguments.state else ""
    answer = _fetch_all_inbound(arguments.port, f"/api/inbound{state}")
    nothing = (
        f"no payload has the state {arguments.state}" if arguments.state else "nothing came in yet"
    )
    lines = _format_inbound(answer["payloads"]) + _format_dead_letters(answer["deadLetters"])
    show(arguments, answer, "\n".join(lines) or nothing)
    return OK


def _fetch_all_inbound(port: int, path: str) -> dict[str, Any]:
    """Return all pages of the list as one list."""
    all_inbound: dict[str, Any] = {"payloads": [], "deadLetters": []}
    follows: str | None = path
    while follows is not None:
        page = call(port, "GET", follows).body
        all_inbound["payloads"] += page["payloads"]
        all_inbound["deadLetters"] += page["deadLetters"]
        follows = page["next"]
    return all_inbound


def _format_dead_letters(letters: list[dict[str, Any]]) -> list[str]:
    return [
        escape_line(line)
        for letter in letters
        for line in (
            f"{'dead letter':<36}  {format_local_time(letter['received'])}  over"
            f" {letter['channel']}: "
            + (letter["text"] or f"base64 {letter['payload']}")[:LETTER_CHARACTERS_MAX],
            f"    {letter['reason']}",
        )
    ]


def _format_inbound(payloads: list[dict[str, Any]]) -> list[str]:
    return [line for payload in payloads for line in _format_payload(payload)]


def _format_payload(payload: dict[str, Any]) -> list[str]:
    entry = payload["body"]["payloads"][0]
    sender, event = entry["identity"], entry["events"][0]
    sos = "SOS " if event.get("sos") else ""
    if event.get("unauthenticated"):
        sos += "(unauthenticated) "
    name = sender["name"] or ("the hub" if sender["id"] == "0" else sender["id"])
    content = event.get("content") or event.get("name") or event.get("latitude") or ""
    lines = [
        f"{payload['requestId']}  {format_local_time(payload['received'])}  {sos}{event['type']}"
        f" from {name}  {content[:60]}"
    ]
    lines += [
        f"    {hook}: {format_state(hand['state'])} after"
        f" {format_count(hand['attempts'], 'attempt')}"
        f" {hand['reason']}".rstrip()
        for hook, hand in payload["hooks"].items()
    ]
    return [escape_line(line) for line in lines]


def _quote_for_path(request_id: str) -> str:
    return quote(request_id, safe="", errors="replace")


@make_calling
def mark_inbound_read(arguments: argparse.Namespace) -> int:
    """Record that a payload was read. The sender gets a read receipt."""
    body = {"by": arguments.by} if arguments.by else {}
    answer = call(
        arguments.port, "POST", f"/api/inbound/{_quote_for_path(arguments.request_id)}/read", body
    ).body
    show(arguments, answer, "the sender gets a receipt with the next transmission to the hub")
    return OK


@make_calling
def replay_inbound(arguments: argparse.Namespace) -> int:
    """Hand payloads over again. If --dead is set, hand over all dead payloads, oldest first. Return
    USAGE if there is no argument.
    """
    request_ids = list(arguments.request_id)
    if arguments.dead:
        payloads = _fetch_all_inbound(arguments.port, "/api/inbound?state=dead")["payloads"]
        request_ids += [payload["requestId"] for payload in reversed(payloads)]
    if not request_ids and not arguments.dead:
        print("fieldagent: name a requestId (see `inbound list`), or --dead", file=sys.stderr)
        return USAGE
    for request_id in request_ids:
        call(arguments.port, "POST", f"/api/inbound/{_quote_for_path(request_id)}/replay")
    show(arguments, {"replayed": request_ids}, f"{len(request_ids)} handed over again")
    return OK
