"""Third-party clients: the standard library's, curl, slowhttptest, and noise."""

from __future__ import annotations

import http.client
import json
import re
from functools import partial

import h11
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from fieldagent.http.limits import Limits
from fieldagent.http.message import Request, Response
from fieldagent.http.problem import Problem
from fieldagent.http.protocol import ChunkedBody
from tests.http.serving import HOST, JSON, Requests, serving
from tests.machine import tool


async def test_standard_library_client_reuses_its_connection() -> None:
    def talk(port: int) -> list[tuple[int, int]]:
        connection = http.client.HTTPConnection("localhost", port, timeout=10)
        answers = []
        for method, path, body in [
            ("GET", "/", None),
            ("HEAD", "/", None),
            ("POST", "/echo", b"[" + b"1," * 100_000 + b"1]"),
            ("POST", "/echo", iter([b"[1,", b"2]"])),
            ("GET", "/nowhere", None),
            ("DELETE", "/named/x", None),
        ]:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            answers.append((response.status, len(response.read())))
            assert connection.sock is not None
        connection.close()
        return answers

    async with serving() as server:
        answers = await trio.to_thread.run_sync(talk, server.port)
    assert [status for status, _ in answers] == [200, 200, 200, 200, 404, 200]
    assert [size > 0 for _, size in answers] == [True, False, True, True, True, True]


@pytest.mark.parametrize(
    ("options", "written"),
    [
        (["/"], "200"),
        (["-I", "/"], "200"),
        (["-X", "OPTIONS", "/echo"], "204"),
        (["--json", "[1]", "/echo"], "200"),
        (["-d", "[1]", "/echo"], "415"),
        (["-X", "POST", "/echo"], "411"),
        (["--json", "[1]", "-H", "Expect: 100-continue", "/echo"], "200"),
        (["--json", "[1]", "-H", "Transfer-Encoding: chunked", "/echo"], "200"),
        (["--http1.0", "/"], "200"),
        (["--http2-prior-knowledge", "/"], "000"),
        (["-H", "Host: evil.example", "/"], "403"),
        (["/", "/", "/nowhere"], "200200404"),
    ],
)
async def test_curl_requests_get_the_expected_status(options: list[str], written: str) -> None:
    async with serving() as server:
        base = f"http://localhost:{server.port}"
        arguments = [f"{base}{word}" if word.startswith("/") else word for word in options]
        shown = [word for url in options if url.startswith("/") for word in ("-o", "/dev/null")]
        command = [tool("curl", "curl"), "-s", "-m", "20", "-w", "%{http_code}", *shown, *arguments]
        process = await trio.run_process(command, capture_stdout=True, check=False)
    assert process.stdout.decode() == written


@pytest.mark.full
@pytest.mark.parametrize("attack", ["-H", "-B", "-X"])
async def test_slowhttptest_does_not_starve_other_clients(attack: str) -> None:
    limits = Limits(connections=32, head_deadline=3, body_deadline=3, write_deadline=3)
    async with serving(limits=limits) as server, trio.open_nursery() as nursery:
        url = f"http://localhost:{server.port}/"
        command = [
            tool("slowhttptest", "slowhttptest"),
            attack,
            "-c",
            "200",
            "-r",
            "200",
            "-l",
            "5",
            "-i",
            "1",
            "-u",
            url,
        ]
        nursery.start_soon(partial(trio.run_process, command, capture_stdout=True, check=False))
        for _ in range(20):
            await trio.sleep(0.2)
            async with server.client() as honest:
                assert await honest.is_served()


VALID = [
    b"GET / HTTP/1.1\r\n" + HOST + b"\r\n",
    b"POST /echo HTTP/1.1\r\n" + HOST + JSON + b"Content-Length: 2\r\n\r\n{}",
    b"POST /echo HTTP/1.1\r\n" + HOST + JSON + b"Transfer-Encoding: chunked\r\n\r\n",
    b"2\r\n{}\r\n0\r\n\r\n",
]
TOKENS = [b"\r\n", b"\n", b" ", b"\t", b"\0", b"\xff", b":", b"GET", b"HTTP/1.1", b"%", b"10", b"g"]


