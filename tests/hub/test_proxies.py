"""The example files for proxies in operation: a kit connects and a push passes through each."""

from __future__ import annotations

import json
import os
import re
import socket
import sqlite3
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path

import pytest

from tests.hub.test_outage import call
from tests.hub.test_tls import Site
from tests.machine import tool
from tests.processes import MODULE, PATIENCE, administer, agent, free_port, hub, started, until

EXAMPLES = Path(__file__).parents[2] / "examples"
STRANGER = "127.0.0.2"
"""Another address of this machine, as the proxy sees it."""


def edit_example(name: str, **places: str) -> str:
    """Return the example with other places. Each of them must occur in it."""
    text = (EXAMPLES / name).read_text()
    for here, there in places.items():
        assert here in text, here
        text = text.replace(here, there)
    return text


def nginx(site: Site, to: int, port: int) -> list[str]:
    text = edit_example(
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
    text = edit_example(
        "haproxy.cfg",
        **{"/etc/ssl/hub": str(site.home), "bind :443": f"bind 127.0.0.1:{port}"},
        **{"127.0.0.1:9443": f"127.0.0.1:{to}", "127.0.0.1:9445": f"127.0.0.1:{free_port()}"},
    )
    (site.home / "haproxy.cfg").write_text(text)
    return [tool("haproxy", "haproxy"), "-db", "-f", str(site.home / "haproxy.cfg")]


def caddy(site: Site, to: int, port: int) -> list[str]:
    text = edit_example(
        "Caddyfile",
        **{"/etc/ssl/hub": str(site.home), "127.0.0.1:9443": f"127.0.0.1:{to}"},
        **{"hub.example.org {": f"https://127.0.0.1:{port} {{"},
    )
    (site.home / "Caddyfile").write_text(
        "{\n\tadmin off\n\tauto_https disable_redirects\n\tskip_install_trust\n}\n" + text
    )
    command = [tool("caddy", "caddy"), "run", "--adapter", "caddyfile"]
    return [*command, "--config", str(site.home / "Caddyfile")]


SetUp = Callable[[Site, int, int], list[str]]
PROXIES: dict[str, SetUp] = {"nginx": nginx, "HAProxy": haproxy, "Caddy": caddy}


def nginx_without(*lines: str) -> SetUp:
    """Set up the example without these lines, which a user may not know."""

    def set_up(site: Site, to: int, port: int) -> list[str]:
        command = nginx(site, to, port)
        file = site.home / "nginx.conf"
        written = file.read_text().splitlines()
        for line in lines:
            assert any(line in each for each in written), line
        kept = [each for each in written if not any(line in each for line in lines)]
        file.write_text("\n".join(kept))
        return command

    return set_up


@contextmanager
def proxy(name: str, site: Site, to: int) -> Iterator[int]:
    """Yield its port after it answers."""
    with running_proxy(PROXIES[name], site, to) as port:
        yield port


@contextmanager
def running_proxy(set_up: SetUp, site: Site, to: int) -> Iterator[int]:
    port = free_port()
    command = set_up(site, to, port)
    environment = {**os.environ, "HOME": str(site.home), "XDG_DATA_HOME": str(site.home)}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with started(command, env=environment, **quiet) as process:

        def answers() -> bool:
            try:
                return get_status(site, port, "/healthz") == 200
            except OSError:
                return False

        until(answers)
        yield port
        process.terminate()
        process.wait(PATIENCE)


def get_status(site: Site, port: int, path: str, source: str = "127.0.0.1", **headers: str) -> int:
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


def nginx_with_unix_socket(site: Site, to: int, port: int) -> list[str]:
    command = nginx(site, to, port)
    file = site.home / "nginx.conf"
    here, there = f"server 127.0.0.1:{to};", f"server unix:{site.home}/hub.sock;"
    assert here in file.read_text()
    file.write_text(file.read_text().replace(here, there))
    return command


def haproxy_with_proxy_protocol(site: Site, to: int, port: int) -> list[str]:
    """As the last lines of its example describe."""
    command = haproxy(site, to, port)
    file = site.home / "haproxy.cfg"
    text = file.read_text().replace("    option forwardfor\n", "")
    here = f"server one 127.0.0.1:{to}"
    assert here in text
    settings = (site.home / "hub.properties").read_text()
    (introduced,) = re.findall("proxy-listen=(.*)", settings)
    there = f"server one {introduced} send-proxy-v2 check-send-proxy"
    file.write_text(text.replace(here, there))
    return command


TRUSTED = {"trusted-proxies": "127.0.0.1/32"}
PASSAGES: dict[str, tuple[SetUp, dict[str, str]]] = {
    **{name: (set_up, TRUSTED) for name, set_up in PROXIES.items()},
    "nginx by a Unix socket": (nginx_with_unix_socket, {"socket-listen": "HOME/hub.sock"}),
    "HAProxy that introduces": (
        haproxy_with_proxy_protocol,
        {**TRUSTED, "proxy-listen": "127.0.0.1:PORT"},
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("name", PASSAGES)
def test_kit_link_and_push_pass_through_each_proxy(name: str, tmp_path: Path) -> None:
    (tmp_path / "kit").mkdir()
    site = Site(tmp_path)
    set_up, more = PASSAGES[name]
    settings = {"database": site.database}
    for key, value in more.items():
        settings[key] = value.replace("HOME", str(tmp_path)).replace("PORT", str(free_port()))
    headers = {
        "x-api-key": site.first["apiKey"],
        "Authorization": f"Bearer {site.first['token']}",
        "Content-Type": "application/json",
        # A caller can claim any address, but the address that the proxy saw counts.
        "X-Forwarded-For": "203.0.113.9",
    }
    body = {"sourceUserId": "1", "workspaceId": "1", "targetUserId": "2"}
    text = json.dumps({**body, "message": {"content": "Storm at noon"}})
    with (
        hub(tmp_path, settings) as running,
        running_proxy(set_up, site, running.port) as port,
        agent(tmp_path / "kit", site.kit(port)) as kit,
    ):
        kit.expect("linked to the hub")
        connection = HTTPSConnection("127.0.0.1", port, timeout=PATIENCE, context=site.client_tls)
        with closing(connection):
            connection.request("POST", "/api/package", text, headers)
            assert connection.getresponse().status == 200
        kit.expect("Storm at noon")
        assert get_status(site, port, "/metrics") == 404
        wrong = {"x-api-key": "wrong", "Authorization": "Bearer wrong"}
        assert get_status(site, port, "/api/push/1", STRANGER, **wrong) == 401
        with closing(sqlite3.connect(site.database)) as look:
            assert look.execute("SELECT who FROM attempt").fetchall() == [(STRANGER,)]
        assert kit.post("From the ice").body["status"] == "Delivered"
        assert running.stop() == 0
        output = "\n".join(running.output())
    assert "trusted-proxies" not in output


@pytest.mark.parametrize(
    ("source", "sent", "line"),
    [
        ("127.0.0.2", b"", "trusted-proxies does not hold that address"),
        ("127.0.0.1", b"GET /healthz HTTP/1.1\r\n\r\n", "does not begin with the PROXY protocol"),
        ("127.0.0.1", b"\r\n\r\n", "the proxy closed the connection before it named its client"),
    ],
)
def test_connection_without_valid_proxy_protocol_is_rejected(
    tmp_path: Path, source: str, sent: bytes, line: str
) -> None:
    site, port = Site(tmp_path), free_port()
    settings = {"database": site.database, **TRUSTED, "proxy-listen": f"127.0.0.1:{port}"}
    with hub(tmp_path, settings) as running:
        with socket.socket() as stranger:
            stranger.bind((source, 0))
            stranger.settimeout(PATIENCE)
            stranger.connect(("127.0.0.1", port))
            with suppress(ConnectionError):
                stranger.sendall(sent)
                stranger.shutdown(socket.SHUT_WR)
                assert stranger.recv(100) == b""
        running.expect(line)
        assert running.stop() == 0


def test_unix_socket_is_private_to_its_group_and_replaced_if_stale(tmp_path: Path) -> None:
    site, path = Site(tmp_path), tmp_path / "hub.sock"
    settings = {"database": site.database, "socket-listen": str(path)}
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    with hub(tmp_path, settings) as running:
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        command = [*MODULE, "hub", "run", *running.arguments]
        second = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        assert f"another program listens on {path}" in second.stderr
        assert second.returncode == 75
        assert running.stop() == 0
    path.unlink()
    path.write_text("a file")
    third = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert "it is not a socket" in third.stderr
    assert path.read_text() == "a file"


def run_check(home: Path, settings: dict[str, str | None]) -> str:
    """Return the report of `fieldagent check` about the hub."""
    properties = home / "checked.properties"
    lines = {**settings, "api-port": "0", "state-directory": str(home)}
    properties.write_text("".join(f"{k}={v}\n" for k, v in lines.items() if v is not None))
    command = [*MODULE, "check", "--config", str(properties)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    (said,) = [line for line in (done.stdout + done.stderr).splitlines() if "https://" in line]
    return said


@pytest.mark.full
def test_check_command_distinguishes_connection_faults(tmp_path: Path) -> None:
    """The running agent keeps its link."""
    (tmp_path / "kit").mkdir()
    site = Site(tmp_path)
    settings = {"database": site.database, "trusted-proxies": "127.0.0.1/32"}
    with hub(tmp_path, settings) as running, proxy("nginx", site, running.port) as port:
        kit_settings = site.kit(port)
        with agent(tmp_path / "kit", kit_settings) as kit:
            kit.expect("linked to the hub")
            good = f"ok  https://127.0.0.1:{port} accepts a WebSocket and the token"
            assert run_check(tmp_path, kit_settings) == good
            assert "correct hub-token" in run_check(
                tmp_path, {**kit_settings, "hub-token": "wrong"}
            )
            assert "set hub-ca-file" in run_check(tmp_path, {**kit_settings, "hub-ca-file": None})
            assert kit.post("still there").body["status"] == "Delivered"
            assert not any("no link" in line for line in kit.output())
        assert running.stop() == 0
        assert "the hub cannot take the link now: HTTP 502" in run_check(tmp_path, kit_settings)
        assert sum("kit is linked" in line for line in running.lines) == 1


def test_check_command_detects_a_proxy_without_websocket_upgrade(tmp_path: Path) -> None:
    site = Site(tmp_path)
    settings = {"database": site.database, "trusted-proxies": "127.0.0.1/32"}
    bare = nginx_without("proxy_set_header Upgrade", "proxy_set_header Connection upgrade")
    with hub(tmp_path, settings) as running, running_proxy(bare, site, running.port) as port:
        said = run_check(tmp_path, site.kit(port))
        assert said.startswith("BAD")
        assert "proxy must pass WebSockets at /link" in said


@pytest.mark.full
def test_agent_detects_that_nginx_cuts_idle_links(tmp_path: Path) -> None:
    """nginx cuts it after 60 s (proxy_read_timeout)."""
    (tmp_path / "kit").mkdir()
    site = Site(tmp_path)
    settings = {"database": site.database, "trusted-proxies": "127.0.0.1/32"}
    plain = nginx_without("proxy_read_timeout", "proxy_send_timeout")
    with (
        hub(tmp_path, settings) as running,
        running_proxy(plain, site, running.port) as port,
        agent(tmp_path / "kit", site.kit(port)) as kit,
    ):
        for _ in range(3):  # each later than a test can wait
            with suppress(AssertionError):
                kit.expect("something in the network cuts idle links after 60 s: tested every 45 s")
                break
        kit.expect("linked to the hub")
        channel = kit.call("GET", "/api/status").body["channels"]["Cellular"]
        assert channel["state"] == "ready"
        assert "cuts idle links after 60 s" in channel["reason"]


def test_untrusted_proxy_is_logged_once(tmp_path: Path) -> None:
    """An anonymous caller behind the proxy with many wrong keys does not lock out valid keys."""
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
    warnings = [line for line in running.output() if "trusted-proxies" in line]
    assert len(warnings) == 1
    assert "X-Forwarded-For" in warnings[0]


def test_metrics_are_served_on_a_separate_listener(tmp_path: Path) -> None:
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
