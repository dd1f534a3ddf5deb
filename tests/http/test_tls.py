"""TLS failures as text, and the trusted files."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from fieldagent.http import tls
from fieldagent.http.secure import SecureStream, make_secure

ENDED = [
    ssl.SSLEOFError(8, "EOF occurred in violation of protocol"),
    ssl.SSLZeroReturnError(6, "TLS/SSL connection has been closed (EOF)"),
    ssl.SSLSyscallError(5, "Some I/O error occurred"),
    BrokenPipeError(32, "Broken pipe"),
    None,
]


@pytest.mark.parametrize("error", ENDED, ids=lambda error: type(error).__name__)
def test_disconnect_is_not_reported_as_a_tls_fault(error: Exception | None) -> None:
    """Python 3.11.2 raises SSLZeroReturnError where 3.11.7 raises SSLEOFError."""
    assert tls.describe_fault(error) is None


def hang_up(peer: socket.socket) -> None:
    peer.recv(1)
    peer.shutdown(socket.SHUT_RDWR)


def send_plain_text(words: bytes) -> Callable[[socket.socket], None]:
    def say(peer: socket.socket) -> None:
        peer.sendall(words)
        while peer.recv(4096):
            pass

    return say


def send_tls_alert(peer: socket.socket) -> None:
    """Act like a server with TLS 1.1 at most, which answers with an alert."""
    peer.recv(4096)
    peer.sendall(b"\x15\x03\x01\x00\x02\x02\x46")


@pytest.mark.parametrize(
    ("server", "said"),
    [
        (hang_up, None),
        (send_plain_text(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "does not use TLS"),
        (send_plain_text(b"SSH-2.0-OpenSSH_9.2\r\n"), "does not use TLS"),
        (send_tls_alert, "protocol version"),
    ],
    ids=["ends", "HTTP", "SSH", "an alert"],
)
async def test_failed_handshake_is_reported_with_its_cause(
    server: Callable[[socket.socket], None], said: str | None
) -> None:
    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=server, args=(theirs,))
    thread.start()
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(ours))
    with pytest.raises(trio.BrokenResourceError) as broken:
        await make_secure(stream, ssl.create_default_context(), "hub.example.org")
    thread.join()
    theirs.close()
    fault = tls.describe_fault(broken.value.__cause__)
    assert fault is None if said is None else said in str(fault)


async def test_any_failure_in_a_secure_stream_is_a_broken_resource(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python raises an OSError for an error of another connection, and trio does not convert it."""
    near, _ = trio.testing.memory_stream_pair()
    stream = SecureStream(near, ssl.create_default_context(), "hub.example.org")

    async def broken(*_: object) -> bytes:
        raise BrokenPipeError(32, "Broken pipe")

    for name in ("do_handshake", "receive_some", "send_all", "aclose"):
        monkeypatch.setattr(trio.SSLStream, name, broken)
    for attempt in (stream.handshake, stream.receive_some, stream.aclose):
        with pytest.raises(trio.BrokenResourceError):
            await attempt()
    with pytest.raises(trio.BrokenResourceError):
        await stream.send_all(b"x")


@pytest.mark.parametrize(
    ("content", "said"), [(None, "No such file"), ("nonsense", "holds no certificate")]
)
def test_unusable_certificate_file_is_reported(
    tmp_path: Path, content: str | None, said: str
) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)
    with pytest.raises(tls.UnusableTrust, match=f"{path} cannot be used: {said}"):
        tls.trust(path)