@st.composite
def mutated_requests(draw: st.DrawFn) -> bytes:
    data = bytearray(b"".join(draw(st.lists(st.sampled_from(VALID), min_size=1, max_size=3))))
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.integers(0, len(data)))
        data[place : place + draw(st.integers(0, 6))] = draw(st.sampled_from(TOKENS))
    return bytes(data)


NOISE = (
    st.binary(max_size=400) | st.lists(st.sampled_from(TOKENS)).map(b"".join) | mutated_requests()
)


@given(NOISE)
@settings(max_examples=150, deadline=None)
def test_random_bytes_are_refused_and_the_next_client_is_served(noise: bytes) -> None:
    async def check() -> None:
        async with serving() as server:
            async with server.client() as client:
                await client.send(noise)
                await client.stream.send_eof()
                answers = await client.rest()
            assert answers == b"" or re.match(rb"HTTP/1\.1 [1-5]\d\d ", answers)
            async with server.client() as honest:
                assert await honest.is_served()

    trio.run(check)


def read_all(pieces: list[bytes]) -> list[tuple[str, str, bytes]] | int:
    """Return the requests in `pieces`, or the status of the refusal that ends them."""
    requests = Requests(Limits())
    protocol = requests.protocol
    all_requests = []
    try:
        for piece in pieces:
            protocol.receive(piece)
            while isinstance(request := requests.next(), Request):
                all_requests.append((request.method, request.path, request.body))
                protocol.respond(Response(204), date=b"x", close=False, head_only=False)
                if not protocol.start_next_cycle():
                    return all_requests
    except Problem as problem:
        assert 400 <= problem.status < 600
        return problem.status
    return all_requests


@given(mutated_requests(), st.lists(st.integers(0, 400), max_size=4))
def test_random_bytes_are_parsed_alike_in_any_segmentation(data: bytes, cuts: list[int]) -> None:
    places = sorted({0, *(cut for cut in cuts if cut < len(data))})
    ends = [*places[1:], len(data)]
    pieces = [data[a:b] for a, b in zip(places, ends, strict=True) if b > a]
    whole = read_all([data])
    parts = read_all(pieces)
    assert type(whole) is type(parts)
    if isinstance(whole, list):
        assert whole == parts


def read_with_h11(data: bytes) -> tuple[bytes, bytes] | None:
    """Return body and remainder as h11 reads them, or None if it needs more or refuses."""
    peer = h11.Connection(h11.SERVER)
    peer.receive_data(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + data)
    body = b""
    try:
        while not isinstance(event := peer.next_event(), h11.EndOfMessage):
            if event is h11.NEED_DATA:
                return None
            body += event.data if isinstance(event, h11.Data) else b""
    except h11.RemoteProtocolError:
        return None
    return body, peer.trailing_data[0]


CHUNKS = st.lists(st.binary(min_size=1, max_size=20), max_size=5)


@given(CHUNKS, st.sampled_from([b"", b";a=b", b';c="d"']), st.sampled_from([b"", b"X: y\r\n"]))
def test_chunked_body_is_read_as_by_h11(
    chunks: list[bytes], extension: bytes, trailers: bytes
) -> None:
    lines = [b"%x%s\r\n%s\r\n" % (len(chunk), extension, chunk) for chunk in chunks]
    data = b"".join(lines) + b"0\r\n" + trailers + b"\r\nGET"
    buffer, reader = bytearray(data), ChunkedBody(Limits(), 2**20)
    assert reader.consume_chunks(buffer)
    assert (
        (bytes(reader.content), bytes(buffer)) == read_with_h11(data) == (b"".join(chunks), b"GET")
    )


@given(mutated_requests().map(lambda data: data.partition(b"\r\n\r\n")[2]))
def test_chunked_body_never_ends_earlier_than_in_h11(data: bytes) -> None:
    buffer, reader = bytearray(data), ChunkedBody(Limits(), 2**20)
    try:
        complete = reader.consume_chunks(buffer)
    except Problem:
        return
    assert not complete or (bytes(reader.content), bytes(buffer)) == read_with_h11(data)


async def test_json_responses_are_readable_utf_8() -> None:
    async with serving() as server, server.client() as client:
        await client.send(b"GET /?a=%C3%A9 HTTP/1.1\r\n" + HOST + b"\r\n")
        _, body = await client.answer()
        assert body == '{"hello":{"a":"é"}}\n'.encode()
        assert json.loads(body) == {"hello": {"a": "é"}}
