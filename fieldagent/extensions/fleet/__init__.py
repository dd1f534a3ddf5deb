"""Fleet: signed updates of programs and systems, settings that the hub sends, and reboots.

On a kit, root's systemd units run these commands. Each change first runs as a trial, and is rolled
back if the trial fails. On the hub, a command offers an update to kits in waves.
"""

from fieldagent.system.extension import Extension

_TABLE = "fieldagent.extensions.fleet.table:COMMANDS"
EXTENSION = Extension(
    "updates and settings from afar",
    commands={"update": _TABLE, "settings": _TABLE, "reboot": _TABLE},
    hub_commands={"update": "fieldagent.extensions.fleet.hub_table:COMMANDS"},
)
