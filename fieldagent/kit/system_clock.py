"""`fieldagent clock`: root's unit sets the system's clock to the time that the agent knows.

A kit without a clock battery and without a network starts in the past. Then a hub's certificates
seem not yet valid, and the link that could report the time is refused. The agent gets the time from
satellites, a receiver and the hub, but is not allowed to set the clock. So it writes the time to a
file for this unit. If the system itself has a source for its clock, the unit does nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from fieldagent.agent.clock_offer import CLOCK_OFFER
from fieldagent.agent.settings import load
from fieldagent.kit.root_units import read_offer, remove_offer
from fieldagent.package.strict_json import NotJson, load_document
from fieldagent.system.clock_bounds import EARLIEST_TIME, LATEST_TIME
from fieldagent.system.elapsed_time import SOURCES_BY_RANK, Reading
from fieldagent.system.exit_codes import IO_FAILED, OK, REFUSED
from fieldagent.system.log_lines import print_failure, refuse_settings
from fieldagent.system.properties import InvalidSettings
from fieldagent.system.wording import describe_reason

AGE_MAX_S = 3600.0
"""Seconds after which the agent's file is too old."""


CLOCK_MOVE_MAX_S = 3600.0
"""Seconds by which a later time in the same boot may differ from the first time that was set."""


class ClockNotSet(ValueError):
    """Error: the clock is not set. The message contains the reason."""


def set_clock(
    settings: Path,
    read_clocks: Callable[[], Reading],
    set_time: Callable[[float], None],
    *,
    as_json: bool,
    own_folder: Path | None = None,
) -> int:
    """Take the time from the file that the agent of these settings has written, and set the clock
    to it with `set_time`. `read_clocks` reads the clocks. Return an exit code.

    `own_folder` belongs only to root and is kept for one boot. An intruder who has become the
    agent's user can supply a wrong time once per boot. Later times are compared with this first
    time, so that many small steps cannot move the clock further.
    """
    try:
        offer_path = load(settings).state_directory / CLOCK_OFFER
        if (body := read_offer(offer_path)) is None:
            return OK
        remove_offer(offer_path)
        now = read_clocks()
        source, unix = _read(body, now)
        _refuse_again(own_folder, now, unix)
        set_time(unix)
    except InvalidSettings as wrong:
        return refuse_settings(wrong)
    except ClockNotSet as wrong:
        print_failure(f"the clock is not changed: {wrong}")
        return REFUSED
    except OSError as error:
        print_failure(f"the clock is not changed: {describe_reason(error)}")
        return IO_FAILED
    moved = round(unix - now.wall_time)
    if as_json:
        print(json.dumps({"source": source, "moved": moved}))
    else:
        print(f"the clock was set by {moved:+} s (source: {source})")
    return OK


def _refuse_again(folder: Path | None, now: Reading, unix: float) -> None:
    """Record the first time in a boot. Raises ClockNotSet if a later time differs from the first by
    more than `CLOCK_MOVE_MAX_S`, and OSError.
    """
    if folder is None:
        return
    first = unix - now.since_boot
    try:
        with (folder / "set").open("x") as file:
            file.write(f"{first:.3f}")
    except FileExistsError:
        moves = first - float((folder / "set").read_text() or "nan")
        if not abs(moves) <= CLOCK_MOVE_MAX_S:
            raise ClockNotSet(
                "the clock was already set in this boot, and this would change it by"
                f" {unix - now.wall_time:+.0f} s"
            ) from None


def _read(body: bytes, now: Reading) -> tuple[str, float]:
    """Return the source of the time, and the current time according to this source. Raises
    ClockNotSet.
    """
    try:
        document = load_document(body)
        source, boot = str(document["source"]), str(document["boot"])
        at, unix = float(document["sinceBoot"]), float(document["unix"])
    except (NotJson, ValueError, TypeError, KeyError) as error:
        raise ClockNotSet("the agent's time for the clock cannot be read") from error
    if now.trusted:
        raise ClockNotSet(f"the {now.source} has set it")
    if source not in SOURCES_BY_RANK:
        raise ClockNotSet("no allowed source has reported the time")
    since = now.since_boot - at
    if boot != now.boot or not 0 <= since <= AGE_MAX_S:
        raise ClockNotSet("the agent's time for the clock is old")
    if not EARLIEST_TIME <= unix <= LATEST_TIME:
        raise ClockNotSet("the agent's time for the clock is not plausible")
    return source, unix + since
