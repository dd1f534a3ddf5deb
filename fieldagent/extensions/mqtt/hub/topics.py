"""The topics of one hub; nothing that it publishes is among those that it subscribes to.

PREFIX/NAME/online                    online or offline                        retained
PREFIX/NAME/state                     kits, open incidents, credits left       retained
PREFIX/NAME/kit/KIT/state             how a kit is, and when it was heard      retained
PREFIX/NAME/kit/KIT/position          where it was last                        retained
PREFIX/NAME/kit/KIT/item              what it sends
PREFIX/NAME/kit/KIT/incident          what happens to its incidents
PREFIX/NAME/kit/KIT/reached/ID        how far what it sent has come
PREFIX/NAME/reached/ID                how far what came by MQTT has come
PREFIX/NAME/result[/SENDER]           what became of a command
PREFIX/NAME/send[/SENDER]             commands                                 subscribed
PREFIX/NAME/kit/KIT/send[/SENDER]     the same, for the user of a kit          subscribed
DISCOVERY/device/…/config             what Home Assistant makes of it all      retained
DISCOVERY/status                      Home Assistant's birth                   subscribed
"""

from __future__ import annotations

import re

from fieldagent.system.lazy_named_tuple import NamedTuple


class CommandAddress(NamedTuple):
    sender: str
    """Empty for nobody in particular."""
    kit: int | None
    """Whose user it is for, where the topic says so."""


class HubTopics(NamedTuple):
    base: str
    device: str
    """What Home Assistant knows this hub by."""
    discovery: str
    """Empty where it is told nothing."""

    @property
    def online(self) -> str:
        """Return where the will tells whether the hub is there."""
        return f"{self.base}/online"

    @property
    def state(self) -> str:
        """Return where the figures of the hub stand."""
        return f"{self.base}/state"

    @property
    def birth(self) -> str:
        """Return where Home Assistant tells that it has started; empty without discovery."""
        return f"{self.discovery}/status" if self.discovery else ""

    def kit(self, kit: int, what: str) -> str:
        """Return where something of one kit stands, such as its position."""
        return f"{self.base}/kit/{kit}/{what}"

    def device_of(self, kit: int) -> str:
        """Return by which id Home Assistant knows a kit."""
        return f"{self.device}-{kit}"

    def config(self, device: str) -> str:
        """Return where a device is described to Home Assistant."""
        return f"{self.discovery}/device/{device}/config"

    def result(self, sender: str) -> str:
        """Return where the sender of a command is answered; where none is named, everybody."""
        return f"{self.base}/result/{sender}" if sender else f"{self.base}/result"

    def reached(self, kit: int | None, request_id: str) -> str:
        """Return where it is told how far an item has come."""
        base = self.base if kit is None else f"{self.base}/kit/{kit}"
        return f"{base}/reached/{request_id}"

    def filters(self) -> list[str]:
        """Return what is subscribed to."""
        own = [f"{self.base}/{way}send{end}" for way in ("", "kit/+/") for end in ("", "/+")]
        return [*own, *([self.birth] if self.birth else [])]

    def address(self, topic: str) -> CommandAddress | None:
        """Return who sends by this topic, and for which kit; None where it is none of commands."""
        form = rf"{re.escape(self.base)}(?:/kit/([1-9][0-9]{{0,17}}))?/send(?:/([^/]+))?"
        if (match := re.fullmatch(form, topic, re.ASCII)) is None:
            return None
        return CommandAddress(match[2] or "", None if match[1] is None else int(match[1]))


def topics_of(prefix: str, name: str, discovery: str) -> HubTopics:
    """Return the topics of a hub of that name; an empty `discovery` is none of Home Assistant's."""
    return HubTopics(f"{prefix}/{name}", f"fieldagent-{name}", discovery)
