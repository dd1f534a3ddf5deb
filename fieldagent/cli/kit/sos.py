"""`fieldagent sos`: raises an SOS, adds to it, answers questions, cancels it, or takes over the SOS
of another kit.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

from fieldagent.cli.kit.answer import make_calling, show
from fieldagent.cli.place import read_only_place, read_place
from fieldagent.kit.local_http import CallFailed, call
from fieldagent.package import canned
from fieldagent.package.package import PositionSource
from fieldagent.system.exit_codes import CANCELED, ERROR, OK, USAGE
from fieldagent.system.terminal import escape_line, format_local_time

QUERY_INTERVAL_S = 2.0
"""Seconds between two checks of the state of the SOS."""
END_STATES = ("closed", "called off")

Call = Callable[[argparse.Namespace], int]


@make_calling
def run_sos(arguments: argparse.Namespace) -> int:
    """Carry out the action that the options request. If there are no options, raise an SOS or add
    to the open SOS.
    """
    if arguments.cancel:
        return _call_off(arguments)
    if arguments.take is not None:
        return _take_over(arguments)
    if arguments.words:
        return _print_canned_texts(arguments)
    if arguments.answer:
        return _send_answer(arguments)
    return _raise(arguments)


def _raise(arguments: argparse.Namespace) -> int:
    body = _make_request(arguments)
    if not arguments.yes and not _is_confirmed():
        print("fieldagent: no SOS was sent; use --yes in scripts", file=sys.stderr)
        return USAGE
    incident = call(arguments.port, "POST", "/api/sos", body).body
    for fault in incident.get("unread", ()):
        part = escape_line(f"{fault['pointer']} {fault['detail']}")
        print(
            f"fieldagent: the SOS is sent, but a part cannot be read: {part}. Correct this part,"
            " and run the command again",
            file=sys.stderr,
        )
    if arguments.no_wait:
        show(arguments, incident, format_incident(incident))
        return OK
    return _follow_sos(arguments, incident)


def _make_request(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the body of the request. Raises CallFailed if the position is invalid."""
    body: dict[str, Any] = {} if arguments.content is None else {"text": arguments.content}
    if arguments.position is None:
        return body
    place_read = read_place(arguments.position)
    body["position"] = {**place_read.get_degrees(), "source": PositionSource.TYPED}
    # Position and text are both positional arguments, so the words after the position are the text.
    if arguments.content is None and place_read.remaining_words:
        body["text"] = " ".join(place_read.remaining_words)
    elif place_read.remaining_words:
        read_only_place(arguments.position)
    return body


def _follow_sos(arguments: argparse.Namespace, incident: dict[str, Any]) -> int:
    """Print each stage when it is reached, until the SOS has left the kit or, if --until-seen is
    set, until a person has seen it. Return ERROR if no channel can send the SOS, CANCELED if it was
    cancelled, and otherwise OK.
    """
    known_steps: list[dict[str, Any]] = []
    if sys.stderr.isatty():
        print("Ctrl-C stops waiting; the SOS continues", file=sys.stderr)
    while True:
        for step in incident["steps"]:
            if step not in known_steps and not arguments.json:
                print(escape_line(f"SOS {incident['short']} {format_step(step)}"), flush=True)
        known_steps = incident["steps"]
        if _is_stuck(incident):
            show(arguments, incident, "")
            print(
                "fieldagent: no channel can send the SOS; configure one, and raise it again",
                file=sys.stderr,
            )
            return ERROR
        if _is_far_enough(known_steps, until_seen=arguments.until_seen):
            if arguments.json:
                show(arguments, incident, "")
            return CANCELED if incident["state"] == "called off" else OK
        time.sleep(QUERY_INTERVAL_S)
        try:
            incident = call(arguments.port, "GET", "/api/sos").body["incident"]
        except CallFailed as failed:
            hint = "the SOS is raised, and the agent continues to send it: see `fieldagent status`"
            raise CallFailed(f"{hint}; {failed}", failed.code) from None


def _is_stuck(incident: dict[str, Any]) -> bool:
    """Return True if the agent reports no next attempt, and nothing has left the kit. The response
    to a new SOS does not contain the next attempt yet.
    """
    has_none = "nextTry" in incident and incident["nextTry"] is None
    is_raised_only = {"raised"} == {each["state"] for each in incident["steps"]}
    return has_none and is_raised_only and incident["ended"] is None


def _is_far_enough(steps: list[dict[str, Any]], *, until_seen: bool) -> bool:
    sure = {step["state"] for step in steps if not step.get("unauthenticated")}
    enough = (
        {"seen by", *END_STATES} if until_seen else {"left", "heard by", "at the hub", *END_STATES}
    )
    return bool(sure & enough)


