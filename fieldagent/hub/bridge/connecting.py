"""A connection to somebody else's server, in TLS perhaps, and failures told in words."""

from __future__ import annotations

import ssl

import trio

from fieldagent.http import tls
from fieldagent.http.secure import secured
from fieldagent.system.wording import reason_of


class Lost(Exception):
    """There is no connection; the text says why, and what to do where somebody can."""


async def open_stream(
    host: str, port: int, context: ssl.SSLContext | None, ca_setting: str, name: str = ""
) -> trio.abc.Stream:
    """Connect. `name` is the one in the server's certificate, where that is another than the host;
    `ca_setting` is what the file with its authority is called in the settings. Raises Lost."""
    try:
        plain = await trio.open_tcp_stream(host, port)
    except OSError as error:
        raise Lost(f"{host}:{port}: {reason_of(error)}") from error
    if context is None:
        return plain
    try:
        return await secured(plain, context, name or host)
    except trio.BrokenResourceError as error:
        fault = tls.fault(error.__cause__, ca_setting)
        text = fault or "the server broke off the handshake"
        raise Lost(f"{host}:{port}: {text}") from error
