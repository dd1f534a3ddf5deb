"""Laboratory: simulated hardware, a demo, and drills in virtual time.

`simulator/` replaces modems, radios and a fleet of kits. `drill/` runs a team's week with real
agents and a real hub. The modules here are their commands.
"""

from fieldagent.system.extension import Extension

_ARGUMENTS = "fieldagent.extensions.lab.arguments"
EXTENSION = Extension(
    "simulated hardware, demo and drills",
    verbs={
        "demo": f"{_ARGUMENTS}:add_demo",
        "simulate": f"{_ARGUMENTS}:add_simulate",
        "drill": f"{_ARGUMENTS}:add_drill",
    },
    hub_verbs={"device": f"{_ARGUMENTS}:add_to_device"},
)
