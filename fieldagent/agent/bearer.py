"""The contract of a bearer: another connection to the hub, which transmits items while there is no
IP link.

A bearer belongs to a `kit_part.KitPart` of an extension.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, Protocol

from fieldagent.agent.channels.contract import ChannelLink, IpTurn, Outbox, Reception, Transmission
from fieldagent.agent.channels.healing import Healing
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.kit_part import find_enabled_parts
from fieldagent.system.extension import import_own
from fieldagent.system.lazy_named_tuple import NamedTuple


class BearerOutbox(Outbox, Protocol):
    """An outbox that also records transmissions that cost money."""

    def get_packages(self, transmission: Transmission) -> Sequence[int]:
        """Return the sequences of the Packages in a transmission that has not been settled yet."""

    async def record_sms(self, packages: Sequence[int]) -> None:
        """Record that an SMS with these Packages left, or may have left."""


class BearerSeat(NamedTuple):
    """Parts of the agent that a bearer uses."""

    token_digest: bytes
    outbox: BearerOutbox
    """Outbox of the channel Cellular."""
    reception: Reception
    cellular: ChannelLink
    """Link of the channel Cellular, which shows the modem's state to people."""
    turn: IpTurn
    journal: Journal
    folder: Path
    """State directory of the agent."""
    link: ChannelLink
    """Link of the bearer's own modem. `cellular` is the link of the channel."""
    heal: Callable[[], Awaitable[bool]]
    progress: Callable[[], None]


class Bearer(NamedTuple):
    message_bytes: int
    """Bytes of an item that one paid message carries."""
    healing: Healing
    """Recovery settings of the bearer's modem. Their `channel` is the bearer's name in the log."""
    run: Callable[[BearerSeat], Awaitable[NoReturn]]
    """Function that serves the modem forever, even while the modem is absent."""


def make_bearers(settings: Mapping[str, Any]) -> dict[str, Bearer]:
    """Return the bearers that the settings of parts turn on, by name."""
    bearers = {
        name: part.bearer for name, part in find_enabled_parts(settings).items() if part.bearer
    }
    return {
        name: import_own(factory_name)(settings[name]) for name, factory_name in bearers.items()
    }


def get_bearer_bytes(settings: Mapping[str, Any]) -> int:
    """Return the smallest `message_bytes` of all bearers, or 0 if there is no bearer."""
    return min((each.message_bytes for each in make_bearers(settings).values()), default=0)
