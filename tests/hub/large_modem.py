"""A third-party extension with a modem of large messages, for the hub's tests of its MT messages.
An import adds it to the extensions of the process.
"""

from __future__ import annotations

import binascii

from fieldagent.extensions import add_extensions
from fieldagent.system.extension import Extension
from fieldagent.wire.modem_kind import ModemKind

NAME = "large"
KIND = ModemKind(
    100_000, by_bytes=True, keeps_copies=False, guard=lambda body: binascii.crc_hqx(body, 0)
)
EXTENSION = Extension("a modem of large messages", modem_kinds={NAME: f"{__name__}:KIND"})
add_extensions(f"{__name__}:EXTENSION")
