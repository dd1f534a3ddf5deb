"""Loads the people's radio that the settings name."""

from __future__ import annotations

from fieldagent.agent.people.contract import PeoplesRadio
from fieldagent.agent.people_settings import RADIOS
from fieldagent.system.named_object import known_object


def peoples_radio(name: str) -> PeoplesRadio:
    """Load the radio of this name, or a third party's: `package.module:NAME`.

    Raises WrongProperty, in words that follow `mesh-protocol`.
    """
    return known_object(name, RADIOS, PeoplesRadio)
