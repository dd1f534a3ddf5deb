"""What a radio says of itself, so that nothing else in the agent has to know it.

A radio is one module or folder with a `Radio`, named in `known.RADIOS`. Each passes the same tests,
`tests/agent/radios/test_contract.py`. The whole way is in docs/adding-a-radio.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import field
from typing import Any

from fieldagent.agent.channels.contract import ChannelLink
from fieldagent.agent.channels.radio_modem import AIR_BYTES, RadioModem
from fieldagent.agent.channels.recognition import Recognition
from fieldagent.system.finding import Finding
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.properties import Key


class RadioPlace(NamedTuple):
    """Where a radio is and how it is spoken to, as the settings say."""

    port: str
    baud: int = 115_200
    callsign: str = ""
    packet_bytes: int = AIR_BYTES
    """Most bytes of a packet that will be transmitted."""
    own: Mapping[str, Any] = {}
    """The radio's own settings by name, each as its `Key` reads it."""


@dataclass(frozen=True, slots=True)
class Radio:
    """Describes one kind of radio: all that settings, `check`, status and assembly ask about it."""

    name: str
    """What `radio-protocol` calls it."""
    means: str
    """For people: which radios it is for, and where they are described."""
    open: Callable[[RadioPlace, ChannelLink], AbstractAsyncContextManager[RadioModem]]
    """Opens it: the radio works inside the context. Raises RadioLost and PortLost, in groups."""
    check: Callable[[RadioPlace], Finding] | None = None
    """How `fieldagent check` looks at it, without opening it; None: it is on a serial port."""
    keys: tuple[Key, ...] = ()
    """Settings of its own; each name begins with that of the radio."""
    needs: tuple[str, ...] = ()
    """Settings that it cannot do without."""
    says_callsign: bool = False
    """Its frames bear the callsign; otherwise the agent says that in plain text."""
    counts_air: bool = False
    """It counts its air-time itself, by what it is set to, and keeps to `ChannelLink.air_time`."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """What it tells in `GET /api/status` beside what each channel does, by name: what it means."""
    recognition: Callable[[], Recognition] | None = None
    """Loads how it is recognised at a port; None: it tells nobody which it is."""
