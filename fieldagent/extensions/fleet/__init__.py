"""Fleet: signed updates of programs and systems, settings that the hub sends, and reboots.

On a kit, units of root run these commands: each change has a trial and a rollback. On the hub, a
command offers an update to kits in waves.
"""

from fieldagent.system.extension import Extension

_ARGUMENTS = "fieldagent.extensions.fleet.arguments"
EXTENSION = Extension(
    "updates and settings from afar",
    verbs={
        "update": f"{_ARGUMENTS}:add_update",
        "settings": f"{_ARGUMENTS}:add_settings",
        "reboot": f"{_ARGUMENTS}:add_reboot",
    },
    hub_nouns={"update": f"{_ARGUMENTS}:add_hub_update"},
)
