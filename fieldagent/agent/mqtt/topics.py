"""The topics of one kit; nothing that it publishes is among those that it subscribes to.

PREFIX/NAME/online             online or offline                     retained
PREFIX/NAME/state              how the kit is                        retained
PREFIX/NAME/position           where it was last                     retained
PREFIX/NAME/inbound            what came in, each once
PREFIX/NAME/package/ID         how a Package that came by MQTT stands
PREFIX/NAME/result[/SENDER]    what became of a command
PREFIX/NAME/send[/SENDER]      commands                              subscribed
DISCOVERY/device/…/config      what Home Assistant makes of it all   retained
DISCOVERY/status               Home Assistant's birth                subscribed
"""

from __future__ import annotations

from typing import NamedTuple


class MqttTopics(NamedTuple):
    base: str
    discovery: str
    """Prefix; empty for none."""
    device: str
    """What Home Assistant knows this kit by."""

    @property
    def online(self) -> str:
        return f"{self.base}/online"

    @property
    def state(self) -> str:
        return f"{self.base}/state"

    @property
    def position(self) -> str:
        return f"{self.base}/position"

    @property
    def inbound(self) -> str:
        return f"{self.base}/inbound"

    @property
    def send(self) -> str:
        return f"{self.base}/send"

    @property
    def config(self) -> str:
        return f"{self.discovery}/device/{self.device}/config"

    @property
    def birth(self) -> str:
        return f"{self.discovery}/status"

    def package(self, id_: int) -> str:
        return f"{self.base}/package/{id_}"

    def result(self, sender: str) -> str:
        return f"{self.base}/result/{sender}" if sender else f"{self.base}/result"

    def filters(self) -> list[str]:
        """Return what is subscribed to."""
        return [self.send, f"{self.send}/+", *([self.birth] if self.discovery else [])]

    def sender(self, topic: str) -> str | None:
        """Return who sends by this topic, empty for nobody in particular; None where it is none of
        commands."""
        if topic == self.send:
            return ""
        head, _, sender = topic.rpartition("/")
        return sender if head == self.send else None


def topics_of(prefix: str, name: str, discovery: str) -> MqttTopics:
    return MqttTopics(f"{prefix}/{name}", discovery, f"fieldagent-{name}")
