"""A hub process with a certificate of a private authority: links, pushes, webhooks and its log."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import struct
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.breaking import Put, environment
from tests.hub.test_journey import posted, receiver
from tests.processes import MODULE, PATIENCE, administer, agent, hub, until

RESET = struct.pack("ii", 1, 0)
"""SO_LINGER with zero time: closing resets the connection (socket(7))."""


class Site:
    """A hub's database and settings, with a private authority that issued its certificate."""

    def __init__(self, home: Path) -> None:
        self.authority = trustme.CA()
        self.home = home
        issued = self.issue()
        (home / "ca.pem").write_bytes(self.authority.cert_pem.bytes())
        self.ca_file = str(home / "ca.pem")
        self.server_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        issued.configure_cert(self.server_tls)
        self.client_tls = ssl.create_default_context(cafile=self.ca_file)
        self.database = str(home / "hub.sqlite3")
        self.first = administer(self.database, "init", "Alps")
        administer(self.database, "user", "add", "Ada", "--password", secret="of Ada: a long one\n")
        self.token = administer(self.database, "device", "add", "kit", "--user", "Ada")["hub-token"]
        self.settings = {
            "database": self.database,
            "tls-certificate": str(home / "chain.pem"),
            "tls-key": str(home / "key.pem"),
            "webhook-allow": "127.0.0.0/8",
        }

    def issue(self) -> trustme.LeafCert:
        """Write a certificate to the file in the settings."""
        issued = self.authority.issue_cert("127.0.0.1")
        chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
        (self.home / "chain.pem").write_bytes(chain)
        (self.home / "key.pem").write_bytes(issued.private_key_pem.bytes())
        return issued

    def shown(self, port: int) -> bytes:
        """Return the certificate that the hub uses now."""
        plain = socket.create_connection(("127.0.0.1", port), PATIENCE)
        with self.client_tls.wrap_socket(plain, server_hostname="127.0.0.1") as peer:
            return peer.getpeercert(binary_form=True) or b""

    def kit(self, port: int) -> dict[str, Any]:
        """Return the settings of the device's agent."""
        return {
            "satellite-port": None,
            "hub-address": f"https://127.0.0.1:{port}",
            "hub-token": self.token,
            "hub-ca-file": self.ca_file,
            "inbound-hook": "cat",
        }

    def gives_sessions(self, port: int) -> bool:
        """Return True if it sends TLS session tickets, which would cost each kit data."""
        plain = socket.create_connection(("127.0.0.1", port), PATIENCE)
        with self.client_tls.wrap_socket(plain, server_hostname="127.0.0.1") as peer:
            peer.sendall(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert peer.recv(4096).startswith(b"HTTP/1.1 200")
            return peer.session is not None and peer.session.has_ticket


@pytest.fixture
def site(tmp_path: Path) -> Site:
    (tmp_path / "kit").mkdir()
    return Site(tmp_path)


def test_links_and_pushes_use_tls_and_log_no_secret(site: Site, tmp_path: Path) -> None:
    def push(address: str, *arguments: str, token: str) -> subprocess.CompletedProcess[str]:
        common = ["--hub", address, "--workspace", "1", "--target", "2", "--patience", "0"]
        key = site.first["apiKey"]
        return subprocess.run(
            [*MODULE, "push", "message", *common, *arguments, "Storm at noon"],
            env={**os.environ, "FIELDAGENT_API_KEY": key, "FIELDAGENT_TOKEN": token},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )

    with hub(tmp_path, site.settings) as running:
        assert running.address.startswith("https://")
        with agent(tmp_path / "kit", site.kit(running.port)) as kit:
            kit.expect("linked to the hub")
            trusted = ("--ca-file", site.ca_file)
            assert not site.gives_sessions(running.port)
            token = site.first["token"]
            by_token = push(running.address, "--source", "1", *trusted, token=token)
            assert (by_token.returncode, by_token.stdout) == (0, "accepted\n"), by_token.stderr
            kit.expect("Storm at noon")
            ada = ("--username", "2", "--source", "2")
            by_name = push(running.address, *ada, *trusted, token="of Ada: a long one")
            assert by_name.returncode == 0, by_name.stderr
            stranger = push(running.address, "--source", "1", token=token)
            assert stranger.returncode == 69
            assert "the certificate is not trusted" in stranger.stderr
            assert "set --ca-file" in stranger.stderr
            missing = push(running.address, "--source", "1", "--ca-file", "/missing", token=token)
            assert missing.returncode == 2
            assert "--ca-file /missing cannot be used: No such file" in missing.stderr
        log = "\n".join(running.output())
    secrets = (site.first["apiKey"], site.first["token"], site.token, "of Ada")
    assert "kit is linked" in log
    assert [secret for secret in secrets if secret in log] == []


def test_reset_tls_connections_do_not_break_links_or_webhooks(site: Site, tmp_path: Path) -> None:
    """Each peer resets an idle connection. If OpenSSL has the socket, its goodbye then fails and
    leaves an error in the thread's queue, for the next read.
    """
    vanished = 0

    def vanish() -> None:
        nonlocal vanished
        plain = socket.create_connection(("127.0.0.1", running.port), PATIENCE)
        with site.client_tls.wrap_socket(plain, server_hostname="127.0.0.1") as peer:
            peer.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert peer.recv(4096)
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        vanished += 1

    texts = [f"{number} " + "x" * 9000 for number in range(8)]
    with (
        hub(tmp_path, site.settings, SSL_CERT_FILE=site.ca_file) as running,
        receiver(site.server_tls, before_answer=vanish) as hooked,
        split_forwarder(running.port) as port,
        agent(tmp_path / "kit", site.kit(port)) as kit,
    ):
        administer(site.database, "webhook", "add", hooked.url, "--untried")
        kit.expect("linked to the hub")
        for text in texts:
            vanish()
            assert kit.post(text).body["status"] == "Delivered"
        until(lambda: len(hooked.got) == len(texts))
        assert [line for line in kit.output() if "no link to the hub" in line] == []
    assert posted(hooked) == texts
    assert vanished == 2 * len(texts)
    log = "\n".join(running.output())
    assert log.count("kit is linked") == 1
    assert "Traceback" not in log


@pytest.mark.parametrize("how", ["SIGHUP", "by itself"])
def test_renewed_certificate_is_used_without_a_restart(
    how: str, site: Site, tmp_path: Path
) -> None:
    change = environment(tmp_path, Put("fieldagent.http.certificate:CHECK_INTERVAL_S", 0.2))
    soon = change if how == "by itself" else {}
    with (
        hub(tmp_path, site.settings, MODULE, **soon) as running,
        agent(tmp_path / "kit", site.kit(running.port)) as kit,
    ):
        kit.expect("linked to the hub")
        first = site.shown(running.port)

        def again() -> None:
            if how == "SIGHUP":
                running.process.send_signal(signal.SIGHUP)

        # Only one of the two files exists yet.
        whole = (tmp_path / "key.pem").read_bytes()
        (tmp_path / "key.pem").write_bytes(b"")
        again()
        running.expect("key.pem cannot be used")
        assert site.shown(running.port) == first
        (tmp_path / "key.pem").write_bytes(whole)
        site.issue()
        again()
        until(lambda: site.shown(running.port) != first)
        assert kit.post("over the link as it was").body["status"] == "Delivered"
        assert [line for line in kit.output() if "no link to the hub" in line] == []
        assert running.stop() == 0


@contextmanager
def split_forwarder(to: int) -> Iterator[int]:
    """Yield a port that forwards to `to` a few bytes at a time, so that each TLS record is
    split.
    """
    ends: list[socket.socket] = []

    def carry(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(600):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def take() -> None:
        with suppress(OSError):
            while True:
                here, there = listener.accept()[0], socket.create_connection(("127.0.0.1", to))
                ends.extend((here, there))
                for way in ((here, there), (there, here)):
                    way[1].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    threading.Thread(target=carry, args=way, daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        taking = threading.Thread(target=take, daemon=True)
        taking.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            taking.join(PATIENCE)
            for end in ends:
                end.close()
