"""`GET /api/signals`: how the signal of each link was since the agent began, for a plot."""

from __future__ import annotations

import trio

from fieldagent.agent.assembly import Parts
from fieldagent.http.message import Request, Response, json_response


async def signals(parts: Parts, request: Request) -> Response:
    """Answer each channel's signal over time, dated in Unix time: each value stands until the next,
    the last until now."""
    clock = parts.journal.clock
    # Unix time, of trio's.
    ahead = clock.date(clock.now()) - trio.current_time()
    return json_response(
        {
            channel: [{"at": at + ahead, "signal": bars} for at, bars in outbox.link.signals]
            for channel, outbox in parts.outboxes.items()
        }
    )
