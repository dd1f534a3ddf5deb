"""Iridium Messaging Transport (IMT): the modem Iridium Certus 9704 and the operator Cloudloop.

`jspr.py` and `messages.py` contain the wire format. `agent/` contains the modem's driver. `hub/`
contains the operator, which also supports SBD modems.
"""

from fieldagent.system.extension import Extension

_HOME = "fieldagent.extensions.imt"
EXTENSION = Extension(
    "Iridium 9704 and Cloudloop",
    satellite_modems={"imt": f"{_HOME}.agent.kind:MODEM"},
    traces={"imt": f"{_HOME}.agent.trace:mask"},
    modem_kinds={"imt": f"{_HOME}.messages:MODEM"},
    operators={"cloudloop": f"{_HOME}.hub.cloudloop:KIND"},
    hub_api=f"{_HOME}.hub.description:CALLS",
)
