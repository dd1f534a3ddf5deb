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

from fieldagent.system.lazy_named_tuple import NamedTuple


class MqttTopics(NamedTuple):
    base: str
    online: str
    state: str
    position: str
    inbound: str
    send: str
    device: str
    """What Home Assistant knows this kit by."""
    config: str
    birth: str
    """Empty, as `config` is, where it is told nothing."""

    def package(self, id_: int) -> str:
        """Return where it is told how a Package stands."""
        return f"{self.base}/package/{id_}"

    def result(self, sender: str) -> str:
        """Return where the sender of a command is answered; where none is named, everybody."""
        return f"{self.base}/result/{sender}" if sender else f"{self.base}/result"

    def filters(self) -> list[str]:
        """Return what is subscribed to."""
        return [self.send, f"{self.send}/+", *([self.birth] if self.birth else [])]

    def sender(self, topic: str) -> str | None:
        """Return who sends by this topic, empty for nobody in particular; None where it is none of
        commands."""
        if topic == self.send:
            return ""
        head, _, sender = topic.rpartition("/")
        return sender if head == self.send else None


def topics_of(prefix: str, name: str, discovery: str) -> MqttTopics:
    """Return the topics of the kit `name` below `prefix`; an empty `discovery` tells Home Assistant
    nothing."""
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
