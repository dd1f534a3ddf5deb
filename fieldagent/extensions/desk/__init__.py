"""Desk: people who are notified of an SOS outside the console, their answers, quiet hours, and the
watch of dispatchers.

The extension exists only in the hub. `hub/part.py` lists its additions to the hub.
"""

from fieldagent.system.extension import Extension

_HOME = "fieldagent.extensions.desk.hub"
EXTENSION = Extension(
    "contacts for an SOS, quiet hours and the watch",
    contact_kinds={
        "email": f"{_HOME}.mail:KIND",
        "apprise": f"{_HOME}.services:KIND",
        "push": f"{_HOME}.browser:KIND",
    },
    hub_parts={
        "contacts": f"{_HOME}.part:CONTACTS",
        "push": f"{_HOME}.part:PUSH",
        "watch": f"{_HOME}.part:WATCH",
    },
    hub_api=f"{_HOME}.description:CALLS",
    hub_commands={"contact": f"{_HOME}.table:COMMANDS"},
)
