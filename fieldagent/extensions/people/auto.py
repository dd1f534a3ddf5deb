"""Detects the firmware of the radio at `mesh-port` each time the port is opened, because someone
may have connected another radio.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from fieldagent.agent.channels.contract import ChannelLink
from fieldagent.agent.channels.radio_modem import RadioLost
from fieldagent.agent.channels.recognition import Recognition, UnrecognisedDevice, recognise
from fieldagent.agent.channels.serial_port import PortLost
from fieldagent.agent.radios.radio_line import is_serial, open_line
from fieldagent.extensions.people.contract import HandheldPlace, PeopleRadio, PeoplesRadio
from fieldagent.extensions.people.registry import load_peoples_radio
from fieldagent.extensions.people.settings import RADIOS

log = logging.getLogger(__name__)

NAME = "auto"
FACT = "protocol"
"""Name of the link's property that contains the detected firmware."""


def _list_recognitions() -> list[Recognition]:
    ways = [load_peoples_radio(name).recognition for name in RADIOS if name != NAME]
    return [make_recognition() for make_recognition in ways if make_recognition is not None]


async def find_firmware(place: str) -> str:
    """Return the name of the firmware of the radio at a port. Raises RadioLost and PortLost."""
    kinds = _list_recognitions()
    ports = [0] if is_serial(place) else [each.tcp_port for each in kinds]
    loss: PortLost | None = None
    unknown_device: UnrecognisedDevice | None = None
    for port in dict.fromkeys(ports):
        try:
            async with open_line(place, kinds[0].baud, port) as line:
                answer = await recognise(line, kinds)
        except PortLost as error:
            loss = error
            continue
        if isinstance(answer, Recognition):
            return answer.name
        unknown_device = answer
    if unknown_device is None and loss is not None:
        raise loss
    kind_names = " or ".join(each.name for each in kinds)
    hint = "" if unknown_device is None else f": {unknown_device.describe_facts()}"
    raise RadioLost(f"no radio with the firmware {kind_names} answers at {place}{hint}")


@asynccontextmanager
async def open_whichever(
    place: HandheldPlace, link: ChannelLink, clock: Callable[[], float]
) -> AsyncIterator[PeopleRadio]:
    """Detect the radio's firmware, and open the radio with the driver for it. `clock` returns Unix
    time. Raises RadioLost and PortLost, in exception groups.
    """
    name = await find_firmware(place.port)
    if link.facts.get(FACT) != name:
        log.info("the people's radio at %s has the firmware %s", place.port, name)
    link.facts[FACT] = name
    async with load_peoples_radio(name).open(place, link, clock) as radio:
        yield radio


RADIO = PeoplesRadio(NAME, "whichever of these answers at the port", open_whichever, lambda _: True)
