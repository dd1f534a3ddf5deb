"""One raw request each, with the section that defines it, the expected status, and whether the
connection closes afterwards. The names follow Http11Probe if it has the case.
"""

from __future__ import annotations

import json

import pytest

from fieldagent.http.guard import check_host
from tests.http.serving import HOST, JSON, header, serving

GET = b"GET / HTTP/1.1\r\n"
POST = b"POST /echo HTTP/1.1\r\n" + HOST
CHUNKED = POST + JSON + b"Transfer-Encoding: chunked\r\n\r\n"
LARGE = b"Content-Length: 1048577\r\n"

KEPT = [
    ("9110-9.3.8 trace", b"TRACE / HTTP/1.1\r\n" + HOST + b"\r\n", 405),
    ("9110-9.3.1 get", GET + HOST + b"\r\n", 200),
    ("9112-2.2 leading CRLF", b"\r\n\r\n" + GET + HOST + b"\r\n", 200),
    ("9112-5.1 empty value", GET + HOST + b"X-Empty:\r\n\r\n", 200),
    ("9112-5.1 no space after colon", GET + b"Host:localhost:PORT\r\n\r\n", 200),
    ("9110-5.1 name in any case", GET + b"hOST: localhost:PORT\r\n\r\n", 200),
    ("9110-5.5 bytes above ASCII", GET + HOST + b"X-Name: \xc3\xa9\r\n\r\n", 200),
    ("3986-3.4 query", b"GET /?a=%20b&c=d+e HTTP/1.1\r\n" + HOST + b"\r\n", 200),
    ("9110-9.3.7 options", b"OPTIONS /echo HTTP/1.1\r\n" + HOST + b"\r\n", 204),
    ("9112-3.2.4 asterisk", b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n", 204),
    ("9110-15.5.5 not found", b"GET /nowhere HTTP/1.1\r\n" + HOST + b"\r\n", 404),
    ("9110-15.5.6 method", b"GET /echo HTTP/1.1\r\n" + HOST + b"\r\n", 405),
    ("9112-6.2 length", POST + JSON + b"Content-Length: 2\r\n\r\n{}", 200),
    ("9112-6.2 leading zeros", POST + JSON + b"Content-Length: 002\r\n\r\n{}", 200),
    ("9110-15.5.12 length required", POST + JSON + b"\r\n", 411),
    ("empty body", POST + JSON + b"Content-Length: 0\r\n\r\n", 400),
    ("9112-7.1 chunked", CHUNKED + b"2\r\n{}\r\n0\r\n\r\n", 200),
    ("9112-7.1 upper-case size", CHUNKED + b"A\r\n{        }\r\n0\r\n\r\n", 200),
    ("9112-7.1 size with zeros", CHUNKED + b"0002\r\n{}\r\n000\r\n\r\n", 200),
    ("9112-7.1.1 extension", CHUNKED + b'2;a=b;c="d"\r\n{}\r\n0;e\r\n\r\n', 200),
    ("9112-7.1.1 blanks around", CHUNKED + b'2 ;\ta = "\\"" ; b\r\n{}\r\n0\r\n\r\n', 200),
    ("9112-3.2.2 absolute, ours", b"GET http://localhost:PORT/ HTTP/1.1\r\n" + HOST + b"\r\n", 200),
    ("9112-3.2.2 bare", b"GET HTTP://LOCALHOST:PORT HTTP/1.1\r\n" + HOST + b"\r\n", 200),
    ("9112-3.2.2 query", b"GET http://localhost:PORT?a=b HTTP/1.1\r\n" + HOST + b"\r\n", 200),
    (
        "9112-3.2.2 path",
        b"GET http://localhost:PORT/named/a?b HTTP/1.1\r\n" + HOST + b"\r\n",
        200,
    ),
    ("9112-3.2.4 all", b"OPTIONS http://localhost:PORT HTTP/1.1\r\n" + HOST + b"\r\n", 204),
    ("9112-7.1.2 trailers", CHUNKED + b"2\r\n{}\r\n0\r\nX-Sum: 1\r\n\r\n", 200),
    (
        "9112-7 coding in any case",
        POST + JSON + b"transfer-encoding: Chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    (
        "9110-8.3.1 charset",
        POST + b"Content-Type: application/JSON; charset=UTF-8\r\nContent-Length: 2\r\n\r\n{}",
        200,
    ),
    (
        "9110-8.4 identity",
        POST + JSON + b"Content-Encoding: identity\r\nContent-Length: 2\r\n\r\n{}",
        200,
    ),
    ("get with a body", GET + HOST + JSON + b"Content-Length: 2\r\n\r\n{}", 200),
    ("upgrade is not taken", GET + HOST + b"Connection: upgrade\r\nUpgrade: h2c\r\n\r\n", 200),
    ("2.1 escape cut short", b"GET /named/%2 HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    ("2.1 escape of no hex", b"GET /named/%zz HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    ("2.1 escape of no UTF-8", b"GET /named/%c0%af HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    ("2.1 escape of NUL", b"GET /named/%00 HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    ("a handler fails", b"GET /broken HTTP/1.1\r\n" + HOST + b"\r\n", 500),
    ("loopback address", GET + b"Host: 127.0.0.1:PORT\r\n\r\n", 200),
    ("loopback address, version 6", GET + b"Host: [::1]:PORT\r\n\r\n", 200),
    ("behind ssh -L", GET + b"Host: localhost:8000\r\n\r\n", 200),
    ("behind ssh -L, by address", GET + b"Host: 127.0.0.1:1\r\n\r\n", 200),
    ("behind ssh -L, by default port", GET + b"Host: localhost\r\n\r\n", 200),
    (
        "own origin behind ssh -L",
        GET + b"Host: localhost:8000\r\nOrigin: http://localhost:8000\r\n\r\n",
        200,
    ),
    (
        "own origin by default port",
        GET + b"Host: localhost\r\nOrigin: http://localhost\r\n\r\n",
        200,
    ),
    ("own origin", GET + HOST + b"Origin: http://localhost:PORT\r\n\r\n", 200),
    ("own page", GET + HOST + b"Sec-Fetch-Site: same-origin\r\n\r\n", 200),
    ("typed address", GET + HOST + b"Sec-Fetch-Site: none\r\n\r\n", 200),
]

CLOSED = [
    ("9112-9.6 close asked", GET + HOST + b"Connection: close\r\n\r\n", 200),
    ("9112-9.3 HTTP/1.0", b"GET / HTTP/1.0\r\n" + HOST + b"\r\n", 200),
    (
        "9110-10.1.1 expectation of 1.0",
        b"GET / HTTP/1.0\r\n" + HOST + b"Expect: 100-continue\r\n\r\n",
        200,
    ),
    # The request line, RFC 9112 section 3
    ("9112-2.2 endless CRLF", b"\r\n" * 9 + GET + HOST + b"\r\n", 400),
    ("9112-2.2 bare LF", b"GET / HTTP/1.1\nHost: localhost:PORT\n\n", 400),
    ("9112-2.2 bare LF in a header", GET + b"Host: localhost:PORT\nX: y\r\n\r\n", 400),
    ("9112-2.2 bare CR", GET + HOST + b"X: a\rb\r\n\r\n", 400),
    ("9112-3 two spaces", b"GET  / HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    ("9112-3 tab", b"GET\t/\tHTTP/1.1\r\n" + HOST + b"\r\n", 400),
    ("9112-3 trailing space", b"GET / HTTP/1.1 \r\n" + HOST + b"\r\n", 400),
    ("9112-3 no target", b"GET HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    ("9112-3 HTTP/0.9", b"GET /\r\n\r\n", 400),
    ("9112-3 space in target", b"GET /a b HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    ("9112-3 leading space", b" GET / HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    ("9112-3 NUL", b"GET /\0 HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    ("9112-3 TLS on the port", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    ("9112-3 method in brackets", b"G(T / HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    ("9112-3.1 unknown method", b"BREW / HTTP/1.1\r\n" + HOST + b"\r\n", 501),
    ("9112-3.1 lower-case method", b"get / HTTP/1.1\r\n" + HOST + b"\r\n", 501),
    ("9110-9.3.6 connect", b"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n", 501),
    ("9112-3.2 fragment", b"GET /#a HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    ("9112-3.2.2 absolute", b"GET http://evil/ HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    ("9112-3.2.2 user", b"GET http://a@localhost:PORT/ HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    ("9112-3.2.2 no authority", b"GET http:/// HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    ("9112-3.2.2 no authority, no Host", b"GET http:/// HTTP/1.0\r\n\r\n", 400),
    ("9112-3.2.2 other scheme", b"GET ftp://localhost:PORT/ HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    ("9112-3.2.2 fragment", b"GET http://localhost:PORT/#a HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    (
        "9112-3.2.2 another's, Host alike",
        b"GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        403,
    ),
    ("9112-3.2.3 authority", b"GET localhost HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    ("9112-3.2.4 asterisk with GET", b"GET * HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    ("3986-2.1 query escape", b"GET /?a=%f HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    ("9112-3 long target", b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 414),
    ("9112-3 long target, no end", b"GET /" + b"a" * 9_000, 414),
    ("9112-2.3 lower-case name", b"GET / http/1.1\r\n" + HOST + b"\r\n", 400),
    ("9112-2.3 HTTP/1.2", b"GET / HTTP/1.2\r\n" + HOST + b"\r\n", 505),
    ("9112-2.3 HTTP/2.0", b"GET / HTTP/2.0\r\n" + HOST + b"\r\n", 505),
    ("9112-2.3 HTTP/0.9 told", b"GET / HTTP/0.9\r\n" + HOST + b"\r\n", 505),
    ("9112-2.3 HTTP/1.10", b"GET / HTTP/1.10\r\n" + HOST + b"\r\n", 400),
    ("9113-3.4 preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    # Header lines, RFC 9112 section 5
    ("9112-5.1 space before colon", GET + HOST + b"X : y\r\n\r\n", 400),
    ("9112-5.1 no colon", GET + HOST + b"nonsense\r\n\r\n", 400),
    ("9112-5.1 no name", GET + HOST + b": y\r\n\r\n", 400),
    ("9112-5.2 fold", GET + HOST + b"X: y\r\n z\r\n\r\n", 400),
    ("9112-5.2 fold before any", GET + b" Host: localhost:PORT\r\n\r\n", 400),
    ("9110-5.5 NUL in a value", GET + HOST + b"X: a\0b\r\n\r\n", 400),
    ("9110-5.6.2 name of no token", GET + HOST + b"X(y): z\r\n\r\n", 400),
    ("9112-3.2 no Host", GET + b"\r\n", 400),
    ("9112-3.2 two Hosts", GET + HOST + HOST + b"\r\n", 400),
    ("6585-5 large head", GET + HOST + b"X: " + b"a" * 17_000 + b"\r\n\r\n", 431),
    ("6585-5 many lines", GET + HOST + b"X: y\r\n" * 4_000, 431),
    # Framing, RFC 9112 sections 6 and 7
    (
        "9112-6.1 length and coding",
        POST + JSON + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    (
        "9112-6.1 coding and length",
        POST + JSON + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        400,
    ),
    (
        "9112-6.1 coding in HTTP/1.0",
        b"POST /echo HTTP/1.0\r\n" + HOST + JSON + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    (
        "9112-6.1 unknown coding",
        POST + JSON + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        501,
    ),
    (
        "9112-6.1 chunked twice",
        POST + JSON + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        501,
    ),
    (
        "9112-6.1 coding of no token",
        POST + JSON + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    (
        "9112-6.3 unequal lengths",
        POST + JSON + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        400,
    ),
    (
        "9112-6.3 equal lengths",
        POST + JSON + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
        400,
    ),
    ("9112-6.3 list of lengths", POST + JSON + b"Content-Length: 2, 2\r\n\r\n{}", 400),
    ("9112-6.3 signed length", POST + JSON + b"Content-Length: +2\r\n\r\n{}", 400),
    ("9112-6.3 negative length", POST + JSON + b"Content-Length: -2\r\n\r\n{}", 400),
    ("9112-6.3 hexadecimal length", POST + JSON + b"Content-Length: 0x2\r\n\r\n{}", 400),
    ("9112-6.3 empty length", POST + JSON + b"Content-Length: \r\n\r\n{}", 400),
    ("9112-6.3 huge length", POST + JSON + b"Content-Length: 99999999999999999999999\r\n\r\n", 400),
    ("9112-7.1 size signed", CHUNKED + b"+2\r\n{}\r\n0\r\n\r\n", 400),
    ("9112-7.1 size 0x", CHUNKED + b"0x2\r\n{}\r\n0\r\n\r\n", 400),
    ("9112-7.1 size with underscore", CHUNKED + b"1_0\r\n{}\r\n0\r\n\r\n", 400),
    ("9112-7.1 size empty", CHUNKED + b"\r\n{}\r\n0\r\n\r\n", 400),
    ("9112-7.1 size then space", CHUNKED + b"2 \r\n{}\r\n0\r\n\r\n", 400),
    ("9112-7.1 size ended by LF", CHUNKED + b"2\n{}\r\n0\r\n\r\n", 400),
    ("9112-7.1 chunk ended by LF", CHUNKED + b"2\r\n{}\n0\r\n\r\n\r\n", 400),
    ("9112-7.1 chunk longer than told", CHUNKED + b"1\r\n{}\r\n0\r\n\r\n", 400),
    ("9112-7.1.1 bare CR in extension", CHUNKED + b"2;a\rb\r\n{}\r\n0\r\n\r\n", 400),
    ("9112-7.1.1 extension of nothing", CHUNKED + b"2;\r\n{}\r\n0\r\n\r\n", 400),
    ("9112-7.1.1 extension of no token", CHUNKED + b"2;bad[=x\r\n{}\r\n0\r\n\r\n", 400),
    ("9112-7.1.1 value of nothing", CHUNKED + b"2;a=\r\n{}\r\n0\r\n\r\n", 400),
    ("9112-7.1.1 quotes left open", CHUNKED + b'2;a="b\r\n{}\r\n0\r\n\r\n', 400),
    ("9112-7.1.1 escape left open", CHUNKED + b'2;a="b\\"\r\n{}\r\n0\r\n\r\n', 400),
    ("9112-7.1.1 on the last", CHUNKED + b"2\r\n{}\r\n0;\r\n\r\n", 400),
    ("9112-7.1.2 trailer ended by LF at once", CHUNKED + b"0\r\nX: y\n", 400),
    ("9112-7.1.2 no trailer at once", CHUNKED + b"0\r\n nonsense", 400),
    ("9112-7.1.2 end by LF at once", CHUNKED + b"0\r\n\n", 400),
    ("9112-7.1.2 CR alone at once", CHUNKED + b"0\r\n\rX", 400),
    ("9112-7.1.2 name of no token at once", CHUNKED + b"0\r\nX[", 400),
    ("9112-7.1.1 endless extension", CHUNKED + b"2;" + b"a" * 600, 400),
    ("9112-7.1.2 trailer ended by LF", CHUNKED + b"2\r\n{}\r\n0\r\nX: y\n\r\n\r\n", 400),
    ("9112-7.1.2 trailer folded", CHUNKED + b"2\r\n{}\r\n0\r\nX: y\r\n z\r\n\r\n", 400),
    ("9112-7.1.2 trailers without end", CHUNKED + b"0\r\n" + b"X: y\r\n" * 4_000, 431),
    ("9112-7.1 chunk over the limit", CHUNKED + b"100001\r\n", 413),
    ("9112-7.1 size of 17 digits", CHUNKED + b"10000000000000002\r\n", 413),
    (
        "9112-7.1 chunks over the limit",
        CHUNKED + b"80000\r\n" + b"a" * 0x80000 + b"\r\n80001\r\n",
        413,
    ),
    ("9112-7.1 tiny chunks", CHUNKED + b"1\r\na\r\n" * 20_000, 413),
    ("9110-15.5.14 body over the limit", POST + JSON + LARGE + b"\r\n", 413),
    # Content and expectations, RFC 9110
    ("9110-10.1.1 expectation", POST + JSON + b"Expect: bogus\r\nContent-Length: 2\r\n\r\n{}", 417),
    ("9110-15.5.16 no type", POST + b"Content-Length: 2\r\n\r\n{}", 415),
    ("9110-15.5.16 text", POST + b"Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}", 415),
    (
        "9110-15.5.16 form",
        POST + b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 2\r\n\r\n{}",
        415,
    ),
    (
        "9110-15.5.16 charset",
        POST + b"Content-Type: application/json; charset=latin1\r\nContent-Length: 2\r\n\r\n{}",
        415,
    ),
    ("9110-15.5.16 type twice", POST + JSON + JSON + b"Content-Length: 2\r\n\r\n{}", 415),
    ("9110-8.4 gzip", POST + JSON + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}", 415),
    # The loopback guard
    ("rebound name", GET + b"Host: evil.example:PORT\r\n\r\n", 403),
    ("name that begins well", GET + b"Host: 127.evil.com:PORT\r\n\r\n", 403),
    ("name that ends well", GET + b"Host: evil.localhost:PORT\r\n\r\n", 403),
    ("foreign name, other port", GET + b"Host: evil.example:8000\r\n\r\n", 403),
    ("port of no number", GET + b"Host: localhost:x\r\n\r\n", 403),
    ("port of six digits", GET + b"Host: localhost:800000\r\n\r\n", 403),
    ("other loopback address", GET + b"Host: 127.0.0.2:8000\r\n\r\n", 403),
    (
        "page of another port here",
        GET + HOST + b"Origin: http://localhost:8000\r\n\r\n",
        403,
    ),
    (
        "own port, from behind a tunnel",
        GET + b"Host: localhost:8000\r\nOrigin: http://localhost:PORT\r\n\r\n",
        403,
    ),
    (
        "foreign page behind a tunnel",
        GET + b"Host: localhost:8000\r\nSec-Fetch-Site: cross-site\r\n\r\n",
        403,
    ),
    ("user in Host", GET + b"Host: a@localhost:PORT\r\n\r\n", 403),
    ("empty Host", GET + b"Host:\r\n\r\n", 403),
    ("no Host in HTTP/1.0", b"GET / HTTP/1.0\r\n\r\n", 403),
    ("foreign origin", GET + HOST + b"Origin: http://evil.example\r\n\r\n", 403),
    ("opaque origin", GET + HOST + b"Origin: null\r\n\r\n", 403),
    ("origin without a scheme", GET + HOST + b"Origin: localhost:PORT\r\n\r\n", 403),
    ("origin of slashes", GET + HOST + b"Origin: //localhost:PORT\r\n\r\n", 403),
    ("origin of nothing", GET + HOST + b"Origin:\r\n\r\n", 403),
    ("origin of another name", GET + HOST + b"Origin: http://127.0.0.1:PORT\r\n\r\n", 403),
    ("origin of another scheme", GET + HOST + b"Origin: https://localhost:PORT\r\n\r\n", 403),
    ("origin twice", GET + HOST + b"Origin: http://localhost:PORT\r\n" * 2 + b"\r\n", 403),
    ("cross-site page", GET + HOST + b"Sec-Fetch-Site: cross-site\r\n\r\n", 403),
    ("same-site page", GET + HOST + b"Sec-Fetch-Site: same-site\r\n\r\n", 403),
    ("proxy", GET + HOST + b"X-Forwarded-For: 10.0.0.1\r\n\r\n", 403),
    ("proxy of RFC 7239", GET + HOST + b"Forwarded: for=10.0.0.1\r\n\r\n", 403),
]

CASES = [(*case, False) for case in KEPT] + [(*case, True) for case in CLOSED]


@pytest.mark.parametrize(
    ("raw", "status", "closes"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
async def test_raw_request_gets_the_specified_status_and_connection_state(
    raw: bytes, status: int, closes: bool
) -> None:
    async with serving() as server, server.client() as client:
        await client.send(raw)
        response, body = await client.answer()
        assert (response.status_code, body) == (status, body)
        assert header(response, "x-content-type-options") == "nosniff"
        assert header(response, "cache-control") == "no-store"
        assert (header(response, "connection") == "close") is closes
        if status >= 400:
            assert header(response, "content-type") == "application/problem+json"
            assert json.loads(body)["status"] == status
        if closes:
            assert await client.rest() == b""
        else:
            assert await client.is_served()


HOSTS = [
    ("hub.example", 200),
    ("hub.example:9443", 200),
    ("hub.example.", 200),
    ("198.51.100.7", 200),
    ("[2001:db8::1]:9443", 200),
    ("", 400),
    (":9443", 400),
    ("a@hub.example", 400),
    ("a:b@hub.example", 400),
    ("hub.example/path", 400),
    ("hub.example?query", 400),
    ("hub.example, other.example", 400),
    ("hub.example,other.example", 400),
    ("hub example", 400),
    ("hub.example:port", 400),
    ("2001:db8::1", 400),
    ("http://hub.example", 400),
    ("h\u00fcb.example", 400),
]


@pytest.mark.parametrize(("host", "status"), HOSTS)
async def test_ambiguous_host_is_refused_by_the_hub(host: str, status: int) -> None:
    async with serving(guard=check_host) as server, server.client() as client:
        await client.send(GET + f"Host: {host}\r\n\r\n".encode())
        assert (await client.answer())[0].status_code == status


@pytest.mark.parametrize(
    "raw", [GET + HOST, POST + JSON + b"Content-Length: 9\r\n\r\n{}", CHUNKED + b"2\r\n"]
)
async def test_request_truncated_by_the_client_is_refused(raw: bytes) -> None:
    async with serving() as server, server.client() as client:
        await client.send(raw)
        await client.stream.send_eof()
        response, _ = await client.answer()
        assert response.status_code == 400


@pytest.mark.parametrize("octet", [*(set(range(32)) - {9, 10, 13}), 127])
async def test_control_character_in_the_head_is_refused(octet: int) -> None:
    """RFC 9110 5.5: not in a value or at its ends, not in a name, and not in the target."""
    sent = bytes([octet])
    async with serving() as served:
        for line in (b"X: a%bb", b"X: %b", b"X: a%b", b"X%b: a", b"X: a\tb%bc"):
            async with served.client() as client:
                await client.send(GET + HOST + line.replace(b"%b", sent) + b"\r\n\r\n")
                response, body = await client.answer()
                assert response.status_code == 400, (octet, line)
                assert b"5.5" in body
        async with served.client() as client:
            await client.send(GET + HOST + b"X: a\tb\x80\xff\r\n\r\n")
            assert (await client.answer())[0].status_code == 200
