"""Bounds of a time that a clock may show. A receiver, a modem or a hub that reports another is
wrong."""

from __future__ import annotations

EARLIEST = 1_767_225_600.0
"""1 January 2026, when none of this was released, in Unix time."""
ROLLOVER = 1024 * 7 * 86_400.0
"""Seconds after which the week number of GPS begins again at 0 (IS-GPS-200, 20.3.3.3.1.1). A
receiver with the wrong cycle is off by as much."""
LATEST = EARLIEST + ROLLOVER
"""17 August 2045."""
