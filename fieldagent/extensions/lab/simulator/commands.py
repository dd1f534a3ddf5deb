"""Commands that a user can type at the simulator. They send messages to the kit and cause
failures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol, TypeVar

from fieldagent.extensions.lab.simulator.base_camp import BaseCamp
from fieldagent.extensions.lab.simulator.hub_side import HubSide
from fieldagent.extensions.lab.simulator.mt_queue import MtQueue
from fieldagent.extensions.lab.simulator.pty_port import PtyPort
from fieldagent.extensions.lab.simulator.sbd_modem import SimulatedModem
from fieldagent.extensions.lab.simulator.sbd_state import PlannedStatus
from fieldagent.package.package import Data, Item, Location, Message, Waypoint
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.wording import format_count
from fieldagent.wire.errors import LocalProtocolError
from fieldagent.wire.sbd import SessionVerdict, find_mo_status


class BadCommand(Exception):
    """Error in a command. The text contains the error and the correct form."""


@dataclass(frozen=True, slots=True)
class Bench:
    """Simulated objects that the commands control."""

    modem: SimulatedModem
    port: PtyPort
    queue: MtQueue
    home: BaseCamp
    hub: HubSide | None = None
    """Connection to a real hub behind the gateway."""

    def ring(self) -> None:
        """Notify the modem that a message waits at the gateway."""
        self.modem.ring()


class HomeSide(Protocol):
    """Simulated objects that write to the kit, for any kind of modem."""

    @property
    def queue(self) -> MtQueue:
        """Return the MT messages that wait for the kit."""

    @property
    def home(self) -> BaseCamp:
        """Return the base camp, which receives the kit's messages and writes to the kit."""

    def ring(self) -> None:
        """Notify the modem that a message waits at the gateway."""


T = TypeVar("T")


def run_line(bench: Bench, line: str) -> str:
    """Run one line and return its output. Raises BadCommand if the line is not a valid command."""
    answer = carry_out(bench, line, COMMANDS)
    bench.port.poke()
    return answer


def carry_out(
    bench: T, line: str, commands: Mapping[str, tuple[str, Callable[[T, str], str]]]
) -> str:
    """Run one line with the command from `commands` that it names. Return the output. Raises
    BadCommand if the line is not a valid command.
    """
    name, _, rest = line.strip().partition(" ")
    if not name:
        return ""
    if name == "help":
        return "\n".join(f"  {usage}" for usage, _ in (*commands.values(), (HELP, None)))
    if name not in commands:
        raise BadCommand(f"{name!r} is not a command; `help` lists them")
    return commands[name][1](bench, rest.strip())


HELP = "help                        this list"


def _describe_queued(bench: HomeSide, parts: int) -> str:
    bench.ring()
    return f"queued in {format_count(parts, 'MT message')}; the modem rings"


def _send(bench: HomeSide, item: Item, *, sos: bool = False) -> str:
    try:
        return _describe_queued(bench, bench.home.send(item, sos=sos))
    except LocalProtocolError as error:
        raise BadCommand(f"nothing was sent: {error}; send less") from None


def _queue_mt(bench: HomeSide, rest: str) -> str:
    if not rest:
        raise BadCommand("the text is missing: mt TEXT")
    return _send(bench, Message(rest))


def _queue_mt_sos(bench: HomeSide, rest: str) -> str:
    if not rest:
        raise BadCommand("the text is missing: mt-sos TEXT")
    return _send(bench, Message(rest), sos=True)


def _queue_mt_location(bench: HomeSide, rest: str) -> str:
    latitude, longitude = _read_position(rest.split())
    return _send(bench, Location(latitude, longitude, datetime.now(UTC)))


def _queue_mt_waypoint(bench: HomeSide, rest: str) -> str:
    arguments = rest.split(maxsplit=2)
    if len(arguments) != 3:
        raise BadCommand("mt-waypoint LATITUDE LONGITUDE NAME")
    latitude, longitude = _read_position(arguments[:2])
    return _send(bench, Waypoint(latitude, longitude, arguments[2], datetime.now(UTC)))


def _queue_mt_data(bench: HomeSide, rest: str) -> str:
    return _send(bench, Data(_read_bytes(rest, "mt-data")))


def _read_bytes(rest: str, command: str) -> bytes:
    try:
        return Path(rest[1:]).read_bytes() if rest[:1] == "@" else bytes.fromhex(rest)
    except (OSError, ValueError) as error:
        raise BadCommand(f"{command} HEX, or {command} @FILE: {error}") from None


