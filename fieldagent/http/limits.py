"""Limits of the resources that one peer may use: sizes, times and numbers."""

from __future__ import annotations

from fieldagent.http.address import Network
from fieldagent.http.pace import CpuPace
from fieldagent.system.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a server for its peers. Sizes are in bytes, times in seconds. A deadline applies to
    its whole phase, not to each read.
    """

    head: int = 16_384
    target: int = 8_000
    """Bytes of a request target. RFC 9112 3 requires at least 8000 for a request line."""
    chunk_framing: int = 32_768
    """Bytes of the size lines, extensions and trailers of one chunked body. This number is limited
    because tiny chunks cost time to parse."""
    head_deadline: float = 10.0
    body_deadline: float = 30.0
    idle_deadline: float = 60.0
    write_deadline: float = 30.0
    """Deadline of one response, or of one part of a stream, in seconds."""
    linger_s: float = 2.0
    """Seconds for a refused peer to read the reason before the connection is reset."""
    connections: int = 128
    leaving_max: int = 512
    """Maximum number of connections, in addition to `connections`, that stay open until they have
    sent the response that there is no capacity."""
    per_source: int | None = None
    """Maximum number of connections of one source (see `address`). Upgraded connections do not
    count."""
    proxies: tuple[Network, ...] = ()
    """Networks whose addresses are shared by many people, so that `per_source` does not apply."""
    pace: CpuPace | None = None
    """CPU limit per caller. None if all callers are trusted."""
    bodies: int = 16_777_216
    """Maximum total of bytes of all request bodies that are held at the same time."""
    grace: float = 10.0
    """Seconds for active requests when the server stops."""
