"""SMS: services that carry a hub's messages to telephones, and answers back.

`hub/` has a kind of contact for each service.
"""

from fieldagent.system.extension import Extension

_HUB = "fieldagent.extensions.sms.hub"
EXTENSION = Extension(
    "SMS services",
    contact_kinds={
        "sms-gate": f"{_HUB}.sms_gate:KIND",
        "twilio": f"{_HUB}.twilio:KIND",
        "sms": f"{_HUB}.webhook:KIND",
    },
    hub_api=_HUB,
)
