"""The kit's page on a phone in camp: real agents, real TLS, and Chromium as the phone."""

from __future__ import annotations

import json
import os
import re
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from hashlib import sha256
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fieldagent.agent.entrance import Entrance
from fieldagent.http.message import Request
from fieldagent.http.problem import Problem
from fieldagent.page.language import LANGUAGES
from fieldagent.system.data_files import read_data
from tests import browser
from tests.flood import flooded, measure, settled
from tests.processes import MODULE, PATIENCE, Agent, agent, free_port, until

KIT_PAGE = (Path(__file__).parents[2] / "docs/how-to/kit-page.md").read_text()
PHRASE = "four words of the camp"
UNVERIFIED = ssl._create_unverified_context()


class Camp(NamedTuple):
    kit: Agent
    port: int
    home: Path

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """Return status, headers and text."""
        connection = HTTPSConnection("127.0.0.1", self.port, timeout=PATIENCE, context=UNVERIFIED)
        content = None if body is None else json.dumps(body)
        if content is not None:
            headers = {"Content-Type": "application/json", **headers}
        try:
            connection.request(method, path, content, headers)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read().decode()
        finally:
            connection.close()

    def enter(self, phrase: str = PHRASE, **headers: str) -> Any:
        return self.call("POST", "/enter/session", {"passPhrase": phrase}, **headers)

    def cookie(self) -> dict[str, str]:
        status, headers, text = self.enter()
        assert status == 204, text
        return {"Cookie": headers["Set-Cookie"].partition(";")[0]}


def page(home: Path, *arguments: str, phrase: str = "") -> subprocess.CompletedProcess[str]:
    command = [*MODULE, "page", "--config", str(home / "agent.properties"), *arguments]
    return subprocess.run(
        command, input=phrase, capture_output=True, text=True, timeout=PATIENCE, check=False
    )


@contextmanager
def camp(
    home: Path,
    networks: str = "127.0.0.0/8",
    more: dict[str, str] | None = None,
    **environment: str,
) -> Iterator[Camp]:
    port = free_port()
    settings: dict[str, str | None] = {"satellite-port": None, "page-listen": networks}
    settings |= {"page-port": str(port), **(more or {})}
    with agent(home, settings, MODULE, **environment) as kit:
        yield Camp(kit, port, home)


def answers(there: Camp) -> bool:
    try:
        return bool(there.call("GET", "/enter")[0] == 200)
    except OSError:
        return False


def test_network_page_requires_passphrase(tmp_path: Path) -> None:
    with camp(tmp_path) as there:
        until(lambda: answers(there))
        assert there.enter()[0] == 403, "there is no pass phrase yet"
        assert "fieldagent page --set" in there.enter()[2]
        short = page(tmp_path, "--set", phrase="too short\n")
        assert (short.returncode, "9 characters" in short.stderr) == (2, True)
        assert page(tmp_path, "--set", phrase=f"{PHRASE}\n").returncode == 0
        for path in ("/api/status", "/page/page.js", "/openapi.json", "/nothing", "/%65nter"):
            assert there.call("GET", path)[0] == 401, path
        package = {"message": {"content": "x"}}
        assert there.call("POST", "/api/package/async", package)[0] == 401
        status, headers, _ = there.call("GET", "/")
        assert (status, headers["Location"]) == (303, "/enter")
        assert there.enter("wrong")[0] == 401
        status, headers, _ = there.enter()
        rules = headers["Set-Cookie"]
        assert status == 204 and "; Secure; HttpOnly; SameSite=Strict" in rules
        mine = {"Cookie": rules.partition(";")[0]}
        assert there.call("GET", "/api/status", **mine)[0] == 200
        assert there.call("POST", "/api/package/async", package, **mine)[0] == 202
        assert there.call("GET", "/api/status", Cookie=mine["Cookie"] + "x")[0] == 401
        own = f"https://127.0.0.1:{there.port}"
        assert there.call("GET", "/api/status", **mine, Origin=own)[0] == 200
        foreign: list[dict[str, str]] = [
            {"Origin": "https://evil.example"},
            {"Origin": "https://127.0.0.1:8443"},
            {"Origin": "null"},
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},
        ]
        for each in foreign:
            assert there.call("POST", "/api/package/async", package, **mine, **each)[0] == 403
            assert there.enter(**each)[0] == 403
        # A link in a message leads there, without the cookie.
        follows = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
        assert there.call("GET", "/", **follows)[0] == 303
        # Programs of this machine continue as before.
        assert there.kit.call("GET", "/api/status").status == 200
        assert there.call("DELETE", "/enter/session", **mine)[0] == 204
        assert there.call("GET", "/api/status", **mine)[0] == 401
        mine = there.cookie()
        assert page(tmp_path, "--set", phrase=f"{PHRASE} anew\n").returncode == 0
        assert there.call("GET", "/api/status", **mine)[0] == 401, "another pass phrase"
        assert there.enter()[0] == 401


