"""Topics of one hub. The hub never subscribes to a topic that it publishes.

PREFIX/NAME/online                    online or offline                      retained
PREFIX/NAME/state                     kits, open incidents, credits left     retained
PREFIX/NAME/kit/KIT/state             state of a kit and its last contact    retained
PREFIX/NAME/kit/KIT/position          its last position                      retained
PREFIX/NAME/kit/KIT/item              items that it sends
PREFIX/NAME/kit/KIT/incident          events of its incidents
PREFIX/NAME/kit/KIT/reached/ID        delivery steps of its items
PREFIX/NAME/reached/ID                delivery steps of items sent by MQTT
PREFIX/NAME/result[/SENDER]           result of a command
PREFIX/NAME/send[/SENDER]             commands                               subscribed
PREFIX/NAME/kit/KIT/send[/SENDER]     commands for the user of a kit         subscribed
DISCOVERY/device/…/config             descriptions for Home Assistant        retained
DISCOVERY/status                      Home Assistant's birth message         subscribed
"""

from __future__ import annotations

import re

from fieldagent.system.lazy_named_tuple import NamedTuple


class CommandAddress(NamedTuple):
    sender: str
    """Name of the sender; empty if the topic does not name a sender."""
    kit: int | None
    """Kit whose user receives the command; None if the topic does not name a kit."""


class HubTopics(NamedTuple):
    base: str
    device: str
    """Id of this hub in Home Assistant."""
    discovery: str
    """Discovery prefix; empty if discovery is off."""

    @property
    def online(self) -> str:
        """Return the topic that contains the connection state of the hub. The last will uses this
        topic.
        """
        return f"{self.base}/online"

    @property
    def state(self) -> str:
        """Return the topic on which the hub publishes its own state, such as the number of open
        incidents.
        """
        return f"{self.base}/state"

    @property
    def birth(self) -> str:
        """Return the topic on which Home Assistant announces its start, or an empty text if
        discovery is off.
        """
        return f"{self.discovery}/status" if self.discovery else ""

    def get_kit_topic(self, kit: int, document: str) -> str:
        """Return the topic for the document `document` of a kit, such as its position."""
        return f"{self.base}/kit/{kit}/{document}"

    def get_device_id(self, kit: int) -> str:
        """Return the id of a kit in Home Assistant."""
        return f"{self.device}-{kit}"

    def get_config_topic(self, device: str) -> str:
        """Return the topic for the description of a device for Home Assistant."""
        return f"{self.discovery}/device/{device}/config"

    def get_result_topic(self, sender: str) -> str:
        """Return the topic for results of a sender's commands. If `sender` is empty, return the
        topic for everyone.
        """
        return f"{self.base}/result/{sender}" if sender else f"{self.base}/result"

    def get_stages_topic(self, kit: int | None, request_id: str) -> str:
        """Return the topic for the delivery steps of an item."""
        base = self.base if kit is None else f"{self.base}/kit/{kit}"
        return f"{base}/reached/{request_id}"

    def list_filters(self) -> list[str]:
        """Return the topic filters to which the hub subscribes: for commands, and for Home
        Assistant's birth message.
        """
        own = [
            f"{self.base}/{kit_level}send{end}"
            for kit_level in ("", "kit/+/")
            for end in ("", "/+")
        ]
        return [*own, *([self.birth] if self.birth else [])]

    def find_address(self, topic: str) -> CommandAddress | None:
        """Return the sender and the kit in a topic, or None if the topic is not a topic for
        commands.
        """
        form = rf"{re.escape(self.base)}(?:/kit/([1-9][0-9]{{0,17}}))?/send(?:/([^/]+))?"
        if (match := re.fullmatch(form, topic, re.ASCII)) is None:
            return None
        return CommandAddress(match[2] or "", None if match[1] is None else int(match[1]))


def make_topics(prefix: str, name: str, discovery: str) -> HubTopics:
    """Return the topics of the hub `name` below `prefix`. If `discovery` is empty, the hub does not
    announce itself to Home Assistant.
    """
    return HubTopics(f"{prefix}/{name}", f"fieldagent-{name}", discovery)
