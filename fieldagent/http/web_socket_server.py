"""The server's end of a WebSocket handshake. This is a separate module, because clients do not need
its imports.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio
from websockets.datastructures import Headers
from websockets.http11 import Request as Handshake
from websockets.server import ServerProtocol

from fieldagent.http.message import Request, Response
from fieldagent.http.problem import Problem
from fieldagent.http.web_socket import QUIET_LOG, WebSocket

_NEEDED_HEADERS = ("connection", "upgrade", "sec-websocket-key", "sec-websocket-version")
_ERROR_CHARACTERS_MAX = 200
"""Maximum number of characters of an error text."""


def accept(
    request: Request, use: Callable[[WebSocket], Awaitable[None]], *, max_size: int
) -> Response:
    """Return the response to a handshake. `use` is then called with the WebSocket. Raises Problem
    if the request is not a valid handshake.
    """
    if request.method != "GET":
        raise Problem(
            405, "a WebSocket begins with GET (RFC 6455 4.1)", headers=(("Allow", "GET"),)
        )
    protocol = ServerProtocol(max_size=max_size, logger=QUIET_LOG)
    handshake_headers = {
        name: request.headers[name] for name in _NEEDED_HEADERS if name in request.headers
    }
    handshake = Handshake("/", Headers(handshake_headers))
    protocol.receive_data(handshake.serialize())
    if not protocol.events_received():
        raise Problem(431, f"this is for WebSockets (RFC 6455): {protocol.handshake_exc}")
    answer = protocol.accept(handshake)
    if answer.status_code != 101:
        text = answer.headers.get("Upgrade")
        also = (("upgrade", text), ("connection", "upgrade")) if text else ()
        reason = str(protocol.handshake_exc)[:_ERROR_CHARACTERS_MAX]
        raise Problem(
            answer.status_code, f"this is for WebSockets (RFC 6455): {reason}", headers=also
        )
    protocol.send_response(answer)
    # Drop the library's answer, because the server writes the answer itself.
    protocol.data_to_send()
    key = answer.headers["Sec-WebSocket-Accept"]

    async def serve(stream: trio.abc.Stream) -> None:
        await use(WebSocket(protocol, stream))

    switch = (("connection", "upgrade"), ("upgrade", "websocket"), ("sec-websocket-accept", key))
    return Response(101, headers=switch, upgrade=serve)