@pytest.mark.full
def test_passphrase_guesses_are_rate_limited(tmp_path: Path) -> None:
    with camp(tmp_path) as there:
        until(lambda: answers(there))
        assert page(tmp_path, "--set", phrase=f"{PHRASE}\n").returncode == 0
        wrong = 0
        while (response := there.enter(f"guess {wrong}"))[0] == 401:
            wrong += 1
        status, headers, _ = response
        assert status == 429 and 0 < int(headers["Retry-After"]) <= 60
        assert wrong >= 12
        assert there.kit.call("GET", "/api/status").status == 200


def test_connection_from_other_network_gets_no_byte(tmp_path: Path) -> None:
    with camp(tmp_path, "10.99.0.0/16 fd00:99::/32") as there:
        there.kit.expect("the page is open to 10.99.0.0/16")
        with socket.create_connection(("127.0.0.1", there.port), timeout=PATIENCE) as stranger:
            stranger.settimeout(PATIENCE)
            with suppress(ConnectionResetError):
                assert stranger.recv(1) == b""


def test_certificate_survives_restart_and_only_owner_reads_page_files(tmp_path: Path) -> None:
    seen = set()
    for _ in range(2):
        with camp(tmp_path) as there:
            until(lambda there=there: answers(there))  # type: ignore[misc]
            served = ssl.get_server_certificate(("127.0.0.1", there.port))
            seen.add(sha256(ssl.PEM_cert_to_DER_cert(served)).digest().hex(":").upper())
            report = json.loads(page(tmp_path, "--json").stdout)
            assert report["addresses"] == [f"https://127.0.0.1:{there.port}/"]
            assert {report["fingerprint"]} == seen
            assert report["passPhrase"] is False
            assert report["fingerprint"] in page(tmp_path).stdout
    folder = tmp_path / "state/page"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


def test_agent_runs_though_network_page_cannot_start(tmp_path: Path) -> None:
    """OpenSSL's program is missing, and then another program uses the port."""
    (tmp_path / "bin").mkdir()
    with camp(tmp_path, PATH=str(tmp_path / "bin")) as there:
        there.kit.expect("openssl is missing: apt install openssl")
        assert there.kit.call("GET", "/api/status").status == 200
        (fault,) = there.kit.call("GET", "/api/status").body["faults"]
        assert fault["part"] == "the page for the network"
    with socket.create_server(("0.0.0.0", 0)) as taken:
        settings = {"satellite-port": None, "page-listen": "127.0.0.0/8"}
        settings["page-port"] = str(taken.getsockname()[1])
        with agent(tmp_path, settings) as kit:
            kit.expect("is in use by another program")
            assert kit.call("GET", "/api/status").status == 200
        # The portal for phones starts after the program that uses its port has ended.
        port, portal = free_port(), taken.getsockname()[1]
        settings |= {"page-port": str(port), "page-portal-port": str(portal)}
        with agent(tmp_path, settings) as kit:
            kit.expect(f"port {portal} on 0.0.0.0 is in use by another program")
            taken.close()
            until(partial(answers, Camp(kit, port, tmp_path)))


@pytest.mark.full
def test_phone_signs_in_writes_and_signs_out(tmp_path: Path) -> None:
    with camp(tmp_path) as there, browser.browser() as opened:
        until(lambda: answers(there))
        assert page(tmp_path, "--set", phrase=f"{PHRASE}\n").returncode == 0
        phone: dict[str, Any] = {
            **browser.SCREENS["390-light"],
            "ignore_https_errors": True,
            "geolocation": {"latitude": 46.5, "longitude": 7.25},
            "permissions": ["geolocation"],
        }
        context = opened.new_context(**phone)
        context.set_default_timeout(PATIENCE * 1000)
        shown = context.new_page()
        troubles: list[str] = []
        shown.on("pageerror", lambda error: troubles.append(str(error)))
        shown.goto(f"https://127.0.0.1:{there.port}/")
        shown.get_by_label("Passphrase").fill("not it at all")
        shown.get_by_role("button", name="Sign in").click()
        shown.get_by_text("the passphrase is wrong").wait_for()
        assert browser.faults(shown) == []
        browser.keep(shown, "enter-390-light")
        shown.get_by_label("Passphrase").fill(PHRASE)
        shown.get_by_role("button", name="Sign in").click()
        shown.locator("#field-content").fill("from the camp")
        shown.locator("#submit").click()
        shown.locator("#talk").get_by_text("from the camp").wait_for()
        assert browser.faults(shown) == []
        # A phone gives its position to the page over TLS too.
        shown.locator("#raise").focus()
        shown.keyboard.press("Enter")
        shown.locator("#sos-place", has_text="from this browser").wait_for()
        assert shown.locator("#sos-latitude").input_value() == "46.500000"
        shown.locator("#sos-back").click()
        # A person whose pass phrase has changed must enter the new one.
        shown.get_by_role("button", name="Sign out").click()
        shown.get_by_label("Passphrase").wait_for()
        assert there.kit.call("GET", "/api/packages").body["packages"][0]["text"] == "from the camp"
        assert troubles == []
        context.close()


