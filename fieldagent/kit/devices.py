"""Detects the devices at a kit's ports.

Each radio and modem defines its own recognition. This module uses the radios and modems that the
settings know, and recognises a satellite navigation receiver by its NMEA sentences. The agent does
not use the receiver directly, because gpsd reads it for all programs. A port is opened once for
each speed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from urllib.parse import urlsplit

import trio

from fieldagent.agent.channels.radio_modem import RadioLost
from fieldagent.agent.channels.recognition import (
    DeviceLine,
    DeviceReport,
    Recognition,
    UnrecognisedDevice,
    answer_to,
    recognise,
)
from fieldagent.agent.channels.serial_check import check_serial_port
from fieldagent.agent.channels.serial_port import PortInUse, PortLost
from fieldagent.agent.kit_part import get_device_parts, get_devices
from fieldagent.agent.radios.radio_line import is_serial, open_line
from fieldagent.agent.satellites.registry import get_modems, load_modem
from fieldagent.system.error_groups import get_first_error
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire import nmea

CONSOLES = Path("/sys/class/tty/console/active")
"""File with the names of the lines that are this system's console."""
GNSS = "gnss"
SENTENCE_TIMEOUT_S = 1.3
"""Longest time in seconds until a receiver, which sends once a second, is heard."""
FIX_WAIT_MAX_S = 2.0


async def check_receiver(line: DeviceLine) -> DeviceReport:
    """Read NMEA sentences until the receiver reports its number of satellites, or for
    `FIX_WAIT_MAX_S`. Return a report on the receiver.
    """
    sentences: list[str] = []

    def find_position(data: bytes) -> int | None:
        sentences[:] = nmea.parse_sentences(data)
        return nmea.read_satellite_count(sentences)

    count = await answer_to(line, b"", find_position, FIX_WAIT_MAX_S)
    lines = ["gpsd reads it for the agent, without a setting: `sudo apt install gpsd`"]
    if count is not None:
        sees = f"its position rests on {count} satellites" if count else "it has no position yet"
        lines.insert(0, sees)
    return DeviceReport("GNSS receiver, NMEA", tuple(lines), facts={"satellites": count})


GNSS_RECOGNITIONS = [
    Recognition(
        GNSS,
        turn,
        baud,
        lambda: b"",
        lambda data: bool(nmea.parse_sentences(data)),
        check_receiver,
        patience=SENTENCE_TIMEOUT_S,
    )
    for turn, baud in ((0, 9_600), (9, 38_400), (10, 4_800))
]
"""Recognitions at the usual speeds of receivers. Over USB the speed does not matter."""


class FoundDevice(NamedTuple):
    """Result for a port: the device that answers, or the reason why none is known."""

    place: str
    kind: str = ""
    """Name of the device's kind in the settings. Empty if no device was recognised."""
    report: DeviceReport | None = None
    reason: str = ""
    """Reason for people, if there is no report."""
    in_use: bool = False
    """True if another program uses the port."""
    is_answering: bool = False
    """True if some device at the port accepts bytes."""

    @property
    def trouble(self) -> tuple[str, ...]:
        """Problems of the device, for people. Empty if no device answered."""
        return () if self.report is None else self.report.trouble


def get_radios() -> list[Recognition]:
    """Return the recognitions of all kinds of radios: first those between kits, then those for
    handhelds.
    """
    parts = [part for part in get_device_parts().values() if part.kinds]
    in_turn = sorted(parts, key=lambda part: not part.station)
    recognitions = [each for part in in_turn for each in get_devices(part)]
    # A firmware may serve both purposes: list it only once.
    return list({each.name: each for each in recognitions}.values())


def get_all_kinds() -> list[Recognition]:
    """Return the recognitions of all kinds of devices: GNSS receivers, radios, satellite modems,
    and devices of extensions.
    """
    satellites = [each.recognition() for each in map(load_modem, get_modems()) if each.recognition]
    others = [part for part in get_device_parts().values() if not part.kinds]
    part_kinds = [each for part in others for each in get_devices(part)]
    return [*GNSS_RECOGNITIONS, *get_radios(), *part_kinds, *satellites]


async def detect_devices(places: Sequence[str], kinds: Sequence[Recognition]) -> list[FoundDevice]:
    """Detect the device at each place, at the same time. Return the results in the order of
    `places`.
    """
    devices: dict[str, FoundDevice] = {}

    async def detect(place: str) -> None:
        devices[place] = await detect_device(place, kinds)

    async with trio.open_nursery() as nursery:
        for place in places:
            nursery.start_soon(detect, place)
    return [devices[place] for place in places]


async def detect_device(place: str, kinds: Sequence[Recognition]) -> FoundDevice:
    """Detect the device at a serial port, or at tcp://HOST. A failure is a result with a
    `reason`.
    """
    if is_serial(place):
        finding = check_serial_port(Path(place))
        if reason := _find_console(place) if finding.good else finding.text:
            return FoundDevice(place, reason=reason)
    device = FoundDevice(place)
    try:
        device = await _probe_place(place, kinds)
    except* PortInUse as in_use:
        device = FoundDevice(place, reason=str(get_first_error(in_use)), in_use=True)
    except* (PortLost, RadioLost) as loss:
        device = FoundDevice(place, reason=str(get_first_error(loss)))
    return device


async def _probe_place(place: str, kinds: Sequence[Recognition]) -> FoundDevice:
    """Open the place once for each speed or TCP port, until a device is recognised, and return it.
    Raises PortLost and RadioLost, in exception groups.
    """
    unknown_devices: list[UnrecognisedDevice] = []
    loss: PortLost | None = None
    for baud, tcp_port, tried_kinds in _list_openings(place, kinds):
        try:
            async with open_line(place, baud, tcp_port) as line:
                answer = await recognise(line, tried_kinds, kinds)
                if isinstance(answer, Recognition):
                    return FoundDevice(place, answer.name, await answer.read_report(line))
                unknown_devices.append(answer)
        except PortLost as error:
            # Over TCP, each kind has its own port.
            if is_serial(place):
                raise
            loss = loss or error
    if not unknown_devices:
        raise loss or PortLost(f"{place} is not on a port of a known radio")
    # Data at one speed is noise at the others, so keep the first data that was received.
    reply = next(
        (each for each in unknown_devices if each.last_bytes or each.echoes), unknown_devices[0]
    )
    return FoundDevice(place, reason=f"{place}: {reply.describe_facts()}", is_answering=True)


def _list_openings(
    place: str, kinds: Sequence[Recognition]
) -> Iterator[tuple[int, int, list[Recognition]]]:
    """Yield tuples of a speed, a TCP port and the kinds to try. The speed is 0 over TCP. The TCP
    port is 0 for a serial port, or if `place` contains it.
    """
    if is_serial(place):
        in_turn = sorted(kinds, key=lambda each: each.order)
        for baud, tried_kinds in groupby(in_turn, key=lambda each: each.baud):
            yield baud, 0, list(tried_kinds)
        return
    by_network = [each for each in kinds if each.tcp_port]
    if _has_port(place):
        yield 0, 0, by_network
        return
    for each in by_network:
        yield 0, each.tcp_port, [each]


def _has_port(place: str) -> bool:
    try:
        return urlsplit(place).port is not None
    except ValueError:
        return True


def _find_console(place: str) -> str:
    try:
        consoles = CONSOLES.read_text().split()
        name = Path(place).resolve().name
    except OSError:
        return ""
    return f"{place} is this system's console: it is not asked" if name in consoles else ""
