"""MQTT and Home Assistant: an agent or a hub as the client of an MQTT broker.

`packets.py` contains the protocol. Both programs use `session.py` and `commands.py`. `agent/`
contains the kit's client and `hub/` the hub's bridge.
"""

from fieldagent.system.extension import Extension

EXTENSION = Extension(
    "MQTT and Home Assistant",
    kit_parts={"mqtt": "fieldagent.extensions.mqtt.agent.settings:PART"},
    bridges={"mqtt": "fieldagent.extensions.mqtt.hub.kind:KIND"},
)
