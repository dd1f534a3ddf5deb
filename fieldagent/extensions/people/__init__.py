"""People with handhelds: radios with the firmware of Meshtastic or MeshCore, and APRS stations.

`contract.py` defines the interface of a radio, and a module for each firmware implements it.
`desk.py` processes everything that people send, `post.py` sends texts to people, and `service.py`
runs the radio.
"""

from fieldagent.system.extension import Extension

_PART = "fieldagent.extensions.people.settings:PART"
EXTENSION = Extension(
    "people's radio",
    kit_parts={"mesh": _PART},
    devices={"mesh-port": _PART},
)