def _send_mt_again(bench: HomeSide, rest: str) -> str:
    if not bench.queue.repeat_last():
        raise BadCommand("no waiting message to send twice")
    return "a copy of the last one waits too"


def _lose_mt(bench: HomeSide, rest: str) -> str:
    if not bench.queue.lose_first():
        raise BadCommand("no waiting message to lose")
    return "the first waiting message is lost"


def _queue_mt_raw(bench: HomeSide, rest: str) -> str:
    bench.queue.put(_read_bytes(rest, "mt-raw"))
    return _describe_queued(bench, 1)


def _read_position(words: list[str]) -> tuple[float, float]:
    try:
        latitude, longitude = (float(argument) for argument in words)
    except ValueError:
        raise BadCommand("a position is two decimal numbers: 47.3769 8.5417") from None
    if not (abs(latitude) <= 90 and abs(longitude) <= 180):
        raise BadCommand("latitude is -90 to 90, longitude -180 to 180")
    return latitude, longitude


def read_number(text: str, low: int, high: int, name: str) -> int:
    """Return the number in a text, which must be from `low` to `high`. Error texts call the number
    `name`. Raises BadCommand for any other text.
    """
    if not text.isdecimal() or len(text) > 9 or not low <= int(text) <= high:
        raise BadCommand(f"{name} is a number from {low} to {high}, not {text!r}")
    return int(text)


def _set_status(bench: Bench, rest: str) -> str:
    arguments = rest.split()
    delivered, unmoved = "delivered" in arguments, "unmoved" in arguments
    numbers = [argument for argument in arguments if argument not in ("delivered", "unmoved")] or [
        ""
    ]
    number = read_number(numbers[0], 0, 65, "an MO status")
    times = read_number(numbers[1], 1, 1000, "times") if len(numbers) > 1 else 1
    sent = find_mo_status(number).verdict is SessionVerdict.SENT
    reaches = sent or delivered
    plan = PlannedStatus(number, delivered=reaches, counted=reaches and not unmoved)
    bench.modem.faults.statuses.extend([plan] * times)
    sessions = "the next session ends" if times == 1 else f"the next {times} sessions end"
    return f"{sessions} with {number}: {find_mo_status(number).description}"


def _set_signal(bench: Bench, rest: str) -> str:
    bench.modem.set_signal(read_number(rest, 0, 5, "signal"))
    return f"signal {rest} of 5"


def _set_service(bench: Bench, rest: str) -> str:
    available = bool(read_number(rest, 0, 1, "service"))
    bench.modem.set_service(available)
    return "the network is there" if available else "no network"


def _ring(bench: Bench, rest: str) -> str:
    bench.modem.ring()
    return "ringing"


def _unplug(bench: Bench, rest: str) -> str:
    bench.port.unplug()
    return "unplugged; `plug` puts it back"


def _plug(bench: Bench, rest: str) -> str:
    bench.port.plug()
    return "plugged in"


def _start_brown_out(bench: Bench, rest: str) -> str:
    bench.modem.start_brown_out()
    return "the modem lost power for a moment"


def _lose_reply(bench: Bench, rest: str) -> str:
    bench.modem.faults.lose_replies += 1
    return "the next session's reply will be lost"


def _set_wrong_sum(bench: Bench, rest: str) -> str:
    bench.modem.faults.wrong_sums += 1
    return "the next message will be read with a wrong sum"


def _lose_fragment(bench: Bench, rest: str) -> str:
    bench.home.lose_fragments += 1
    return "the next fragment will be lost behind the gateway"


def _set_baud(bench: Bench, rest: str) -> str:
    bench.port.baud = read_number(rest, 1200, 921_600, "baud")
    return f"the modem talks at {rest} baud"


def _hang(bench: Bench, rest: str) -> str:
    bench.modem.faults.deaf = is_on = read_switch(rest)
    return "the modem answers nothing" if is_on else "the modem answers again"


def _set_echo(bench: Bench, rest: str) -> str:
    bench.modem.faults.stubborn_echo = is_on = read_switch(rest)
    return "the modem echoes all commands" if is_on else "echo as ATE sets it"


def _set_spacing(bench: Bench, rest: str) -> str:
    bench.modem.faults.odd_spacing = is_on = read_switch(rest)
    return "odd spacing" if is_on else "usual spacing"


