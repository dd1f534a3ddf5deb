"""Loads the configured kind of radio for handhelds, and all kinds that can be detected."""

from __future__ import annotations

from fieldagent.agent.channels.contract import ChannelLink
from fieldagent.agent.channels.recognition import Recognition
from fieldagent.extensions.people.contract import PeoplesRadio
from fieldagent.extensions.people.settings import RADIOS
from fieldagent.system.named_object import import_known_object
from fieldagent.system.properties import WrongProperty


def load_peoples_radio(name: str) -> PeoplesRadio:
    """Load the radio with this name, or a third-party radio: `package.module:NAME`.

    Raises WrongProperty, with a text that follows `mesh-protocol`.
    """
    return import_known_object(name, RADIOS, PeoplesRadio)


def find_caveat(name: str) -> str:
    """Return the caveat of the radio with this name. Return an empty string if the radio's module
    cannot be loaded; the service reports the failure when it opens the radio.
    """
    try:
        return load_peoples_radio(name).caveat
    except WrongProperty:
        return ""


def can_reach(protocol: str, link: ChannelLink, handle: str) -> bool:
    """Return True if the kit's radio can reach a handheld. For `auto` the last detected firmware
    decides. Before the first detection any handheld counts as reachable.
    """
    name = str(link.facts.get("protocol", protocol))
    return load_peoples_radio(name).is_handle(handle)


def list_devices() -> list[Recognition]:
    """Return the recognition of each kind of radio for handhelds that can be recognized."""
    ways = [load_peoples_radio(name).recognition for name in RADIOS]
    return [way() for way in ways if way]
