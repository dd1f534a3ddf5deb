"""Loads the configured kind of radio for handhelds, or all kinds that can be detected."""

from __future__ import annotations

from fieldagent.agent.channels.contract import ChannelLink
from fieldagent.agent.channels.recognition import Recognition
from fieldagent.extensions.people.contract import PeoplesRadio
from fieldagent.extensions.people.settings import RADIOS
from fieldagent.system.extension import import_known_object
from fieldagent.system.properties import WrongProperty


def load_peoples_radio(name: str) -> PeoplesRadio:
    """Load the kind of radio with this name, or a third-party kind in the form
    `package.module:NAME`.

    Raises WrongProperty with a text that follows `mesh-protocol`.
    """
    return import_known_object(name, RADIOS, PeoplesRadio)


def find_caveat(name: str) -> str:
    """Return the warning about the radio with this name (`PeoplesRadio.caveat`). Return an empty
    string if the radio's module cannot be loaded. The service reports this failure when it opens
    the radio.
    """
    try:
        return load_peoples_radio(name).caveat
    except WrongProperty:
        return ""


def can_reach(protocol: str, link: ChannelLink, handle: str) -> bool:
    """Return True if the kit's radio can reach a handheld. If `protocol` is `auto`, this depends on
    the firmware that was detected last. Before the first detection, the function returns True for
    every handheld.
    """
    name = str(link.facts.get("protocol", protocol))
    return load_peoples_radio(name).is_handle(handle)


def list_radio_recognitions() -> list[Recognition]:
    """Return the recognition of each kind of radio for handhelds that can be recognised."""
    ways = [load_peoples_radio(name).recognition for name in RADIOS]
    return [make_recognition() for make_recognition in ways if make_recognition]
