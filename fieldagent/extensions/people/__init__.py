"""People with handhelds: radios with the firmware of Meshtastic or MeshCore, and APRS.

`contract.py` describes a radio, and a module for each firmware implements it. `desk.py` decides
about each input, `post.py` sends texts, and `service.py` runs the radio.
"""

from fieldagent.system.extension import Extension

_PART = "fieldagent.extensions.people.settings:PART"
EXTENSION = Extension(
    "people's radio",
    kit_parts={"mesh": _PART},
    devices={"mesh-port": _PART},
)
