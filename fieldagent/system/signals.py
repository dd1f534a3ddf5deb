"""How a program is asked to stop."""

from __future__ import annotations

import signal

import trio


async def stop_at_signal(stopping: trio.Event) -> None:
    """Set the event at SIGTERM or SIGINT; run until cancelled."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            stopping.set()
