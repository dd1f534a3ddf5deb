"""Limits of a plausible time. A receiver, modem or hub that reports a time outside these limits is
wrong.
"""

from __future__ import annotations

EARLIEST_TIME = 1_767_225_600.0
"""Unix time of 1 January 2026, before the first release."""
ROLLOVER_S = 1024 * 7 * 86_400.0
"""Seconds after which the week number of GPS restarts at 0 (IS-GPS-200, 20.3.3.3.1.1). A receiver
that assumes the wrong cycle reports a time that is wrong by this amount."""
LATEST_TIME = EARLIEST_TIME + ROLLOVER_S
"""Unix time of 17 August 2045."""
