"""`fieldagent track`: sends positions from gpsd to the agent on this machine, like any client.

If gpsd or the agent is down, the command prints the failure once, waits and continues.
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import field
from datetime import UTC, datetime
from typing import Any, NoReturn

from fieldagent.cli.kit.track_policy import Policy, Track
from fieldagent.kit.local_http import CallFailed, call
from fieldagent.system.clock_bounds import EARLIEST_TIME
from fieldagent.system.exit_codes import OK, UNAVAILABLE, USAGE
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.terminal import escape_lines, format_local_time
from fieldagent.system.wording import describe_reason
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.gpsd import LINE_BYTES, WATCH_COMMAND, Fix, NoFix, parse_line

SILENCE_S = 30.0
"""Seconds without a line after which the connection to gpsd is opened again. gpsd reports each
second."""
RETRY_S = 5.0
"""Seconds between two attempts to reach gpsd or the agent while it is down."""
REPORT_INTERVAL_S = 20.0
"""Seconds between two reports of the interval to the agent."""
QUERY_INTERVAL_S = 30.0
"""Seconds for which the states of the channels are cached."""


BATCH_DECIMALS = 5
"""Decimals of degrees of positions that share a message. The last decimal is at most 1.1 m."""


class GpsdLost(Exception):
    """Error: gpsd cannot be reached, or has ended the connection. The message is for people."""


class StopSignal(BaseException):
    """Error: SIGTERM, SIGINT or SIGHUP was received."""


def track(arguments: argparse.Namespace) -> int:
    """Post positions until stopped. gpsd and the agent may be down at times. Return USAGE if --gpsd
    is invalid.
    """
    host, _, port = arguments.gpsd.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        print(f"fieldagent: --gpsd needs HOST:PORT, not {arguments.gpsd!r}", file=sys.stderr)
        return USAGE
    policy = Policy(
        interval=arguments.interval,
        moving_interval=arguments.moving_interval,
        distance=arguments.distance,
        satellite_factor=arguments.satellite_factor,
    )
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)
    try:
        _Tracker(arguments, (host.strip("[]"), int(port)), Track(policy), policy).run()
    except StopSignal:
        return OK


def _stop(number: int, frame: object) -> NoReturn:
    raise StopSignal


@dataclass(slots=True)
class _Tracker:
    arguments: argparse.Namespace
    gpsd: tuple[str, int]
    track: Track
    own_policy: Policy
    """Policy of the command line. People may select another interval on the page."""
    _last_messages: dict[str, str] = field(default_factory=dict)
    """Last printed message about each program, so that each message is printed once."""
    _costly: bool = False
    _queried_at: float = -math.inf
    """Time (`time.monotonic`) of the last query for the states of the channels."""
    _reported_at: float = -math.inf
    """Time of the last report of the interval to the agent."""
    _next_call_at: float = -math.inf
    """Time (`time.monotonic`) of the next attempt to reach an agent that was down."""

    def run(self) -> NoReturn:
        while True:
            try:
                for fix in self._read_fixes():
                    self._process_fix(fix)
            except GpsdLost as away:
                self._print_line("gpsd", str(away))
            time.sleep(RETRY_S)

    def _read_fixes(self) -> Iterator[Fix]:
        """Yield the fixes from gpsd. Raises GpsdLost if gpsd cannot be reached, sends nothing, or
        ends the connection.
        """
        gpsd_name = f"gpsd at {self.gpsd[0]}:{self.gpsd[1]}"
        try:
            with socket.create_connection(self.gpsd, timeout=SILENCE_S) as line:
                self._last_messages.pop("line", None)
                line.sendall(WATCH_COMMAND)
                for text in _read_lines(line):
                    yield from self._read(text, gpsd_name)
        except TimeoutError:
            raise GpsdLost(
                f"{gpsd_name} sends nothing: check that a receiver is connected; trying again"
            ) from None
        except (OSError, UnicodeError) as error:
            raise GpsdLost(
                f"{gpsd_name} cannot be reached ({describe_reason(error)}): start it; trying again"
            ) from None
        raise GpsdLost(f"{gpsd_name} ended the connection; trying again")

    def _read(self, text: bytes, place: str) -> Iterator[Fix]:
        try:
            report = parse_line(text)
        except RemoteProtocolError as error:
            # Report an unknown line once per connection, because each connection may lead to
            # another program.
            if "line" not in self._last_messages:
                self._print_line("line", f"{place} sent an unknown line, which is ignored: {error}")
            return
        if isinstance(report, NoFix):
            self._print_line("gpsd", f"{place} has no fix yet: the antenna must see the sky")
        elif isinstance(report, Fix):
            self._print_line("gpsd", f"{place} has a fix")
            # The policy needs the time between two fixes, independent of the date.
            yield report if report.time else report._replace(time=time.monotonic())

    def _process_fix(self, fix: Fix) -> None:
        self.track.add_fix(fix)
        # While the agent is down, continue to read fixes. Otherwise old fixes would be read later.
        if time.monotonic() < self._next_call_at:
            return
        try:
            self._exchange_interval()
            if self.track.is_due(costly=False) and (
                self.arguments.batch is not None or self.track.is_due(costly=self._is_costly())
            ):
                self._post(fix)
        except CallFailed as failed:
            self._print_line("agent", str(failed))
            self._next_call_at = time.monotonic() + RETRY_S

    def _post(self, fix: Fix) -> None:
        body = self._make_body(fix)
        try:
            answer = call(self.arguments.port, "POST", "/api/package/async", body).body
        except CallFailed as failed:
            if failed.code == UNAVAILABLE:
                raise
            # The agent would refuse the same position again, so count it as posted.
            self._print_line("agent", f"a position was refused: {failed}")
            self.track.mark_posted()
            return
        at = fix.time if fix.time >= EARLIEST_TIME else time.time()
        position = f"{format_local_time(at)}  {fix.latitude:.6f} {fix.longitude:.6f}"
        text = f"{position}  Package {_get_member(answer, 'id')}"
        self.track.mark_posted()
        self._reported_at = -math.inf
        self._last_messages.pop("agent", None)
        shown_answer = {**answer, "location": body["location"]}
        print(json.dumps(shown_answer) if self.arguments.json else escape_lines(text), flush=True)

    def _exchange_interval(self) -> None:
        """Report the current interval to the agent, which shows it on its page. If a person has
        selected another interval on the page, use that interval.
        """
        now = time.monotonic()
        if now - self._reported_at < REPORT_INTERVAL_S:
            return
        self._reported_at = now
        costly = self.arguments.batch is None and self._is_costly()
        policy = self.track.policy
        pace = {
            "interval": policy.interval,
            "movingInterval": policy.moving_interval,
            "satelliteFactor": 1.0 if self.arguments.batch is not None else policy.satellite_factor,
            "batch": self.arguments.batch,
            "costly": costly,
            "moving": self.track.is_moving(),
            "due": self.track.compute_next(costly=costly),
        }
        try:
            answer = call(self.arguments.port, "POST", "/api/track/tracker", pace).body
        except CallFailed as failed:
            if failed.code == UNAVAILABLE:
                raise
            # An agent of an older version does not support this request, so keep the interval.
            return
        chosen = _get_member(answer, "chosenInterval")
        wanted_policy = self.own_policy if chosen is None else self.own_policy.with_interval(chosen)
        if wanted_policy != policy:
            self.track.policy = wanted_policy
            self._reported_at = -math.inf
            self._print_line(
                "pace", f"a position each {wanted_policy.interval:g} s at rest from now on"
            )

    def _is_costly(self) -> bool:
        """Return True if satellite is the only allowed channel that is up."""
        now = time.monotonic()
        if now - self._queried_at >= QUERY_INTERVAL_S:
            channels = _get_member(call(self.arguments.port, "GET", "/api/status").body, "channels")
            up = {name for name, channel in channels.items() if _is_up(channel)}
            self._costly = up & set(self.arguments.channels or up) == {"Satellite"}
            self._queried_at = now
        return self._costly

    def _make_body(self, fix: Fix) -> dict[str, Any]:
        # If the fix has no valid date, omit the date. The agent then adds a date that is correct to
        # the second.
        dated = fix.time >= EARLIEST_TIME
        if self.arguments.batch is not None:
            return self._make_batched(fix, dated)
        location = {
            "latitude": fix.latitude,
            "longitude": fix.longitude,
            "timestamp": _format_iso(fix.time) if dated else None,
            "altitude": fix.altitude,
            "speedOverGround": fix.speed,
            "courseOverGround": fix.course,
        }
        collapse_option = {"collapseKey": self.arguments.collapse_key}
        return _present({"location": _present(location), **collapse_option, **self._make_terms()})

    def _make_batched(self, fix: Fix, dated: bool) -> dict[str, Any]:
        """Return the body of a position with only its time and place, so that many positions can
        share a message as a track (docs/reference/on-air.md). Such positions do not replace earlier
        positions.
        """
        location = {
            "latitude": round(fix.latitude, BATCH_DECIMALS),
            "longitude": round(fix.longitude, BATCH_DECIMALS),
            "timestamp": _format_iso(fix.time) if dated else None,
        }
        batch_option = {"gather": self.arguments.batch}
        return _present({"location": _present(location), **batch_option, **self._make_terms()})

    def _make_terms(self) -> dict[str, Any]:
        return {"channels": self.arguments.channels, "timeToLive": self.arguments.time_to_live}

    def _print_line(self, topic: str, text: str) -> None:
        if self._last_messages.get(topic) != text:
            self._last_messages[topic] = text
            print(f"fieldagent: {escape_lines(text)}", file=sys.stderr, flush=True)


def _get_member(answer: Any, name: str) -> Any:
    if not isinstance(answer, dict) or name not in answer:
        raise CallFailed(
            (
                f"the program there is not fieldagent, because its answer has no {name!r}; set the"
                " port with --port"
            ),
            UNAVAILABLE,
        )
    return answer[name]


def _present(members: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def _format_iso(unix: float) -> str:
    return datetime.fromtimestamp(unix, UTC).isoformat().replace("+00:00", "Z")


def _is_up(channel: dict[str, Any]) -> bool:
    return channel["configured"] and channel["state"] in ("ready", "busy")


def _read_lines(line: socket.socket) -> Iterator[bytes]:
    """Yield lines as they arrive. A line that is too long is dropped."""
    rest = b""
    while data := line.recv(4096):
        *complete_lines, rest = (rest + data).split(b"\n")
        yield from (text for text in complete_lines if text.strip() and len(text) <= LINE_BYTES)
        rest = rest[: LINE_BYTES + 1]
