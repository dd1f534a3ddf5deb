"""The supported preference of RFC 7240: the maximum wait of the caller."""

from __future__ import annotations

import pytest
import trio

from fieldagent.http.message import Request, Response, make_json_response
from fieldagent.http.routes import read_preferred_wait
from tests.http.loop_lag import FREEZE, LongestStep
from tests.http.serving import HOST, serving


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("wait=5", 5),
        ('respond-async, Wait = "7"; a=1, wait=9', 7),
        ('a="x, wait=3", wait=4', 4),
        ('wait=1;a="x,y",b', 1),
        ("wait=-1, wait=1e3, wait=², wait=2", 2),
        ('a="x, wait=3', None),
        ("wait", None),
        ("", None),
    ],
)
def test_first_valid_wait_preference_is_used(said: str, seconds: int | None) -> None:
    assert read_preferred_wait({"prefer": said}) == seconds


async def answer_with_wait(request: Request) -> Response:
    return make_json_response({"wait": read_preferred_wait(request.headers)})


@pytest.mark.parametrize(
    "said",
    [b"," * 15_500, b'",' * 7_750, b"," * 7_700 + b'""' * 3_800 + b'"', b"wait" + b" " * 15_500],
)
async def test_long_prefer_header_does_not_delay_others(said: bytes) -> None:
    async with serving(answer_with_wait) as server, server.client() as client:
        steps = LongestStep()
        trio.lowlevel.add_instrument(steps)
        await client.send(b"GET / HTTP/1.1\r\n" + HOST + b"Prefer: " + said + b"\r\n\r\n")
        response, _ = await client.answer()
        trio.lowlevel.remove_instrument(steps)
        assert response.status_code == 200
        assert steps.seconds < FREEZE, steps.task
