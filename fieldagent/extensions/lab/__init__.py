"""Laboratory: simulated hardware, a demo, and drills in virtual time.

`simulator/` replaces modems, radios and a fleet of kits. `drill/` runs a team's week with real
agents and a real hub. The modules in this folder are the commands for them.
"""

from fieldagent.system.extension import Extension

_TABLE = "fieldagent.extensions.lab.table:COMMANDS"
EXTENSION = Extension(
    "simulated hardware, demo and drills",
    commands={"demo": _TABLE, "simulate": _TABLE, "drill": _TABLE},
    hub_commands={"device": "fieldagent.extensions.lab.hub_table:COMMANDS"},
)
