"""A web push service for tests. It records all posts, and third-party libraries check them."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.processes import until


def text_of(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Pushed(NamedTuple):
    path: str
    headers: dict[str, str]
    body: bytes


class Browser:
    """A browser's subscription with its private keys."""

    def __init__(self, endpoint: str) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.secret = bytes(range(16))
        point = self.key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        self.subscription = {
            "endpoint": endpoint,
            "p256dh": text_of(point),
            "auth": text_of(self.secret),
        }

    def read(self, pushed: Pushed) -> Any:
        """Decrypt the body of a post with Mozilla's http_ece (RFC 8188), and return its JSON
        value.
        """
        http_ece = pytest.importorskip("http_ece", reason="needs extra `test`")
        text = http_ece.decrypt(
            pushed.body, private_key=self.key, auth_secret=self.secret, version="aes128gcm"
        )
        return json.loads(text)


class PushService:
    def __init__(self, address: str) -> None:
        self.address = address
        self.got: list[Pushed] = []
        self.answers: list[int] = []
        """Answers to the next posts in order, then 201."""

    def browser(self, name: str) -> Browser:
        return Browser(f"{self.address}/push/{name}")

    def pushed(self, number: int) -> Pushed:
        """Wait for that many posts, and return the last."""
        until(lambda: len(self.got) >= number)
        return self.got[number - 1]


def vapid_claims(pushed: Pushed) -> tuple[dict[str, Any], str]:
    """Return the claims of its token and the key. py_vapid has checked it (RFC 8292)."""
    py_vapid = pytest.importorskip("py_vapid", reason="needs extra `test`")
    authorization = pushed.headers["Authorization"].replace(", ", ",")
    assert py_vapid.Vapid02.verify(authorization)
    token, _, key = authorization.removeprefix("vapid t=").partition(",k=")
    said = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(said + "=" * (-len(said) % 4))), key


@contextmanager
def push_service(tls: ssl.SSLContext | None) -> Iterator[PushService]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            service.got.append(Pushed(self.path, dict(self.headers), body))
            self.send_response(service.answers.pop(0) if service.answers else 201)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        scheme = "http" if tls is None else "https"
        service = PushService(f"{scheme}://127.0.0.1:{server.server_port}")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield service
        finally:
            server.shutdown()
