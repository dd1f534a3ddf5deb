"""How much, how long and how many: what one peer may cost the server."""

from __future__ import annotations

from fieldagent.http.address import Network
from fieldagent.http.pace import CpuPace
from fieldagent.system.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes, times in seconds. A deadline bounds its whole phase, not each read."""

    head: int = 16_384
    target: int = 8_000
    """RFC 9112 3 asks for at least 8000 in a request line."""
    chunk_framing: int = 32_768
    """Size lines, extensions and trailers of one chunked body: tiny chunks cost time to read."""
    head_deadline: float = 10.0
    body_deadline: float = 30.0
    idle_deadline: float = 60.0
    write_deadline: float = 30.0
    """For one response, or one piece of a stream."""
    linger: float = 2.0
    """How long a refused peer may take to read why before the connection is reset."""
    connections: int = 128
    leaving: int = 512
    """Connections beside those for which there is no room, and which are told so."""
    per_source: int | None = None
    """Connections of one source, see `address`; what has been upgraded does not count."""
    proxies: tuple[Network, ...] = ()
    """Networks whose addresses stand for many people: `per_source` is not for them."""
    pace: CpuPace | None = None
    """What each caller may take of the processor; None where nobody is a stranger."""
    bodies: int = 16_777_216
    """Bytes of bodies that are held at one moment."""
    grace: float = 10.0
    """For requests in progress when the server stops."""
