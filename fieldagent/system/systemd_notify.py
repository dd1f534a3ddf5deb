"""Notifies systemd that the agent is ready, alive or stopping, as sd_notify(3) does. The library is
not needed.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import MutableMapping

log = logging.getLogger(__name__)


def notify(state: str, environ: MutableMapping[str, str] = os.environ) -> bool:
    """Send systemd one line, such as `READY=1`. Return False if systemd did not start this program,
    or does not run.
    """
    address = environ.get("NOTIFY_SOCKET", "")
    if address[:1] not in ("/", "@"):
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as peer:
        try:
            peer.sendto(state.encode(), address.replace("@", "\0", 1))
        except OSError as error:
            log.error("cannot notify systemd of %s: %s", state, error.strerror)
            return False
    return True


def get_watchdog_interval(environ: MutableMapping[str, str] = os.environ) -> float | None:
    """Return the longest time in seconds that systemd allows between two notifications that the
    program is alive, or None if systemd expects none.
    """
    if environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    microseconds = environ.get("WATCHDOG_USEC", "")
    return int(microseconds) / 1e6 if microseconds.isdecimal() and int(microseconds) else None
