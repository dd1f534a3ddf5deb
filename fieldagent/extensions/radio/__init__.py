"""Radio: kits among themselves.

`settings.py` contains the settings and the description of the part. `radios/` contains a driver for
each kind of radio, with the interface in `contract.py`. `driver.py` transmits and repeats packets,
`mesh/` contains the protocol among kits, and `service.py` connects them to the agent.
"""

from fieldagent.system.extension import Extension

EXTENSION = Extension(
    "radio among kits", devices={"radio-port": "fieldagent.extensions.radio.settings:PART"}
)