def test_page_command_reports_missing_and_wrong_settings(tmp_path: Path) -> None:
    properties = tmp_path / "agent.properties"
    properties.write_text(f"state-directory={tmp_path / 'state'}\n")
    unset = page(tmp_path)
    assert (unset.returncode, "page-listen is not set" in unset.stderr) == (78, True)
    properties.write_text(f"state-directory={tmp_path / 'state'}\npage-listen=127.0.0.1/8\n")
    wrong = page(tmp_path)
    assert wrong.returncode == 78
    assert re.search("page-listen.*has host bits set", wrong.stderr)
    assert page(tmp_path, "--config", os.devnull + "x").returncode == 66


def test_commands_in_kit_page_guide_work(tmp_path: Path) -> None:
    """The commands are from docs/how-to/kit-page.md and run here without sudo."""
    lines = re.findall(r"^    sudo (fieldagent page.*?) *#", KIT_PAGE, re.MULTILINE)
    assert len(lines) == 2
    folder = tmp_path / "fieldagent"
    folder.mkdir()
    properties = f"state-directory={tmp_path / 'state'}\npage-listen=127.0.0.0/8\n"
    (folder / "agent.properties").write_text(properties)
    outputs = [
        subprocess.run(
            [*MODULE, *line.split()[1:]],
            input=f"{PHRASE}\n",
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=True,
            env={**os.environ, "XDG_CONFIG_HOME": str(tmp_path)},
        ).stdout
        for line in lines
    ]
    assert "The passphrase is set" in outputs[0]
    assert re.search(r"https://127.0.0.1:9092/\n.*\n([0-9A-F]{2}:){31}[0-9A-F]{2}\n$", outputs[1])


