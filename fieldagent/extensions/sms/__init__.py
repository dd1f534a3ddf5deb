"""SMS: a GSM modem in a kit, and services that deliver a hub's messages to telephones.

`agent/` contains the kit's bearer, which sends items while there is no IP link. `sms_modem.py` and
`modem_manager.py` contain the wire formats of the kit's modems. `hub/` contains a kind of contact
for each service.
"""

from fieldagent.system.extension import Extension

_HOME = "fieldagent.extensions.sms"
EXTENSION = Extension(
    "SMS",
    devices={"sms-port": f"{_HOME}.agent.settings:PART"},
    contact_kinds={
        "sms-gate": f"{_HOME}.hub.sms_gate:KIND",
        "twilio": f"{_HOME}.hub.twilio:KIND",
        "sms": f"{_HOME}.hub.webhook:KIND",
    },
    hub_api=f"{_HOME}.hub.description:CALLS",
)
