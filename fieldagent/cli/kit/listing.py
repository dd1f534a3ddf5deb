"""`fieldagent sent`, `people`, `neighbours` and `commands`: lists of the sent Packages with their
receivers (newest first), of the possible addressees, of the stations that were heard by radio, and
of the hub's commands with the kit's answers.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

from fieldagent.cli.kit.answer import make_calling, show
from fieldagent.kit.local_http import call
from fieldagent.system.exit_codes import OK
from fieldagent.system.terminal import escape_line, escape_lines, format_local_time, format_state

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


NO_PEOPLE_TEXT = (
    "no people from the hub yet: the directory arrives over the link; `send --to NAME` works"
    " without it, because the hub finds the person"
)
PART_OF_PEOPLE_TEXT = (
    "only people who have written before; the whole directory arrives over the link to the hub"
)


@make_calling
def print_people(arguments: argparse.Namespace) -> int:
    """Print the users, groups and kits in the hub's last directory."""
    answer = call(arguments.port, "GET", "/api/people").body
    show(arguments, answer, "\n".join(_format_people(answer)))
    return OK


def _format_people(answer: dict[str, Any]) -> list[str]:
    people_lines = [_format_person(each, answer["owner"]) for each in answer["people"]]
    if not people_lines:
        return [NO_PEOPLE_TEXT]
    return people_lines if answer["complete"] else [*people_lines, PART_OF_PEOPLE_TEXT]


def _format_person(row: dict[str, Any], owner: int | None) -> str:
    owner_mark = "  (this kit's)" if row["kind"] == "user" and row["to"] == owner else ""
    radios = f"  {', '.join(row['radios'])}" if row["radios"] else ""
    return escape_line(f"{row['kind']:<8}{row['name']}{owner_mark}{radios}")


@make_calling
def print_neighbours(arguments: argparse.Namespace) -> int:
    """Print the stations that were heard, with their signal and time, and the stations that are
    reached over other stations.
    """
    answer = call(arguments.port, "GET", "/api/neighbours").body
    show(arguments, answer, "\n".join(_format_neighbours(answer)))
    return OK


def _format_neighbours(answer: dict[str, Any]) -> list[str]:
    if answer["station"] is None:
        return ["no radio is configured: set radio-port and radio-station, and restart"]
    neighbour_lines = [_format_neighbour(each) for each in answer["neighbours"]]
    nobody = "no kit was heard since the agent started; `fieldagent status` shows the radio"
    beyond = [
        escape_line(f"{each['station']:>10}  {each['name'] or '(no name yet)':<20}  over others,")
        + f" {_format_away(each['hops'])}"
        for each in answer["remoteStations"]
    ]
    return [f"this is station {answer['station']}", *(neighbour_lines or [nobody]), *beyond]


def _format_neighbour(row: dict[str, Any]) -> str:
    parts = [
        f"{row['station']:>10}  {row['name'] or '(no name yet)':<20}",
        row["callsign"] or "",
        f"version {row['version']}" if row["version"] else "",
        f"heard {format_local_time(row['lastHeard'])}",
        "" if row["inRange"] else "not for an hour",
        "" if row["hops"] is None else _format_away(row["hops"]),
        "" if row["rssi"] is None else f"{row['rssi']} dBm",
        "" if row["snr"] is None else f"SNR {row['snr']} dB",
        _format_route(row["hopsToHub"], row["routeBatteryLow"]),
        f"missing: {', '.join(map(str, row['missing']))}" if row["missing"] else "",
        f"sends with the {row['radioKey']} radio-key" if row["radioKey"] else "",
    ]
    return escape_line("  ".join(part for part in parts if part))


def _format_away(hops: int) -> str:
    return f"{hops} {'transmission' if hops == 1 else 'transmissions'} away"


def _format_route(others: int | None, low: bool | None) -> str:
    if others is None:
        return ""
    others_text = f" over {others} {'other' if others == 1 else 'others'}" if others else ""
    return f"reaches the hub{others_text}{', a battery there is low' if low else ''}"


@make_calling
def print_commands(arguments: argparse.Namespace) -> int:
    """Print the commands that this kit allows, and the commands from the hub with their answers."""
    answer = call(arguments.port, "GET", "/api/commands").body
    show(arguments, answer, escape_lines("\n".join(_format_commands(answer))))
    return OK


def _format_commands(answer: dict[str, Any]) -> Iterator[str]:
    yield f"this kit allows {', '.join(answer['allowed']) or 'none'} (remote-commands)"
    for each in answer["commands"]:
        state = each["outcome"] or each["state"]
        heading = f"{each['number']}  {each['command']}  {format_local_time(each['came'])}"
        yield f"{heading}  by {each['channel']}  {state}"
        for line in (each["answer"] or "").splitlines():
            yield f"    {line}"
    if not answer["commands"]:
        yield "no command from the hub"
