"""MQTT topics of one kit. The kit never subscribes to a topic that it publishes.

PREFIX/NAME/online             online or offline                     retained
PREFIX/NAME/state              state of the kit                      retained
PREFIX/NAME/position           last position                         retained
PREFIX/NAME/inbound            inbound items, each once
PREFIX/NAME/package/ID         state of a Package that came over MQTT
PREFIX/NAME/result[/SENDER]    result of a command
PREFIX/NAME/send[/SENDER]      commands                              subscribed
DISCOVERY/device/…/config      discovery for Home Assistant          retained
DISCOVERY/status               Home Assistant's birth message        subscribed
"""

from __future__ import annotations

from fieldagent.system.lazy_named_tuple import NamedTuple


class MqttTopics(NamedTuple):
    base: str
    online: str
    state: str
    position: str
    inbound: str
    send: str
    device: str
    """Id of this kit in Home Assistant."""
    config: str
    birth: str
    """Topic of Home Assistant's birth message. It is empty, like `config`, if discovery is off."""

    def get_package_topic(self, id_: int) -> str:
        """Return the topic on which the kit publishes the state of the Package with the id
        `id_`.
        """
        return f"{self.base}/package/{id_}"

    def get_result_topic(self, sender: str) -> str:
        """Return the topic for results of a sender's commands. If `sender` is empty, return the
        common topic.
        """
        return f"{self.base}/result/{sender}" if sender else f"{self.base}/result"

    def list_filters(self) -> list[str]:
        """Return the topic filters to which the kit subscribes."""
        return [self.send, f"{self.send}/+", *([self.birth] if self.birth else [])]

    def find_sender(self, topic: str) -> str | None:
        """Return the sender that the topic names, or an empty text if it names none. Return None if
        the topic is not a topic for commands.
        """
        if topic == self.send:
            return ""
        head, _, sender = topic.rpartition("/")
        return sender if head == self.send else None


def make_topics(prefix: str, name: str, discovery: str) -> MqttTopics:
    """Return the topics of the kit `name` below `prefix`. If `discovery` is empty, the kit does not
    announce itself to Home Assistant.
    """
    base, device = f"{prefix}/{name}", f"fieldagent-{name}"
    return MqttTopics(
        base=base,
        online=f"{base}/online",
        state=f"{base}/state",
        position=f"{base}/position",
        inbound=f"{base}/inbound",
        send=f"{base}/send",
        device=device,
        config=f"{discovery}/device/{device}/config" if discovery else "",
        birth=f"{discovery}/status" if discovery else "",
    )
