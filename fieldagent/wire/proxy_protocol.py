"""Reads the address of a client behind a proxy, by the PROXY protocol version 2 ("The PROXY
protocol", section 2.2).

A connection begins with a header of HEAD bytes, which contains the length of the address part.
After the address part, the client's bytes follow.
"""

from __future__ import annotations

import ipaddress

from fieldagent.wire.errors import RemoteProtocolError

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
HEAD = 16
EXTRA_BYTES_MAX = 2048
"""Maximum length of the address part. The addresses and additions of real proxies need some
hundreds of bytes."""
LOCAL, PROXY = 0x20, 0x21
"""Commands for the proxy's own connection, such as a health check, and for a client's
connection."""
TCP4, TCP6 = 0x11, 0x21
ADDRESS = {TCP4: 4, TCP6: 16}


def compute_remaining_length(head: bytes) -> int:
    """Return the length of the address part, which follows the header `head`. Raises
    RemoteProtocolError for malformed data.
    """
    if head[:12] != SIGNATURE:
        raise RemoteProtocolError("it does not begin with the PROXY protocol of version 2")
    if head[12] not in (LOCAL, PROXY):
        raise RemoteProtocolError(f"0x{head[12]:02x} is not a command of the PROXY protocol")
    length = int.from_bytes(head[14:16], "big")
    if length > EXTRA_BYTES_MAX:
        raise RemoteProtocolError(
            f"{length} bytes follow its header; at most {EXTRA_BYTES_MAX} are accepted"
        )
    return length


def parse_client(head: bytes, address_bytes: bytes) -> str | None:
    """Return the client's address, or None for the proxy's own connection.

    Raises RemoteProtocolError for malformed data.
    """
    if head[12] == LOCAL:
        return None
    size = ADDRESS.get(head[13])
    if size is None:
        raise RemoteProtocolError("it names no TCP client over IPv4 or IPv6")
    if len(address_bytes) < 2 * size + 4:
        raise RemoteProtocolError("its addresses are cut short")
    return str(ipaddress.ip_address(address_bytes[:size]))
