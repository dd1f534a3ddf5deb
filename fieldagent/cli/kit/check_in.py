"""`fieldagent checkin`: makes the hub raise an alarm if this kit is silent."""

from __future__ import annotations

import argparse
from typing import Any

from fieldagent.cli.kit.answer import make_calling
from fieldagent.cli.kit.send import finish
from fieldagent.kit.local_http import call
from fieldagent.package.writing import format_minutes
from fieldagent.system.terminal import format_local_time


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
