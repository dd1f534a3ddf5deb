"""`GET /api/signals`: signal of each link since the agent started, for a plot."""

from __future__ import annotations

import trio

from fieldagent.agent.assembly import Parts
from fieldagent.http.message import Request, Response, make_json_response


async def answer_signals(parts: Parts, request: Request) -> Response:
    """Answer with each channel's signal over time, in Unix time. Each value is valid until the
    next, the last one until now.
    """
    clock = parts.journal.clock
    # Difference of Unix time to trio's clock.
    ahead = clock.date(clock.now()) - trio.current_time()
    return make_json_response(
        {
            channel: [{"at": at + ahead, "signal": bars} for at, bars in outbox.link.signals]
            for channel, outbox in parts.outboxes.items()
        }
    )
