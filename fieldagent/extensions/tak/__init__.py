"""TAK: phones and servers of the Team Awareness Kit.

`cot.py` and `events.py` contain the wire format. `lan/` serves phones on the kit's own network.
`bridge/` connects a hub to a team's TAK server. `server/` is the hub's own server for phones.
"""

from fieldagent.system.extension import Extension

EXTENSION = Extension(
    "TAK",
    kit_parts={"takLan": "fieldagent.extensions.tak.lan.settings:PART"},
    bridges={
        "tak": "fieldagent.extensions.tak.bridge.kind:KIND",
        "phones": "fieldagent.extensions.tak.server.kind:KIND",
    },
    hub_commands=dict.fromkeys(("user", "tak"), "fieldagent.extensions.tak.hub_table:COMMANDS"),
)
