"""Loads the people's radio that the settings name."""

from __future__ import annotations

from fieldagent.agent.channels.contract import ChannelLink
from fieldagent.agent.people.contract import PeoplesRadio
from fieldagent.agent.people_settings import RADIOS
from fieldagent.system.named_object import known_object
from fieldagent.system.properties import WrongProperty


def peoples_radio(name: str) -> PeoplesRadio:
    """Load the radio of this name, or a third party's: `package.module:NAME`.

    Raises WrongProperty, in words that follow `mesh-protocol`.
    """
    return known_object(name, RADIOS, PeoplesRadio)


def caveat_of(name: str) -> str:
    """Return the caveat of the radio of this name; empty of one that cannot be loaded, which the
    service says once it is to open it."""
    try:
        return peoples_radio(name).caveat
    except WrongProperty:
        return ""


def reaches(protocol: str, link: ChannelLink, handle: str) -> bool:
    """Return whether the kit's radio reaches a handheld: of `auto` the one that was found last, and
    whichever as long as none was."""
    name = str(link.facts.get("protocol", protocol))
    return peoples_radio(name).is_handle(handle)
