"""One HTTP/1.1 request to a webhook: h11 on trio, with a total deadline and readable errors.

Redirects are not followed. Most callers send requests rarely, so a connection is closed after the
response, unless the caller keeps connections (`KeptConnections`).
"""

from __future__ import annotations

import base64
import os
import select
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import field
from functools import cache
from urllib.parse import SplitResult, quote, unquote, urlsplit

import h11
import trio

from fieldagent.http import tls
from fieldagent.http.protocol import describe_parser_error
from fieldagent.http.secure import make_secure
from fieldagent.system import waits
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple

_PORTS = {"http": 80, "https": 443}
_SAFE = "/%:@!$&'()*+,;=~-._?"
_READ_SIZE = 16_384
_INTERIM_MOST = 32
"""Maximum number of responses with status 100 to 199 before the final response (RFC 9110 15.2)."""


Opener = Callable[[str, int], Awaitable[trio.SocketStream]]


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    """Headers with lower-case names. Lines of the same name are joined with commas."""
    body: bytes
    """Body of the response, cut off after `max_body` bytes."""


class RequestFailed(Exception):
    """Error: the request got no response. `reason` is a text for people, such as `connection
    refused`.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class ConnectFailed(RequestFailed):
    """Error: the connection failed, so no part of the request was sent."""


async def request(
    method: str,
    url: str,
    *,
    headers: tuple[tuple[str, str], ...] = (),
    body: bytes = b"",
    deadline: float,
    ssl_context: ssl.SSLContext | None = None,
    max_body: int = 65_536,
    open_stream: Opener = trio.open_tcp_stream,
    kept_connections: KeptConnections | None = None,
) -> Reply:
    """Send a request, and return its response, whatever its status is, within `deadline` seconds in
    total.

    `user:password@` in the URL becomes Basic authentication. For https, the server's certificate is
    verified with the system's certificate authorities, or with `ssl_context`. `open_stream`
    connects to a host name and port; it may raise RequestFailed. Raises RequestFailed if there is
    no response.

    If `kept_connections` is not None, the connection of an earlier request is reused, and is kept
    for the next request. If the server closes a reused connection without a response, the request
    is sent again over a new connection. The server may have read the first request, so a repeat
    must be harmless.
    """
    url_parts = _split(url)
    try:
        head = h11.Request(
            method=method,
            target=_make_target(url_parts),
            headers=_make_headers(
                url_parts, headers, len(body), is_kept_alive=kept_connections is not None
            ),
        )
    except (h11.LocalProtocolError, UnicodeEncodeError) as error:
        raise RequestFailed(f"a header cannot be sent: {error}") from None
    with _convert_errors(), waits.move_on_after(deadline):
        earlier = (
            kept_connections.pop_connection(_find_server(url_parts))
            if kept_connections is not None
            else None
        )
        if earlier is not None:
            with suppress(_NoAnswer):
                return await _exchange(earlier, head, body, max_body, url_parts, kept_connections)
        try:
            with _convert_errors():
                connection = await _connect(url_parts, ssl_context, open_stream)
        except RequestFailed as failure:
            raise ConnectFailed(failure.reason) from failure
        return await _exchange(connection, head, body, max_body, url_parts, kept_connections)
    raise RequestFailed(f"no answer within {deadline:g} s")


class _NoAnswer(RequestFailed):
    """Error: the server closed the connection without any response."""


_CONNECTION_BROKEN_REASON = "the connection was broken off before the answer"


@dataclass(slots=True)
class _ClientConnection:
    transport: trio.SocketStream
    stream: trio.abc.Stream
    """The transport itself, or TLS over it."""
    protocol: h11.Connection = field(default_factory=lambda: h11.Connection(h11.CLIENT))
    used: bool = False
    """True if a request was already answered on this connection."""
    idle_since: float = 0.0

    def is_alive(self) -> bool:
        """Return True if the connection can be reused. A readable connection cannot be reused,
        because the server has closed it, or has sent data without a request.
        """
        look = select.poll()
        look.register(self.transport.socket.fileno(), select.POLLIN)
        return not look.poll(0)

    def drop(self) -> None:
        """Close the connection without a TLS goodbye."""
        self.transport.socket.close()


Server = tuple[str, str, int]
"""Scheme, host and port."""


@dataclass(slots=True)
class KeptConnections:
    """Open connections for later requests, by server. The owner calls `close` at the end."""

    _idle: dict[Server, list[_ClientConnection]] = field(default_factory=dict)

    def pop_connection(self, server: Server) -> _ClientConnection | None:
        """Remove and return the connection that was used last and can still be used. Return None if
        there is none. A router may have forgotten a connection that was unused for more than
        IDLE_TIMEOUT_S seconds.
        """
        oldest_use = trio.current_time() - IDLE_TIMEOUT_S
        waiting = self._idle.get(server, [])
        while waiting:
            latest = waiting.pop()
            if latest.is_alive() and latest.idle_since >= oldest_use:
                return latest
            latest.drop()
        return None

    def store_connection(self, server: Server, connection: _ClientConnection) -> None:
        """Keep a connection for a later request. Also close the connections to all servers that
        have been unused for more than IDLE_TIMEOUT_S seconds.
        """
        now = connection.idle_since = trio.current_time()
        self._idle.setdefault(server, []).append(connection)
        for other, waiting in [*self._idle.items()]:
            while waiting and now - waiting[0].idle_since > IDLE_TIMEOUT_S:
                waiting.pop(0).drop()
            if not waiting:
                del self._idle[other]

    def close(self) -> None:
        """Close all kept connections without a TLS goodbye."""
        for waiting in self._idle.values():
            for each in waiting:
                each.drop()
        self._idle.clear()


IDLE_TIMEOUT_S = 30.0
"""Seconds without use after which a connection is not used again. It is closed when the next
connection is requested or stored."""
_REST_MOST, _REST_WAIT = 65_536, 1.0
"""Maximum bytes, and maximum seconds, for reading the unwanted rest of a response, so that the
connection can be kept."""


def _find_server(url: SplitResult) -> Server:
    return url.scheme, _encode_host(url), url.port or _PORTS[url.scheme]


def _split(url: str) -> SplitResult:
    try:
        url_parts = urlsplit(url)
        well_formed = url_parts.scheme in _PORTS and url_parts.hostname and url_parts.port != 0
    except ValueError:
        well_formed = False
    if not well_formed or any(character <= " " for character in url):
        raise RequestFailed(f"{url!r} is not a URL: it must be http:// or https:// and a host name")
    return url_parts


def _make_target(url: SplitResult) -> str:
    return quote((url.path or "/") + (f"?{url.query}" if url.query else ""), safe=_SAFE)


def _encode_host(url: SplitResult) -> str:
    """Return the host name in its encoded form (RFC 3490)."""
    try:
        return (url.hostname or "").encode("idna").decode("ascii")
    except UnicodeError:
        raise RequestFailed(f"{url.hostname!r} is not a host name") from None


def _make_headers(
    url: SplitResult, extra: tuple[tuple[str, str], ...], length: int, *, is_kept_alive: bool
) -> list[tuple[str, str]]:
    host = _encode_host(url)
    authority = f"[{host}]" if ":" in host else host
    if url.port is not None:
        authority += f":{url.port}"
    headers = [("Host", authority), ("Content-Length", str(length))]
    if not is_kept_alive:
        headers.append(("Connection", "close"))
    if url.username is not None:
        secret = f"{unquote(url.username)}:{unquote(url.password or '')}".encode()
        headers.append(("Authorization", f"Basic {base64.b64encode(secret).decode()}"))
    return headers + list(extra)


async def _connect(
    url: SplitResult, ssl_context: ssl.SSLContext | None, open_stream: Opener
) -> _ClientConnection:
    host = _encode_host(url)
    stream = await open_stream(host, url.port or _PORTS[url.scheme])
    if url.scheme == "http":
        return _ClientConnection(stream, stream)
    return _ClientConnection(
        stream, await make_secure(stream, ssl_context or _load_system_trust(), host)
    )


@cache
def _load_system_trust() -> ssl.SSLContext:
    """Return a TLS context that trusts the system's certificate authorities. The context is loaded
    once and only for https, because loading costs time and memory.
    """
    return tls.trust(None)


async def _exchange(
    connection: _ClientConnection,
    head: h11.Request,
    body: bytes,
    max_body: int,
    url: SplitResult,
    kept_connections: KeptConnections | None,
) -> Reply:
    """Send the request and return its response. Raises _NoAnswer if the server closed the
    connection instead.
    """
    stream, protocol, keeps = connection.stream, connection.protocol, False
    try:
        data = (protocol.send(head) or b"") + (protocol.send(h11.Data(data=body)) or b"")
        protocol.send(h11.EndOfMessage())
        with suppress(trio.BrokenResourceError):
            await stream.send_all(data)
        reply = await _read_reply(connection, max_body)
        keeps = kept_connections is not None and await _is_read_whole(stream, protocol)
        return reply
    finally:
        if keeps and kept_connections is not None:
            protocol.start_next_cycle()
            connection.used = True
            kept_connections.store_connection(_find_server(url), connection)
        else:
            await trio.aclose_forcefully(stream)


async def _read_reply(connection: _ClientConnection, max_body: int) -> Reply:
    stream, protocol = connection.stream, connection.protocol
    status, headers, body, interim = 0, {}, bytearray(), 0
    is_silent = True
    # If no body is wanted, the head is the whole response, so ignore later errors of the server.
    while not status or len(body) < max_body:
        event = protocol.next_event()
        if event is h11.NEED_DATA:
            try:
                data = bytes(await stream.receive_some(_READ_SIZE))
            except trio.BrokenResourceError:
                if is_silent and connection.used:
                    raise _NoAnswer(_CONNECTION_BROKEN_REASON) from None
                raise
            if is_silent and not data:
                raise _NoAnswer(_CONNECTION_BROKEN_REASON)
            is_silent = False
            protocol.receive_data(data)
        elif isinstance(event, h11.Response):
            status, headers = event.status_code, _join_headers(event)
        elif isinstance(event, h11.Data):
            body += event.data
        elif not isinstance(event, h11.InformationalResponse):
            break
        elif (interim := interim + 1) > _INTERIM_MOST:
            raise RequestFailed(f"more than {_INTERIM_MOST} interim answers, and no final one")
    return Reply(status, headers, bytes(body[:max_body]))


async def _is_read_whole(stream: trio.abc.Stream, protocol: h11.Connection) -> bool:
    """Read the rest of a response, at most `_REST_MOST` bytes in `_REST_WAIT` seconds, so that the
    connection can be reused. Return True if the response is complete.
    """
    bytes_left = _REST_MOST
    with (
        suppress(trio.BrokenResourceError, h11.RemoteProtocolError),
        trio.move_on_after(_REST_WAIT),
    ):
        while bytes_left > 0 and protocol.their_state is h11.SEND_BODY:
            event = protocol.next_event()
            if event is h11.NEED_DATA:
                protocol.receive_data(bytes(await stream.receive_some(_READ_SIZE)))
            elif isinstance(event, h11.Data):
                bytes_left -= len(event.data)
        return protocol.their_state is h11.DONE and protocol.our_state is h11.DONE
    return False


def _join_headers(response: h11.Response) -> dict[str, str]:
    headers: dict[str, str] = {}
    for raw_name, raw_value in response.headers:
        name, value = raw_name.decode("ascii"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


@contextmanager
def _convert_errors() -> Iterator[None]:
    try:
        yield
    except socket.gaierror as error:
        raise RequestFailed(f"name not found: {error.strerror}") from error
    except OSError as error:
        raise RequestFailed(_describe_reason(error)) from error
    except trio.BrokenResourceError as error:
        raise RequestFailed(
            tls.describe_fault(error.__cause__) or _CONNECTION_BROKEN_REASON
        ) from error
    except h11.RemoteProtocolError as error:
        reason = describe_parser_error(error)
        raise RequestFailed(f"the answer is not HTTP or was cut short: {reason}") from error


def _describe_reason(error: OSError) -> str:
    """Return the cause of an error. trio tries each address of a name, and attaches the errors of
    the attempts to its own error.
    """
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    if isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
    if isinstance(cause, OSError) and cause.errno:
        return os.strerror(cause.errno).lower()
    return str(error)
