"""The PROXY protocol of version 2, by its document's figures."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.proxy_protocol import HEAD, SIGNATURE, compute_remaining_length, parse_client

PORTS = b"\x30\x39\x24\xe3"


def header(command: int, family: int, behind: bytes) -> bytes:
    return SIGNATURE + bytes([command, family]) + len(behind).to_bytes(2, "big") + behind


def read(content: bytes) -> str | None:
    length = compute_remaining_length(content[:HEAD])
    assert length == len(content) - HEAD
    return parse_client(content[:HEAD], content[HEAD:])


V4 = bytes([192, 0, 2, 7, 10, 0, 0, 1]) + PORTS
V6 = ipaddress.ip_address("2001:db8::7").packed + bytes(16) + PORTS
UNIX = bytes(216)


@pytest.mark.parametrize(
    ("command", "family", "behind", "client"),
    [
        (0x21, 0x11, V4, "192.0.2.7"),
        (0x21, 0x21, V6, "2001:db8::7"),
        (0x21, 0x11, V4 + b"\x04\x00\x04\0\0\0\0", "192.0.2.7"),
        (0x20, 0x00, b"", None),  # the proxy's own connection
        (0x20, 0x11, V4, None),
    ],
)
def test_client_address_is_read_from_the_header(
    command: int, family: int, behind: bytes, client: str | None
) -> None:
    assert read(header(command, family, behind)) == client


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"GET / HTTP/1.1\r\n", "does not begin with"),
        (b"PROXY TCP4 192.0.2.7 10.0.0.1 1 2\r\n"[:16], "does not begin with"),
        (header(0x11, 0x11, V4), "is not a command"),
        (header(0x22, 0x11, V4), "is not a command"),
        (header(0x21, 0x31, UNIX), "no TCP client"),
        (header(0x21, 0x12, V4), "no TCP client"),
        (header(0x21, 0x00, b""), "no TCP client"),
        (header(0x21, 0x11, V4[:11]), "cut short"),
        (header(0x21, 0x21, V4), "cut short"),
        (header(0x21, 0x11, bytes(2049)), "at most 2048"),
    ],
)
def test_invalid_header_raises_with_the_reason(content: bytes, reason: str) -> None:
    with pytest.raises(RemoteProtocolError, match=reason):
        read(content)


@given(st.binary(min_size=HEAD, max_size=600))
def test_random_bytes_are_read_or_refused(content: bytes) -> None:
    for text in (content, SIGNATURE + content[12:]):
        try:
            length = compute_remaining_length(text[:HEAD])
            parse_client(text[:HEAD], text[HEAD:][:length])
        except RemoteProtocolError:
            pass
