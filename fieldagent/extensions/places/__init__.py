"""Places: fences, routes with a due time, third-party trackers, and weekly reports of kits.

The extension exists only in the hub. `hub/part.py` lists its additions to the hub.
"""

from fieldagent.system.extension import Extension

_HOME = "fieldagent.extensions.places.hub"
_TABLE = f"{_HOME}.table:COMMANDS"
EXTENSION = Extension(
    "fences, routes, trackers and weekly reports",
    hub_parts={"places": f"{_HOME}.part:PART"},
    hub_api=f"{_HOME}.description:CALLS",
    hub_commands=dict.fromkeys(("fence", "route", "report", "tracker"), _TABLE),
)
