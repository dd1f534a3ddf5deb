"""Interface of a kind of radio. The settings, the driver and the checks use every kind through this
interface.

A radio is a module or folder with a `Radio`, which `registry.RADIOS` lists. All radios pass the
same tests, `tests/extensions/radio/radios/test_contract.py`. The full guide is
docs/how-to/add-a-radio.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import field
from typing import Any

from fieldagent.agent.channels.air_pace import AIR_BYTES
from fieldagent.agent.channels.contract import ChannelLink
from fieldagent.agent.channels.radio_modem import RadioModem
from fieldagent.agent.channels.recognition import Recognition
from fieldagent.system.finding import Finding
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.properties import Key


class RadioPlace(NamedTuple):
    """Port and settings of a radio."""

    port: str
    baud: int = 115_200
    callsign: str = ""
    packet_bytes: int = AIR_BYTES
    """Largest packet that will be transmitted, in bytes."""
    own_settings: Mapping[str, Any] = {}
    """Settings of this kind of radio, by name. The values are in the form that their `Key`
    returns."""


@dataclass(frozen=True, slots=True)
class Radio:
    """One kind of radio, with the facts for the settings, `fieldagent check`, the status and the
    assembly.
    """

    name: str
    """Name in `radio-protocol`."""
    description: str
    """Text for people that names the supported radios and the page about them."""
    open: Callable[[RadioPlace, ChannelLink], AbstractAsyncContextManager[RadioModem]]
    """Opens the radio in a context manager, which closes it at the end. Raises RadioLost and
    PortLost, in exception groups."""
    check: Callable[[RadioPlace], Finding] | None = None
    """Checks the radio for `fieldagent check`, without opening it. None if the radio is on a serial
    port."""
    keys: tuple[Key, ...] = ()
    """Settings of this kind; each name begins with the radio's name."""
    needs: tuple[str, ...] = ()
    """Names of the settings that this kind of radio requires."""
    says_callsign: bool = False
    """True if the radio's frames contain the callsign; otherwise the agent sends the callsign in
    plain text."""
    is_counting_air_time: bool = False
    """True if the radio counts its own air-time from its configuration and obeys
    `ChannelLink.air_time`."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Meanings of the radio's additional members in `GET /api/status`, by name."""
    recognition: Callable[[], Recognition] | None = None
    """Returns the Recognition of this kind. None if this kind cannot be recognised at a port."""
