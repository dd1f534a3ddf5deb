"""`fieldagent clock`: root's unit sets the system's clock by what the agent was told of the time.

A kit without a battery for its clock and without a network begins in the past: every certificate of
a hub looks as if it were not valid yet, and the link that could tell the time is refused. The
satellites, a receiver and the hub tell the agent the time, which may set no clock; it leaves what
it knows for this. Where the system has somebody itself to set its clock, nothing is done.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from fieldagent.agent.clock_offer import CLOCK_OFFER
from fieldagent.agent.settings import load
from fieldagent.kit.root_units import read_left, remove_left
from fieldagent.package.strict_json import NotJson, load_document
from fieldagent.system.clock_bounds import EARLIEST, LATEST
from fieldagent.system.exit_codes import IO_FAILED, OK, REFUSED
from fieldagent.system.lived_time import RANKS, Reading
from fieldagent.system.log_lines import complain, refuse_settings
from fieldagent.system.properties import InvalidSettings
from fieldagent.system.wording import reason_of

OLD = 3600.0
"""Seconds after which what was left is told by nobody any more."""


class NotTheTime(ValueError):
    """The text says why nothing is set."""


def set_clock(
    settings: Path, look: Callable[[], Reading], put: Callable[[float], None], *, as_json: bool
) -> int:
    """Take what the agent of these settings has left, once, and `put` the clock there; `look` reads
    the clocks. Returns an exit code."""
    try:
        left = load(settings).state_directory / CLOCK_OFFER
        if (body := read_left(left)) is None:
            return OK
        remove_left(left)
        now = look()
        source, unix = _read(body, now)
        put(unix)
    except InvalidSettings as wrong:
        return refuse_settings(wrong)
    except NotTheTime as wrong:
        complain(f"the clock stays as it is: {wrong}")
        return REFUSED
    except OSError as error:
        complain(f"the clock stays as it is: {reason_of(error)}")
        return IO_FAILED
    moved = round(unix - now.wall)
    if as_json:
        print(json.dumps({"source": source, "moved": moved}))
    else:
        print(f"the clock was set by {moved:+} s, as the {source} tells the time")
    return OK


def _read(body: bytes, now: Reading) -> tuple[str, float]:
    """Return who told the time, and what it is by that. Raises NotTheTime."""
    try:
        document = load_document(body)
        source, boot = str(document["source"]), str(document["boot"])
        at, unix = float(document["sinceBoot"]), float(document["unix"])
    except (NotJson, ValueError, TypeError, KeyError) as error:
        raise NotTheTime("what the agent left for it cannot be read") from error
    if now.trusted:
        raise NotTheTime(f"the {now.source} has set it")
    if source not in RANKS:
        raise NotTheTime("nobody who may tell the time has told it")
    since = now.since_boot - at
    if boot != now.boot or not 0 <= since <= OLD:
        raise NotTheTime("what the agent left for it is old")
    if not EARLIEST <= unix <= LATEST:
        raise NotTheTime("what the agent left for it is no time of these days")
    return source, unix + since