def read_switch(text: str) -> bool:
    """Return True for "on" or False for "off". Raises BadCommand for any other text."""
    if text not in ("on", "off"):
        raise BadCommand(f"use on or off, not {text!r}")
    return text == "on"


def _set_latency(bench: Bench, rest: str) -> str:
    bench.port.latency = float(read_number(rest, 0, 600, "latency in seconds"))
    return f"a session takes {rest} s"


def _get_hub(bench: Bench) -> HubSide:
    if bench.hub is None:
        raise BadCommand("no hub is behind this gateway: start the simulator with --hub")
    return bench.hub


def _set_hub_status(bench: Bench, rest: str) -> str:
    status_words = ("0", *map(str, range(-12, 51)))
    if rest not in status_words:
        raise BadCommand(f"a result is a number from -12 to 50, not {rest!r}")
    _get_hub(bench).faults.status = int(rest)
    return f"the next MT request is answered with {rest}"


def _set_hub_silent(bench: Bench, rest: str) -> str:
    _get_hub(bench).faults.silent += 1
    return "the next MT request is accepted and not answered"


def _cut_hub(bench: Bench, rest: str) -> str:
    _get_hub(bench).faults.cut += 1
    return "the next MT request is accepted and its connection is closed"


def _set_hub_late(bench: Bench, rest: str) -> str:
    _get_hub(bench).faults.late = float(read_number(rest, 0, 600, "seconds"))
    return f"MT requests are answered after {rest} s"


WRITING_COMMANDS: Mapping[str, tuple[str, Callable[[HomeSide, str], str]]] = {
    "mt": ("mt TEXT                     send a message to the kit", _queue_mt),
    "mt-location": ("mt-location LAT LON         send a position", _queue_mt_location),
    "mt-sos": ("mt-sos TEXT                 send a message that is an SOS", _queue_mt_sos),
    "mt-waypoint": ("mt-waypoint LAT LON NAME    send a point of interest", _queue_mt_waypoint),
    "mt-data": ("mt-data HEX | @FILE         send raw bytes", _queue_mt_data),
    "mt-raw": ("mt-raw HEX | @FILE          send an MT message of any bytes at all", _queue_mt_raw),
    "mt-again": ("mt-again                    queue the last MT message once more", _send_mt_again),
    "mt-lose": ("mt-lose                     lose the MT message that waits first", _lose_mt),
}
"""Commands that send a message to the kit, by name. Each has its help line and its function."""
COMMANDS: Mapping[str, tuple[str, Callable[[Bench, str], str]]] = {
    **WRITING_COMMANDS,
    "status": (
        "status N [TIMES] [delivered] the next sessions end with MO status N; with `delivered` the"
        " gateway has the message all the same; with `unmoved` the modem's number stays",
        _set_status,
    ),
    "signal": ("signal 0..5                 set the bars", _set_signal),
    "service": ("service 0|1                 network in sight or not", _set_service),
    "ring": ("ring                        ring without a message", _ring),
    "unplug": ("unplug                      take the modem away", _unplug),
    "plug": ("plug                        put it back", _plug),
    "brownout": (
        "brownout                    reset the modem, also in a session",
        _start_brown_out,
    ),
    "lose-reply": (
        "lose-reply                  the next result of a session is lost",
        _lose_reply,
    ),
    "lose-fragment": ("lose-fragment               lose the next fragment", _lose_fragment),
    "wrong-sum": ("wrong-sum                   garble the next message read", _set_wrong_sum),
    "baud": ("baud N                      talk at this speed, and no other", _set_baud),
    "hang": ("hang on|off                 answer nothing", _hang),
    "echo": ("echo on|off                 echo commands whatever ATE0 says", _set_echo),
    "spacing": ("spacing on|off              odd spacing in +SBDIX", _set_spacing),
    "latency": ("latency SECONDS             seconds that a session takes", _set_latency),
    "hub-status": ("hub-status N                answer the hub's next MT with N", _set_hub_status),
    "hub-silent": ("hub-silent                  do not answer the hub's next MT", _set_hub_silent),
    "hub-cut": ("hub-cut                     cut the connection of the hub's next MT", _cut_hub),
    "hub-late": ("hub-late SECONDS            delay the answer to the hub", _set_hub_late),
}
"""All commands by name. Each has its help line and its function."""