def _call_off(arguments: argparse.Namespace) -> int:
    answer = call(arguments.port, "DELETE", "/api/sos").body
    incident = answer["incident"]
    if incident is None:
        text = "no SOS of this kit is open"
    else:
        notice = (
            "; everyone who may have received it is notified" if answer["othersNotified"] else ""
        )
        text = f"SOS {incident['short']} is called off{notice}"
    show(arguments, answer, text)
    return OK


def _take_over(arguments: argparse.Namespace) -> int:
    if arguments.by is None:
        print("fieldagent: --take needs --by NAME, the person who takes over", file=sys.stderr)
        return USAGE
    station, number = arguments.take
    body = {"by": arguments.by} | ({} if arguments.content is None else {"text": arguments.content})
    answer = call(arguments.port, "POST", f"/api/sos/{station}/{number}/take", body).body
    taken_incident = next((each for each in answer["heard"] if _is(each, station, number)), None)
    incident_text = (
        "the SOS"
        if taken_incident is None
        else f"SOS {taken_incident['short']} of {taken_incident['name']}"
    )
    show(arguments, answer, f"{arguments.by} has taken over {incident_text}: its kit is notified")
    return OK


def _is(incident: dict[str, Any], station: int, number: int) -> bool:
    return bool(incident["station"] == station and incident["number"] == number)


def _send_answer(arguments: argparse.Namespace) -> int:
    """Send an answer about the open SOS. Do not raise an SOS if none is open."""
    if arguments.content is None:
        print("fieldagent: --answer needs a text: fieldagent sos --answer yes", file=sys.stderr)
        return USAGE
    if not call(arguments.port, "GET", "/api/sos").body["active"]:
        print("fieldagent: no SOS of this kit is open", file=sys.stderr)
        return ERROR
    incident = call(arguments.port, "POST", "/api/sos", {"text": arguments.content}).body
    show(arguments, incident, f"added to SOS {incident['short']}: {arguments.content}")
    return OK


def _print_canned_texts(arguments: argparse.Namespace) -> int:
    titles = {
        "raised": canned.SOS_REASONS,
        "fromKit": canned.KIT_TEXTS,
        "fromHelpers": canned.HELPER_TEXTS,
    }
    title = ("what happened", "answers of people in distress", "texts to people in distress")
    lists = [
        f"{name}: {', '.join(each)}" for name, each in zip(title, titles.values(), strict=True)
    ]
    show(arguments, titles, "\n".join(lists))
    return OK


def _is_confirmed() -> bool:
    if not sys.stdin.isatty():
        return False
    return input("Send an SOS now? Type SOS to confirm: ").strip().upper() == "SOS"


def format_incident(incident: dict[str, Any]) -> str:
    """Return all stages of an incident in one line, with the time of the next attempt."""
    steps_text = "; ".join(format_step(step) for step in incident["steps"])
    next_try_at = incident.get("nextTry")
    next_try = f"; next try {format_local_time(next_try_at)}" if next_try_at else ""
    if _is_stuck(incident):
        next_try = "; no channel can send it"
    return f"SOS {incident['short']} {steps_text}{next_try}"


def format_heard(incident: dict[str, Any]) -> str:
    """Return another kit's incident in one line."""
    steps_text = "; ".join(format_step(step) for step in incident["steps"])
    raised_text = f"raised {format_local_time(incident['raised'])}"
    if incident["age"] is not None:
        age = _format_age(incident["age"])
        raised_text = f"received {format_local_time(incident['came'])}, {age} by its clock"
    incident_words = f": {incident['text']}" if incident["text"] else ""
    heading = f"SOS {incident['short']} of {incident['name']} ({incident['number']})"
    return f"{heading}, {raised_text}{incident_words}{'; ' if steps_text else ''}{steps_text}"


def _format_age(seconds: int) -> str:
    """Return the age in words, such as `13 hours ago`. `seconds` must be at least some hours."""
    hours = seconds // 3600
    return f"{hours} hours ago" if hours < 48 else f"{hours // 24} days ago"


def format_step(step: dict[str, Any]) -> str:
    """Return one stage as text, such as `left by Satellite 2026-…Z`."""
    state = step["state"]
    if "channel" in step:
        owner_text = f"{step['by']}'s " if "by" in step else ""
        state += f" by {owner_text}{step['channel']}"
    elif "by" in step:
        state += f" {step['by']}" if state.endswith(" by") else f" by {step['by']}"
    quoted_text = f': "{step["text"]}"' if step.get("text") else ""
    doubt = " (unauthenticated)" if step.get("unauthenticated") else ""
    return f"{state} {format_local_time(step['at'])}{quoted_text}{doubt}"
