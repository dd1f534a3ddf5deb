"""The example files of the proxies at work: a kit links and a push passes through each."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path

import pytest

from tests.hub.test_outage import call
from tests.hub.test_tls import Site
from tests.machine import tool
from tests.processes import PATIENCE, administer, agent, free_port, hub, started, until

EXAMPLES = Path(__file__).parents[2] / "examples"
STRANGER = "127.0.0.2"
"""Also this machine, as seen by the proxy."""


def edited(name: str, **places: str) -> str:
    """The example with other places; each stands in it."""
    text = (EXAMPLES / name).read_text()
    for here, there in places.items():
        assert here in text, here
        text = text.replace(here, there)
    return text


def nginx(site: Site, to: int, port: int) -> list[str]:
    text = edited(
        "nginx.conf",
        **{"/etc/ssl/hub": str(site.home), "listen 443": f"listen 127.0.0.1:{port}"},
        **{"127.0.0.1:9443": f"127.0.0.1:{to}"},
    )
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = "".join(f"{kind}_temp_path {site.home}/{kind};\n" for kind in kinds)
    (site.home / "nginx.conf").write_text(
        f"daemon off;\nmaster_process off;\npid {site.home}/nginx.pid;\nerror_log stderr;\n"
        f"events {{}}\nhttp {{\naccess_log off;\n{temporary}{text}}}\n"
    )
    return [tool("nginx", "nginx-light"), "-e", "stderr", "-c", str(site.home / "nginx.conf")]


def haproxy(site: Site, to: int, port: int) -> list[str]:
    both = [(site.home / name).read_bytes() for name in ("chain.pem", "key.pem")]
    (site.home / "hub.pem").write_bytes(b"".join(both))
    text = edited(
        "haproxy.cfg",
        **{"/etc/ssl/hub": str(site.home), "bind :443": f"bind 127.0.0.1:{port}"},
        **{"127.0.0.1:9443": f"127.0.0.1:{to}", "127.0.0.1:9445": f"127.0.0.1:{free_port()}"},
    )
    (site.home / "haproxy.cfg").write_text(text)
    return [tool("haproxy", "haproxy"), "-db", "-f", str(site.home / "haproxy.cfg")]


def caddy(site: Site, to: int, port: int) -> list[str]:
    text = edited(
        "Caddyfile",
        **{"/etc/ssl/hub": str(site.home), "127.0.0.1:9443": f"127.0.0.1:{to}"},
        **{"hub.example.org {": f"https://127.0.0.1:{port} {{"},
    )
    (site.home / "Caddyfile").write_text(
        "{\n\tadmin off\n\tauto_https disable_redirects\n\tskip_install_trust\n}\n" + text
    )
    command = [tool("caddy", "caddy"), "run", "--adapter", "caddyfile"]
    return [*command, "--config", str(site.home / "Caddyfile")]


PROXIES = {"nginx": nginx, "HAProxy": haproxy, "Caddy": caddy}


@contextmanager
def proxy(name: str, site: Site, to: int) -> Iterator[int]:
    """Its port, once it answers."""
    port = free_port()
    command = PROXIES[name](site, to, port)
    environment = {**os.environ, "HOME": str(site.home), "XDG_DATA_HOME": str(site.home)}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with started(command, env=environment, **quiet) as process:

        def answers() -> bool:
            try:
                return get(site, port, "/healthz") == 200
            except OSError:
                return False

        until(answers)
        yield port
        process.terminate()
        process.wait(PATIENCE)


def get(site: Site, port: int, path: str, source: str = "127.0.0.1", **headers: str) -> int:
    connection = HTTPSConnection(
        "127.0.0.1",
        port,
        timeout=PATIENCE,
        context=site.client_tls,
        source_address=(source, 0),
    )
    with closing(connection):
        connection.request("GET", path, headers=headers)
        return connection.getresponse().status


@pytest.mark.parametrize("name", PROXIES)
def test_a_kit_and_a_push_come_through(name: str, tmp_path: Path) -> None:
    (tmp_path / "kit").mkdir()
    site = Site(tmp_path)
    settings = {"database": site.database, "trusted-proxies": "127.0.0.1/32"}
    headers = {
        "x-api-key": site.first["apiKey"],
        "Authorization": f"Bearer {site.first['token']}",
        "Content-Type": "application/json",
        # A stranger may say what they like: whom the proxy saw counts.
        "X-Forwarded-For": "203.0.113.9",
    }
    body = {"sourceUserId": "1", "workspaceId": "1", "targetUserId": "2"}
    text = json.dumps({**body, "message": {"content": "Storm at noon"}})
    with (
        hub(tmp_path, settings) as running,
        proxy(name, site, running.port) as port,
        agent(tmp_path / "kit", site.kit(port)) as kit,
    ):
        kit.expect("linked to the hub")
        connection = HTTPSConnection("127.0.0.1", port, timeout=PATIENCE, context=site.client_tls)
        with closing(connection):
            connection.request("POST", "/api/package", text, headers)
            assert connection.getresponse().status == 200
        kit.expect("Storm at noon")
        assert get(site, port, "/metrics") == 404
        wrong = {"x-api-key": "wrong", "Authorization": "Bearer wrong"}
        assert get(site, port, "/api/push/1", STRANGER, **wrong) == 401
        with closing(sqlite3.connect(site.database)) as look:
            assert look.execute("SELECT who FROM attempt").fetchall() == [(STRANGER,)]
        assert kit.post("From the ice").body["status"] == "Delivered"
        assert running.stop() == 0
        told = "\n".join(running.output())
    assert "trusted-proxies" not in told


def test_a_proxy_that_is_not_trusted_is_told_once(tmp_path: Path) -> None:
    """And a stranger behind it, whose wrong keys are many, locks out nobody whose are right."""
    database = str(tmp_path / "hub.sqlite3")
    first = administer(database, "init", "Alps")
    right = {"x-api-key": first["apiKey"], "Authorization": f"Bearer {first['token']}"}
    wrong = {"x-api-key": "wrong", "Authorization": "Bearer wrong"}
    said = {"X-Forwarded-For": "203.0.113.9"}
    with hub(tmp_path, {"database": database}) as running:
        path = "/api/push/00000000-0000-0000-0000-000000000000"
        statuses = [call(running, "GET", path, {**wrong, **said})[0] for _ in range(14)]
        assert statuses == [401] * 12 + [429] * 2
        assert call(running, "GET", path, {**right, **said})[0] == 404
        assert running.stop() == 0
    told = [line for line in running.output() if "trusted-proxies" in line]
    assert len(told) == 1
    assert "X-Forwarded-For" in told[0]


def test_figures_on_a_listener_of_their_own(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    port = free_port()
    settings = {"database": database, "admin-listen": f"127.0.0.1:{port}"}
    with hub(tmp_path, settings) as running:
        assert call(running, "GET", "/metrics")[0] == 404
        assert call(running, "GET", "/healthz")[0] == 200
        for path in ("/metrics", "/healthz", "/livez"):
            connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
            with closing(connection):
                connection.request("GET", path)
                assert connection.getresponse().status == 200
        assert running.stop() == 0
    with socket.socket() as probe, pytest.raises(ConnectionRefusedError):
        probe.connect(("127.0.0.1", port))
