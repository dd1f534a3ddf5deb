"""Connections to third-party servers, with or without TLS, and readable texts for failures."""

from __future__ import annotations

import ssl

import trio

from fieldagent.http import tls
from fieldagent.http.secure import make_secure
from fieldagent.system.wording import describe_reason


class ConnectionLost(Exception):
    """Error: the connection failed or was lost. The text contains the reason, and the remedy if
    there is one.
    """


async def open_stream(
    host: str, port: int, context: ssl.SSLContext | None, ca_setting: str, name: str = ""
) -> trio.abc.Stream:
    """Connect to a server. `name` is the name in the server's certificate, if it is not the host.
    `ca_setting` is the setting that contains the path of the certificate authorities' file. Raises
    ConnectionLost.
    """
    try:
        plain = await trio.open_tcp_stream(host, port)
    except OSError as error:
        raise ConnectionLost(f"{host}:{port}: {describe_reason(error)}") from error
    if context is None:
        return plain
    try:
        return await make_secure(plain, context, name or host)
    except trio.BrokenResourceError as error:
        fault = tls.describe_fault(error.__cause__, ca_setting)
        text = fault or "the server broke off the handshake"
        raise ConnectionLost(f"{host}:{port}: {text}") from error