async def test_guesses_from_many_addresses_lock_out_no_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten addresses guess as often as they may, for ten minutes. People sign in, and mistype."""
    monkeypatch.setattr(
        "fieldagent.agent.entrance.check_password", lambda typed, _: typed == PHRASE
    )
    phrase, now = tmp_path / "phrase", [0.0]
    phrase.write_text("a hash")
    door = Entrance(phrase, lambda: now[0])
    (enter,) = [each.handler for each in door.make_routes() if each.method == "POST"]

    async def tries(typed: str, peer: str) -> int:
        body = json.dumps({"passPhrase": typed}).encode()
        headers = {"content-length": str(len(body)), "content-type": "application/json"}
        try:
            response = await enter(Request("POST", "/enter/session", (), headers, body, peer))
        except Problem as problem:
            return problem.status
        return int(response.status)

    refused = 0
    for second in range(600):
        now[0] = float(second)
        guesses = [await tries("a guess", f"10.0.0.{each}") for each in range(10)]
        refused += guesses.count(429)
        assert await tries(PHRASE, "10.0.0.77") == 204
        if second % 60 == 0:
            assert await tries("mistyped", f"10.0.1.{second // 60}") == 401
            assert await tries(PHRASE, f"10.0.1.{second // 60}") == 204
    assert refused > 5_000, "the guesses themselves have a limit"


@pytest.mark.full
def test_anonymous_floods_take_little_cpu_of_kit(tmp_path: Path) -> None:
    """Two anonymous callers flood each route before the sign-in and one behind it, over TLS."""
    with camp(tmp_path) as there:
        until(lambda: answers(there))
        page(tmp_path, "--set", phrase=f"{PHRASE}\n")
        mine = there.cookie()
        door = Entrance(tmp_path / "none", time.monotonic)
        asked = {(each.method, each.pattern) for each in door.make_routes()} | {
            ("GET", "/api/status")
        }

        def ask() -> None:
            assert there.call("GET", "/api/status", **mine)[0] == 200

        control = measure(there.kit.process.pid, 1.5, ask)
        for number, (method, pattern) in enumerate(sorted(asked)):
            path = pattern.replace("{name}", "leaflet.js")
            if method == "GET":
                method, more, body = "HEAD", "Accept-Encoding: gzip\r\n", b""
            else:
                body = b'{"passPhrase": "%s"}' % (b"x" * 1_900)
                more = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            request = f"{method} {path} HTTP/1.1\r\nHost: kit\r\n{more}\r\n".encode() + body
            flooding = partial(flooded, there.port, request, secure=True)
            with (
                flooding(source=f"127.0.1.{number + 2}", pipelined=True),
                flooding(source=f"127.0.2.{number + 2}", pipelined=False),
            ):
                measurement = settled(there.kit.process.pid, ask, control.cores + 0.2, 1.5)
                assert measurement.cores - control.cores < 0.2, (path, measurement)
                assert measurement.soon, (path, measurement)


def call_http(port: int, method: str, path: str, **headers: str) -> tuple[int, str | None, bytes]:
    """Return status, target of the redirect, and body, as for a phone that uses the kit for any
    address.
    """
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request(
            method, path, headers={"Host": "connectivitycheck.gstatic.com", **headers}
        )
        answer = connection.getresponse()
        return answer.status, answer.headers["Location"], answer.read()
    finally:
        connection.close()


PROBES = {
    "/generate_204": (204, b""),
    "/hotspot-detect.html": (200, b"Success"),
    "/connecttest.txt": (200, b"Microsoft Connect Test"),
    "/canonical.html": (200, b"support.mozilla.org/kb/captive-portal"),
}


@pytest.mark.full
def test_captive_portal_leads_phone_to_page(tmp_path: Path) -> None:
    portal = free_port()
    with camp(tmp_path, more={"page-portal-port": str(portal)}) as there:
        until(partial(answers, there))
        for probe in (*PROBES, "/", "/anything?else=1"):
            assert call_http(portal, "GET", probe)[:2] == (302, "/portal"), probe
        # The kit's API is not available there.
        assert call_http(portal, "GET", "/api/status")[:2] == (302, "/portal")
        assert call_http(portal, "POST", "/api/package")[0] == 404
        with browser.browser() as opened:
            phone = opened.new_page(viewport={"width": 390, "height": 844}, color_scheme="dark")
            phone.goto(f"http://127.0.0.1:{portal}/generate_204")
            where = phone.get_by_role("link")
            assert where.get_attribute("href") == f"https://127.0.0.1:{there.port}/"
            known = json.loads(page(tmp_path, "--json").stdout)
            assert phone.locator("code").inner_text() == known["fingerprint"]
            assert known["addresses"] == [f"https://127.0.0.1:{there.port}/"]
            assert not browser.faults(phone)
            browser.keep(phone, "portal-390-dark")
            phone.get_by_role("button", name="Stay in this network").click()
            phone.get_by_text("Your phone stays in this network").wait_for()
        for probe, (status, body) in PROBES.items():
            answer = call_http(portal, "GET", probe)
            assert answer[0] == status and body in answer[2], probe
        assert call_http(portal, "GET", "/other")[:2] == (302, "/portal")
        german = call_http(portal, "GET", "/portal", **{"Accept-Language": "de-CH"})[2].decode()
        assert '<html lang="de">' in german and "Dies ist das Netz eines Kits" in german


def test_portal_texts_exist_in_each_language() -> None:
    words = json.loads(read_data("fieldagent.agent.portal", "words.json"))
    page_of = read_data("fieldagent.agent.portal", "portal.html").decode()
    values = {"language", "address", "fingerprint", "staying", "asking"}
    wanted = {*re.findall(r"\$(\w+)", page_of)} - values
    assert list(words) == list(LANGUAGES)
    for texts in words.values():
        assert {*texts} == wanted
        assert all(texts.values())


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (
            "ssid=kit-ada\nwpa=2\nwpa_passphrase=four words; of: us\n",
            r"WIFI:T:WPA;S:kit-ada;P:four words\; of\: us;;",
        ),
        (
            "#ssid=old\nssid=a,b\\c\nwpa=2\nsae_password=long enough|vlanid=3\n",
            r"WIFI:T:WPA;S:a\,b\\c;P:long enough;;",
        ),
        ("ssid=open camp\n", "WIFI:T:nopass;S:open camp;;"),
    ],
)
def test_wifi_code_is_made_from_hostapd_conf(tmp_path: Path, content: str, code: str) -> None:
    place = tmp_path / "hostapd.conf"
    place.write_text(content)
    shown = page(tmp_path, "--wifi", str(place), "--json")
    assert json.loads(shown.stdout)["code"] == code


def test_incomplete_hostapd_conf_is_reported(tmp_path: Path) -> None:
    place = tmp_path / "hostapd.conf"
    for content, why in (("wpa=2\n", "no ssid= line"), ("ssid=a\nwpa=2\nwpa_psk=00\n", "neither")):
        place.write_text(content)
        refused = page(tmp_path, "--wifi", str(place))
        assert refused.returncode and why in refused.stderr
    place.unlink()
    assert "no such file" in page(tmp_path, "--wifi", str(place)).stderr
