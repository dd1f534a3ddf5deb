"""The hub's console: the sign-in, and a dispatcher's view in Chromium."""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import trustme

from fieldagent.hub.access import directory
from fieldagent.hub.store.opening import open_store
from tests import browser
from tests.page.test_map_file import PIXEL, write_vectors
from tests.processes import PATIENCE, Hub, administer, agent, free_port, frozen, hub, until

SECRET = "correct horse\n"


def settle_in(database: str) -> str:
    """Add the dispatcher Olga, and Ada with a kit. Return the kit's token."""
    administer(database, "init", "Alps")
    administer(database, "user", "add", "Ada")
    for name in ("Olga", "Mia"):
        mail = f"{name.lower()}@example.org"
        administer(database, "user", "add", name, "--email", mail, "--password", secret=SECRET)
    administer(database, "user", "role", "Olga", "dispatcher")
    kit = administer(database, "device", "add", "kit-ada", "--user", "Ada")
    return str(kit["hub-token"])


def call(running: Hub, method: str, path: str, body: Any = None, **headers: str) -> Any:
    """Return status, headers and body."""
    connection = HTTPConnection("127.0.0.1", running.port, timeout=PATIENCE)
    content = None if body is None else json.dumps(body)
    if content is not None:
        headers = {"Content-Type": "application/json", **headers}
    connection.request(method, path, content, headers)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, answer.headers, text


def sign_in(running: Hub, user: str, password: str = SECRET.strip(), **headers: str) -> Any:
    body = {"username": user, "password": password}
    origin = {"Origin": running.address, **headers}
    return call(running, "POST", "/console/session", body, **origin)


def list_foreign_origins(running: Hub) -> list[str]:
    """Return origins that no page of the hub has and no browser sends."""
    host = running.address.partition("://")[2]
    near = [f"//{host}", host, f"ftp://{host}", f"{running.address}/", f"http://a@{host}"]
    return [*near, f"{running.address}, {running.address}", "null", "http://[", "//[", "http://a]b"]


def test_session_belongs_to_its_user_and_rejects_other_sites(tmp_path: Path, database: str) -> None:
    settle_in(database)
    with hub(tmp_path, {"database": database}) as running:
        assert call(running, "GET", "/")[1]["Location"] == "/console"
        page, headers, _ = call(running, "GET", "/console")
        assert page == 200 and "'unsafe" not in headers["Content-Security-Policy"]
        assert sign_in(running, "olga@example.org", "wrong")[0] == 401
        assert sign_in(running, "2")[0] == 401, "Ada has no password"
        assert sign_in(running, "olga@example.org", Origin="https://evil.example")[0] == 403
        assert sign_in(running, "olga@example.org", **{"Sec-Fetch-Site": "cross-site"})[0] == 403
        for origin in list_foreign_origins(running):
            assert sign_in(running, "olga@example.org", Origin=origin)[0] == 403, origin
        status, headers, _ = sign_in(running, "olga@example.org")
        assert status == 204
        cookie, rules = headers["Set-Cookie"].split("; ", 1)
        assert "HttpOnly; SameSite=Strict" in rules
        mine = {"Cookie": cookie}
        assert json.loads(call(running, "GET", "/console/session", **mine)[2])["name"] == "Olga"
        assert call(running, "GET", "/api/items", **mine)[0] == 200
        assert call(running, "GET", "/api/items", Cookie=f"{cookie}x")[0] == 401
        # The cookie alone gives no permission to change anything.
        answer = "/api/sos/1/acknowledge"
        assert call(running, "POST", answer, {}, **mine)[0] == 403
        assert call(running, "POST", answer, {}, **mine, Origin="https://evil.example")[0] == 403
        for origin in list_foreign_origins(running):
            assert call(running, "POST", answer, {}, **mine, Origin=origin)[0] == 403, origin
            assert call(running, "DELETE", "/console/session", Origin=origin)[0] == 204, origin
        assert call(running, "POST", answer, {}, **mine, Origin=running.address)[0] == 404
        # Cookies of other servers of that host do not disturb the session.
        for beside in ("a b=c d", '{"a":[1]}', "=", "", 'a="\\', f"{cookie.partition('=')[0]}x=1"):
            for both in (f"{beside}; {cookie}", f"{cookie};{beside}", f"{cookie}, {beside}"):
                assert call(running, "GET", "/api/items", Cookie=both)[0] == 200, both
        push: dict[str, Any] = {"sourceUserId": "2", "workspaceId": "1", "targetUserId": "2"}
        push["message"] = {"content": "come down"}
        for path in ("/api/package", "/api/package/cost"):
            assert call(running, "POST", path, push, **mine)[0] == 403
            assert (
                call(running, "POST", path, push, **mine, Origin="https://evil.example")[0] == 403
            )
        # With the page's origin, the session pushes in its user's name, once per Idempotency-Key.
        mine["Origin"] = running.address
        assert call(running, "POST", "/api/package", push, **mine)[0] == 403, "Ada is no Olga"
        push["sourceUserId"] = "3"
        (cost,) = json.loads(call(running, "POST", "/api/package/cost", push, **mine)[2])["devices"]
        assert cost == {
            "id": 1,
            "name": "kit-ada",
            "userId": "2",
            "linked": False,
            "satellite": None,
            "expected": None,
        }
        once = {**mine, "Idempotency-Key": "one"}
        where = {call(running, "POST", "/api/package", push, **once)[1]["Location"] for _ in "ab"}
        (standing,) = where
        progress = json.loads(call(running, "GET", standing, **mine)[2])
        assert [each["state"] for each in progress["devices"]] == ["waiting"]
        (item,) = json.loads(call(running, "GET", "/api/pushes", **mine)[2])["pushes"]
        assert item["event"]["content"] == "come down"
        # A member may read but not answer.
        _, headers, _ = sign_in(running, "mia@example.org")
        mia = {"Cookie": headers["Set-Cookie"].partition(";")[0], "Origin": running.address}
        assert call(running, "GET", "/api/sos", **mia)[0] == 200
        assert call(running, "POST", answer, {}, **mia)[0] == 403
        # A sign-out or a new password ends the session.
        assert call(running, "DELETE", "/console/session", **mia)[0] == 204
        assert call(running, "GET", "/api/sos", **mia)[0] == 401
        administer(database, "user", "password", "Olga", secret="another horse\n")
        assert call(running, "GET", "/api/items", **mine)[0] == 401
        _, headers, _ = sign_in(running, "olga@example.org", "another horse")
        mine = {"Cookie": headers["Set-Cookie"].partition(";")[0]}
        store = open_store(database)
        expired = "UPDATE credential SET expires = 1 WHERE kind = 'session'"
        store.run_once(lambda db: db.execute(expired))
        assert call(running, "GET", "/api/items", **mine)[0] == 401
        store.run_once(lambda db: directory.set_disabled(db, "member", 3, 1.0, now=1.0))
        store.close()


def test_administrator_signs_in_and_adds_other_users(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    settle_in(database)
    administer(database, "user", "role", "Olga", "administrator")
    with hub(tmp_path, {"database": database}) as running:
        _, headers, _ = sign_in(running, "olga@example.org")
        olga = {"Cookie": headers["Set-Cookie"].partition(";")[0]}
        eve = {"name": "Eve", "email": "eve@example.org", "role": "dispatcher", "signIn": True}
        assert call(running, "POST", "/api/users", eve, **olga)[0] == 403, "of no page of ours"
        elsewhere = {**olga, "Origin": "https://evil.example"}
        assert call(running, "POST", "/api/users", eve, **elsewhere)[0] == 403
        olga["Origin"] = running.address
        made = json.loads(call(running, "POST", "/api/users", eve, **olga)[2])
        # Her new password is valid for one sign-in, in which she chooses her own.
        key = json.loads(call(running, "POST", "/api/keys", {"name": "x"}, **olga)[2])["apiKey"]

        def pushes(password: str) -> int:
            pair = base64.b64encode(f"{made['id']}:{password}".encode()).decode()
            proof = {"x-api-key": key, "Authorization": f"Basic {pair}"}
            push = {"sourceUserId": made["id"], "workspaceId": "1", "targetUserId": "2"}
            package = {**push, "message": {"content": "hello"}}
            return int(call(running, "POST", "/api/package", package, **proof)[0])

        def signs_in(password: str, **more: str) -> tuple[int, bool]:
            body = {"username": "eve@example.org", "password": password, **more}
            origin = {"Origin": running.address}
            status, _, text = call(running, "POST", "/console/session", body, **origin)
            return status, bool(text) and json.loads(text).get("choose", False)

        assert pushes(made["password"]) == 401
        assert signs_in(made["password"]) == (403, True)
        assert signs_in(made["password"], newPassword="too short") == (422, True)
        assert signs_in(made["password"], newPassword=made["password"]) == (422, True)
        assert signs_in(made["password"], newPassword="a horse of her own") == (204, False)
        assert signs_in(made["password"])[0] == 401
        assert signs_in("a horse of her own") == (204, False)
        assert pushes("a horse of her own") == 200
        lines = json.loads(call(running, "GET", "/api/audit", **olga)[2])["audit"]
        assert [(each["by"]["name"], each["action"]) for each in lines[:3]] == [
            ("Eve", "console sign-in"),
            ("Eve", "console sign-in"),
            ("Eve", "user password"),
        ]
        path = f"/api/users/{made['id']}/password"
        again = json.loads(call(running, "POST", path, **olga)[2])
        store = open_store(database)
        store.run_once(lambda db: db.execute("UPDATE member SET password_until = 1"))
        store.close()
        assert signs_in(again["password"])[0] == 401, "its time is over"
        log = "\n".join(running.output())
        for secret in (made["password"], again["password"], key):
            assert secret not in log


def test_refused_sign_in_does_not_change_the_password(tmp_path: Path) -> None:
    """Olga is in two workspaces. She chooses a new password before she selects a workspace."""
    database = str(tmp_path / "hub.sqlite3")
    settle_in(database)
    administer(database, "workspace", "add", "Andes")
    (olga,) = (
        each["id"]
        for each in administer(database, "user", "list", "--workspace", "Alps")
        if each["name"] == "Olga"
    )
    administer(database, "user", "join", str(olga), "--workspace", "Andes")
    with hub(tmp_path, {"database": database}) as running:
        origin = {"Origin": running.address}
        asked = {"username": "olga@example.org", "password": SECRET.strip()}
        chosen = {"newPassword": "a horse of her own"}
        status, _, text = call(running, "POST", "/console/session", {**asked, **chosen}, **origin)
        assert status == 403 and b"you cannot sign in to that workspace" in text
        into = {**asked, "workspace": "2"}
        assert call(running, "POST", "/console/session", into, **origin)[0] == 204
        assert call(running, "POST", "/console/session", {**into, **chosen}, **origin)[0] == 204
        assert call(running, "POST", "/console/session", into, **origin)[0] == 401


@contextmanager
def console(opened: Any, running: Hub, screen: str, **how: Any) -> Iterator[Any]:
    """Yield the page before the sign-in. An error in it fails the test. `how` contains further
    options of Playwright's context.
    """
    context = opened.new_context(**browser.SCREENS[screen], permissions=["notifications"], **how)
    context.set_default_timeout(PATIENCE * 1000)
    shown = context.new_page()
    shown.add_init_script(NOTED)
    troubles: list[str] = []
    shown.on("pageerror", lambda error: troubles.append(str(error)))
    shown.on(
        "console",
        lambda line: troubles.append(line.text) if browser.is_trouble(line) else None,
    )
    try:
        shown.goto(f"{running.address}/console")
        yield shown
        assert troubles == []
    except BaseException:
        print(shown.locator("body").inner_text())
        raise
    finally:
        browser.close(context, shown)


def press_and_hold(shown: Any, name: str) -> None:
    """Put a finger on a button and leave it there. Try again if the button moved before."""
    button = shown.get_by_role("button", name=name, exact=True)
    for _ in range(9):
        button.hover()
        shown.mouse.down()
        if button.evaluate("button => button.matches(':active')"):
            return
        shown.mouse.up()
        shown.keyboard.press("Escape")
    raise AssertionError(f"the finger always misses {name}")


NOTED = """
window.noted = [];
window.Notification = class {
  static permission = "granted";
  constructor(title, { body }) { window.noted.push(`${title} ${body}`); }
};
"""
"""Replaces the desktop, which is missing in Chromium without a window, and keeps its
notifications."""


def sign_in_as_olga(shown: Any) -> None:
    shown.get_by_label("User number").fill("olga@example.org")
    shown.get_by_label("Password", exact=True).fill(SECRET.strip())
    shown.get_by_role("button", name="Sign in").click()
    shown.get_by_text("No SOS is open.").wait_for()


EACH_MINUTE = """
const every = window.setInterval;
window.setInterval = (act, wait) => every(act, wait === 60000 ? 500 : wait);
"""


NEVER_BY_ITSELF = EACH_MINUTE.replace("500", "1e9")


@pytest.mark.full
def test_read_receipt_is_shown_without_a_reload(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    pushing = administer(database, "init", "Alps")
    ada = administer(database, "user", "add", "Ada")["id"]
    mail = ("--email", "olga@example.org", "--password")
    administer(database, "user", "add", "Olga", *mail, secret=SECRET)
    administer(database, "user", "role", "Olga", "dispatcher")
    token = administer(database, "device", "add", "kit-ada", "--user", "Ada")["hub-token"]
    proof = {"x-api-key": pushing["apiKey"], "Authorization": f"Bearer {pushing['token']}"}
    push = {"sourceUserId": pushing["sourceUserId"], "workspaceId": pushing["workspaceId"]}
    asked = {"targetUserId": ada, "receipt": "read", "message": {"content": "Are you there?"}}
    with (
        browser.browser() as opened,
        hub(tmp_path, {"database": database}) as running,
        console(opened, running, "1280-light") as shown,
    ):
        shown.add_init_script(EACH_MINUTE)
        shown.reload()
        sign_in_as_olga(shown)
        settings = {"satellite-port": None, "hub-address": running.address, "hub-token": token}
        with agent(tmp_path, settings) as kit:
            assert call(running, "POST", "/api/package", {**push, **asked}, **proof)[0] == 200
            line = shown.locator("#items > li", has_text="Are you there?")
            line.wait_for()
            until(lambda: kit.call("GET", "/api/inbound").body["payloads"])
            (came,) = kit.call("GET", "/api/inbound").body["payloads"]
            kit.call("POST", f"/api/inbound/{came['requestId']}/read", {"by": "Ada"})
            line.filter(has_text="read by Ada").wait_for()


@pytest.mark.parametrize("screen", [pytest.param("390-light", marks=pytest.mark.full), "1280-dark"])
def test_dispatcher_sees_an_sos_ring_and_answers(tmp_path: Path, screen: str) -> None:
    database = str(tmp_path / "hub.sqlite3")
    token = settle_in(database)
    with (
        browser.browser() as opened,
        hub(tmp_path, {"database": database}) as running,
        console(opened, running, screen) as shown,
    ):
        shown.get_by_label("User number").fill("olga@example.org")
        shown.get_by_label("Password", exact=True).fill("wrong")
        shown.get_by_role("button", name="Sign in").click()
        shown.get_by_text("name or password is wrong").wait_for()
        sign_in_as_olga(shown)
        shown.locator("#kits").get_by_role("link", name="kit-ada").click()
        shown.locator(
            "#kit-facts", has_text="it has never connected: check its hub-token"
        ).wait_for()
        shown.get_by_role("link", name="Operations").click()
        settings = {"satellite-port": None, "hub-address": running.address, "hub-token": token}
        with agent(tmp_path, settings) as kit:
            kit.post("<b>all well</b>")
            shown.locator("#items").get_by_text("<b>all well</b>").wait_for()
            place = {"latitude": 45.9, "longitude": 7.6, "timestamp": "2026-01-02T03:04:05Z"}
            kit.call("POST", "/api/package", {"location": place})
            shown.locator("#items").get_by_text("(2026-01-02 03:04)").wait_for()
            kit.post("leg broken", priority=100)
            alarm = shown.locator("#sos li.open")
            alarm.locator(".words", has_text="leg broken").wait_for()
            assert shown.title() == "1 SOS · fieldagent console"
            short = kit.call("GET", "/api/sos").body["incident"]["short"]
            assert shown.evaluate("window.noted") == [f"SOS {short}: Ada (kit-ada) leg broken"]
            kit.call("POST", "/api/sos", {"position": {"latitude": "45,9", "longitude": "7 36"}})
            alarm.locator(".thread li", has_text="45.9, 7.6").wait_for()
            assert shown.locator("#sos > li").count() == 1, "one incident"
            steps = administer(database, "sos", "show", "1")["timeline"]
            assert "nobody reached" not in [each["event"] for each in steps], "the console is open"
            assert browser.faults(shown) == []
            browser.keep(shown, f"console-{screen}")
            alarm.get_by_role("button", name="Acknowledge").click()
            shown.locator("#sos li.seen > p", has_text="Seen by Olga").wait_for()
            assert shown.title() == "fieldagent console"
            until(lambda: "seen by" in [each["state"] for each in list_sos_steps(kit)])
            (seen,) = [each for each in list_sos_steps(kit) if each["state"] == "seen by"]
            assert (seen["by"], seen.get("unauthenticated")) == ("Olga", None)
        shown.get_by_text("What happened").click()
        story = shown.locator("#sos details li")
        story.filter(has_text="seen by Olga").wait_for()
        shown.get_by_label("Note on").fill("<i>two are with her</i>")
        shown.get_by_role("button", name="Note").click()
        story.filter(has_text="noted by Olga “<i>two are with her</i>”").wait_for()
        assert shown.get_by_label("Note on").input_value() == ""
        shown.get_by_label("Note on").fill("not yet")
        assert browser.faults(shown) == []
        browser.keep(shown, f"console-story-{screen}")
        shown.emulate_media(media="print", color_scheme="dark")
        assert story.filter(has_text="seen by Olga").is_visible()
        for hidden in ("header", "#room", "#parts", "#sos button >> nth=0", "#sos form >> nth=0"):
            assert not shown.locator(hidden).is_visible(), hidden
        inks = browser.look_of(shown, "#sos > li", "color", "backgroundColor")
        assert inks == ["rgb(0, 0, 0)", "rgb(255, 255, 255)"]
        browser.keep(shown, f"console-print-{screen}")
        shown.emulate_media(media="screen", color_scheme=screen.partition("-")[2])
        shown.get_by_label("Reason to close").fill("in hospital")
        # Another user's act does not remove text that is being written.
        administer(database, "sos", "note", "1", "seen from the air", "--by", "Olga")
        story.filter(has_text="seen from the air").wait_for()
        assert shown.get_by_label("Note on").input_value() == "not yet"
        shown.get_by_role("button", name="Close", exact=True).click()
        shown.get_by_text("No SOS is open.").wait_for()
        shown.get_by_label("Search").fill("BROKEN")
        shown.get_by_label("Search").press("Enter")
        shown.locator("#items li", has_text="all well").wait_for(state="detached")
        assert re.search("SOS leg broken", shown.locator("#items").inner_text())
        shown.get_by_role("button", name="Sign out").click()
        shown.get_by_role("button", name="Sign in").wait_for()
        assert not shown.locator("#desk").is_visible()


@pytest.mark.full
def test_sos_closed_while_the_hub_was_away_stops_ringing(tmp_path: Path) -> None:
    """If a hub is away, a proxy answers instead, and the browser closes the stream of events. The
    console opens a new one, which does not contain earlier events.
    """
    database, port = str(tmp_path / "hub.sqlite3"), free_port()
    token = settle_in(database)
    settings = {"database": database, "port": str(port)}
    with browser.browser() as opened, hub(tmp_path, settings) as running:
        kit = {"satellite-port": None, "hub-address": running.address, "hub-token": token}
        with (
            console(opened, running, "1280-light") as shown,
            agent(tmp_path, kit) as ada,
        ):
            sign_in_as_olga(shown)
            shown.get_by_text("No SOS is open.").wait_for()
            ada.post("leg broken", priority=100)
            shown.locator("#sos li.open .words", has_text="leg broken").wait_for()
            ada.kill()
            shown.route("**/api/events?*", lambda route: route.fulfill(status=502))
            running.kill()
            shown.locator("#away").get_by_text("hub").wait_for()
            administer(database, "sos", "close", "1", "found", "--by", "Olga")
            shown.unroute("**/api/events?*")
            with hub(tmp_path, settings):
                shown.get_by_text("No SOS is open.").wait_for()
                assert shown.title() == "fieldagent console"


@pytest.mark.full
def test_dispatcher_takes_over_an_sos_from_another(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    token = settle_in(database)
    administer(database, "user", "add", "Ben")
    administer(database, "user", "role", "Ben", "dispatcher")
    with browser.browser() as opened, hub(tmp_path, {"database": database}) as running:
        kit = {"satellite-port": None, "hub-address": running.address, "hub-token": token}
        with console(opened, running, "1280-light") as shown, agent(tmp_path, kit) as ada:
            sign_in_as_olga(shown)
            assert ada.call("POST", "/api/sos", {"text": "leg broken"}).status == 201
            shown.locator("#sos li.open .words", has_text="leg broken").wait_for()
            assert shown.get_by_role("button", name="Take it over").count() == 0
            administer(database, "sos", "acknowledge", "1", "--by", "Ben")
            shown.locator("#sos li.seen").get_by_text("Seen by Ben,").wait_for()
            shown.get_by_role("button", name="Take it over").click()
            shown.locator("#sos li.seen").get_by_text("Seen by Olga,").wait_for()
            assert shown.get_by_role("button", name="Take it over").count() == 0

            def last() -> str:
                incident = ada.call("GET", "/api/sos").body["incident"]
                return str(incident["steps"][-1].get("by"))

            until(lambda: last() == "Olga")


@pytest.mark.full
def test_sos_before_the_first_event_stream_rings(tmp_path: Path) -> None:
    """The page has loaded, and the stream of later events has not started yet."""
    database = str(tmp_path / "hub.sqlite3")
    token = settle_in(database)
    with browser.browser() as opened, hub(tmp_path, {"database": database}) as running:
        kit = {"satellite-port": None, "hub-address": running.address, "hub-token": token}
        with console(opened, running, "1280-light") as shown, agent(tmp_path, kit) as ada:
            held = Held(shown, STREAM)
            sign_in_as_olga(shown)
            assert ada.call("POST", "/api/sos", {"text": "leg broken"}).status == 201
            _, headers, _ = sign_in(running, "olga@example.org")
            mine = {"Cookie": headers["Set-Cookie"].partition(";")[0]}
            until(lambda: json.loads(call(running, "GET", "/api/sos?state=open", **mine)[2])["sos"])
            assert shown.locator("#sos li.open").count() == 0
            held.release()
            shown.locator("#sos li.open .words", has_text="leg broken").wait_for()


@pytest.mark.full
def test_hanging_hub_is_shown_and_sos_of_that_time_rings(tmp_path: Path) -> None:
    """No connection ends, as after a network failure. The signs of life are missing."""
    database = str(tmp_path / "hub.sqlite3")
    token = settle_in(database)
    with browser.browser() as opened, hub(tmp_path, {"database": database}) as running:
        kit = {"satellite-port": None, "hub-address": running.address, "hub-token": token}
        with console(opened, running, "1280-light") as shown, agent(tmp_path, kit) as ada:
            sign_in_as_olga(shown)
            shown.get_by_text("No SOS is open.").wait_for()
            shown.evaluate(browser.SIGN_OF_LIFE)
            with frozen(running):
                shown.locator("#away").get_by_text("The hub does not answer").wait_for()
                assert ada.call("POST", "/api/sos", {"text": "leg broken"}).status == 201
            shown.locator("#away").wait_for(state="hidden")
            shown.locator("#sos li.open .words", has_text="leg broken").wait_for()


class Held:
    """Requests of a page that a test delays."""

    def __init__(self, shown: Any, which: str) -> None:
        self._shown, self._which = shown, which
        self._kept: list[Any] = []
        self._holds = True
        self._ended: list[Any] = []
        shown.on("response", lambda response: self._ended.append(response.request))
        shown.on("requestfailed", lambda request: self._ended.append(request))
        shown.route(which, self._meet)

    def _meet(self, route: Any) -> None:
        if self._holds:
            self._kept.append(route)
        else:
            route.continue_()

    def wait(self, many: int = 1) -> None:
        """Wait for that many requests."""
        until(lambda: self._shown.evaluate("true") and len(self._kept) >= many)

    def lose(self) -> None:
        """Fail all of them."""
        self._holds = False
        for route in self._kept:
            route.abort()
        self._shown.unroute(self._which)

    def release(self) -> None:
        """Send each request after the previous one is answered or aborted. The page aborts a
        request that takes too long, and tries again.
        """
        self._holds = False
        for route in self._kept:
            route.continue_()
            until(partial(self._has_ended, route.request))
        self._shown.unroute(self._which)

    def _has_ended(self, request: Any) -> bool:
        return bool(self._shown.evaluate("true")) and request in self._ended


STREAM = "**/api/events?*"


@pytest.mark.full
def test_sos_before_a_reconnected_event_stream_rings(tmp_path: Path) -> None:
    """An earlier load does not contain the SOS, and the stream contains only events after its
    start. The browser may also reconnect before any event had an id.
    """
    database, port = str(tmp_path / "hub.sqlite3"), free_port()
    token = settle_in(database)
    settings = {"database": database, "port": str(port)}
    with browser.browser() as opened, ExitStack() as ends:
        running = ends.enter_context(hub(tmp_path, settings))
        shown = ends.enter_context(console(opened, running, "1280-light"))
        kit = {"satellite-port": None, "hub-address": running.address, "hub-token": token}
        ada = ends.enter_context(agent(tmp_path, kit))

        def raise_sos(text: str) -> None:
            ada.call("POST", "/api/sos", {"text": text})
            until(lambda: administer(database, "sos", "list", "--state", "open"))

        held = Held(shown, STREAM)
        shown.get_by_label("User number").fill("olga@example.org")
        shown.get_by_label("Password", exact=True).fill(SECRET.strip())
        shown.get_by_role("button", name="Sign in").click()
        shown.get_by_role("heading", name="SOS desk").wait_for()
        raise_sos("leg broken")
        held.release()
        shown.locator("#sos li.open .words", has_text="leg broken").wait_for()
        assert shown.title() == "1 SOS · fieldagent console"
        administer(database, "sos", "close", "1", "found", "--by", "Olga")
        shown.get_by_text("No SOS is open.").wait_for()
        # A new page whose stream breaks before the first event.
        shown.reload()
        shown.get_by_text("No SOS is open.").wait_for()
        held = Held(shown, STREAM)
        running.kill()
        ends.enter_context(hub(tmp_path, settings))
        held.wait()
        raise_sos("lost in fog")
        held.release()
        shown.locator("#sos li.open .words", has_text="lost in fog").wait_for()


@pytest.mark.full
def test_sos_between_two_overlapping_loads_stays_visible(tmp_path: Path) -> None:
    """The first load ends last, and started before the SOS."""
    database = str(tmp_path / "hub.sqlite3")
    token = settle_in(database)
    with browser.browser() as opened, hub(tmp_path, {"database": database}) as running:
        kit = {"satellite-port": None, "hub-address": running.address, "hub-token": token}
        with console(opened, running, "1280-light") as shown, agent(tmp_path, kit) as ada:
            sign_in_as_olga(shown)
            held = Held(shown, "**/api/sos?state=seen*")
            look = "import('/console/file/desk.js').then(desk => { desk.loadDesk(); })"
            for many in (1, 2):
                shown.evaluate(look)
                held.wait(many)
            ada.call("POST", "/api/sos", {"text": "leg broken"})
            shown.locator("#sos li.open .words", has_text="leg broken").wait_for()
            held.release()
            # The drawing of both is finished before the next question.
            shown.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
            assert shown.locator("#sos li.open .words", has_text="leg broken").is_visible()


@contextmanager
def tile_server(settings: dict[str, str]) -> Iterator[list[str | None]]:
    """Run a third-party tile server with one picture. Yield the referrers of its requests."""
    asked: list[str | None] = []

    class Tiles(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.headers["Referer"])
            self.send_response(200)
            self.send_header("Content-Type", "image/png")
            self.end_headers()
            self.wfile.write(PIXEL)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Tiles) as server:
        settings["map-tiles"] = f"http://127.0.0.1:{server.server_port}/{{z}}/{{x}}/{{y}}.png?k=1"
        settings["map-attribution"] = "© the mapmakers"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield asked
        finally:
            server.shutdown()


@pytest.mark.full
@pytest.mark.parametrize("screen", ["390-dark", "1280-light"])
def test_dispatcher_sends_a_message_and_sees_its_cost(tmp_path: Path, screen: str) -> None:
    database, port = str(tmp_path / "hub.sqlite3"), free_port()
    token = settle_in(database)
    administer(database, "user", "add", "Ben")
    modem = ("--imei", "300234010000001", "--credits-per-day", "20")
    administer(database, "device", "add", "kit-ben", "--user", "Ben", *modem)
    write_vectors(tmp_path / "alps.pmtiles")
    settings = {"database": database, "port": str(port), "satellite-grace": "3600"}
    with browser.browser() as opened, ExitStack() as ends:
        if screen == "390-dark":
            settings["map-file"] = str(tmp_path / "alps.pmtiles")
        else:
            asked = ends.enter_context(tile_server(settings))
        running = ends.enter_context(hub(tmp_path, settings))
        shown = ends.enter_context(console(opened, running, screen))
        linked = {"satellite-port": None, "hub-address": running.address, "hub-token": token}
        kit = ends.enter_context(agent(tmp_path, linked))
        sign_in_as_olga(shown)
        cost, fault = shown.locator("#cost"), shown.locator("#write-fault")
        shown.locator("#field-content").fill("Storm at noon")
        shown.get_by_role("button", name="Send").click()
        fault.get_by_text("Choose a recipient.").wait_for()
        assert shown.get_by_label("Mia (no device)").is_disabled()
        until(lambda: find_device(database, "kit-ada")["linked"])
        shown.get_by_label("Everyone").check()
        cost.get_by_text("1 device linked now, which costs nothing").wait_for()
        price = cost.inner_text()
        match = re.search(r"by satellite (\d) credits? \(kit-ben: (\d+) bytes in 1 message", price)
        assert match and int(match[1]) == -(-int(match[2]) // 50), price
        assert "of 20 left today" in price
        assert browser.faults(shown) == []
        browser.keep(shown, f"console-write-{screen}")
        shown.get_by_role("button", name="Send").click()
        shown.get_by_text("Sent to Ada, Ben.").wait_for()
        until(lambda: "Storm at noon" in json.dumps(kit.call("GET", "/api/inbound").body))
        # The result of each message.
        mine = shown.locator("#items > li", has_text="Storm at noon")
        mine.nth(1).wait_for()
        mine.first.locator("summary").click()
        mine.last.locator("summary").click()
        shown.locator("#items").get_by_text("on the disk of kit-ada over ip").wait_for()
        shown.locator("#items").get_by_text("waits for kit-ben").wait_for()
        # The hub's own error texts, and one item for all receivers.
        shown.get_by_role("radio", name="Waypoint").check()
        shown.get_by_label("Name").fill("Hut")
        shown.get_by_label("Latitude").fill("95")
        shown.get_by_label("Longitude").fill("7.6")
        shown.get_by_label("Everyone").check()
        shown.get_by_role("button", name="Send").click()
        fault.get_by_text("latitude").wait_for()
        shown.get_by_label("Latitude").fill("45.9")
        shown.get_by_role("button", name="Send").click()
        shown.get_by_text("Sent to everyone.").wait_for()
        shown.locator("#items").get_by_text("Hut, 45.9, 7.6").wait_for()
        # Characters that reverse lines are shown as codes, and the sender is on the map.
        kit.post("all\u202ewell")
        shown.locator("#items").get_by_text("all\\x202ewell").wait_for()
        kit.call("POST", "/api/package", {"location": {"latitude": 45.91, "longitude": 7.61}})
        shown.locator("#places").get_by_text("45.91000, 7.61000").wait_for()
        shown.locator("#map .leaflet-tile-loaded").first.wait_for()
        assert shown.locator("#map .spot").count() == 1
        if screen != "390-dark":
            assert set(asked) == {f"{running.address}/"}
            shown.locator("#map-source").get_by_text("© the mapmakers").wait_for()
        kit.post("leg broken", priority=100)
        # Messages to her appear in the thread with their state.
        shown.get_by_label("Text to Ada, about").fill("<i>Stay</i> where you are")
        shown.locator("#sos").get_by_role("button", name="Write to Ada").click()
        until(lambda: "where you are" in json.dumps(kit.call("GET", "/api/inbound").body))
        thread = shown.locator("#sos .thread li")
        thread.filter(
            has_text=re.compile("Olga: <i>Stay</i> where you are .on the disk of kit-ada")
        ).wait_for()
        said = [text for text in thread.all_inner_texts() if "raised" not in text]
        assert "Ada: leg broken" in said[0] and "Olga: " in said[-1]
        # A canned text is selected and can be changed before it is sent.
        often = shown.get_by_label("Standard texts to Ada, about")
        often.select_option("help is on its way")
        assert shown.get_by_label("Text to Ada, about").input_value() == "help is on its way"
        shown.locator("#sos").get_by_role("button", name="Write to Ada").click()
        until(lambda: "help is on its way" in json.dumps(kit.call("GET", "/api/inbound").body))
        # A position in the thread shows its source.
        place = {"latitude": 46.5, "longitude": 7.25, "source": "gps"}
        kit.call("POST", "/api/sos", {"position": place})
        thread.filter(has_text="46.5, 7.25, by the kit's GPS").wait_for()
        shown.get_by_label("Ada", exact=True).check()
        shown.get_by_role("radio", name="Message").check()
        shown.locator("#field-content").fill("We are coming")
        # With the hub away nothing is lost, and no receiver gets it twice.
        ends_of = running.kill()
        assert ends_of != 0
        shown.get_by_role("button", name="Send").click()
        fault.get_by_text("Press Send again").wait_for()
        ends.enter_context(hub(tmp_path, settings))
        until(lambda: send_again(shown))
        until(lambda: "We are coming" in json.dumps(kit.call("GET", "/api/inbound").body))
        inbound = json.dumps(kit.call("GET", "/api/inbound").body)
        assert inbound.count("We are coming") == 1


def send_again(shown: Any) -> bool:
    shown.get_by_role("button", name="Send").click()
    shown.locator("#send:enabled").wait_for()
    return "Sent to Ada" in shown.locator("#write-done").inner_text()


def find_device(database: str, name: str) -> Any:
    (device,) = [each for each in administer(database, "device", "list") if each["name"] == name]
    return device


def list_sos_steps(kit: Any) -> list[dict[str, Any]]:
    """Return the steps of its SOS."""
    incident = kit.call("GET", "/api/sos").body["incident"]
    return list(incident["steps"]) if incident else []


@contextmanager
def authenticator(shown: Any) -> Iterator[None]:
    """Add Chromium's virtual phone or security key, which unlocks immediately."""
    pytest.importorskip("webauthn", reason="needs the extra `passkeys`")
    session = shown.context.new_cdp_session(shown)
    session.send("WebAuthn.enable")
    options = {
        "protocol": "ctap2",
        "transport": "internal",
        "hasResidentKey": True,
        "hasUserVerification": True,
        "isUserVerified": True,
        "automaticPresenceSimulation": True,
    }
    session.send("WebAuthn.addVirtualAuthenticator", {"options": options})
    yield
    session.detach()


@pytest.mark.full
def test_added_passkey_signs_in_until_removed(tmp_path: Path) -> None:
    """Chromium uses a hub with TLS and a name. The passkey is invalid after its removal and after a
    new password.
    """
    database = str(tmp_path / "hub.sqlite3")
    settle_in(database)
    authority, port = trustme.CA(), free_port()
    issued = authority.issue_cert("localhost")
    (tmp_path / "chain.pem").write_bytes(b"".join(each.bytes() for each in issued.cert_chain_pems))
    (tmp_path / "key.pem").write_bytes(issued.private_key_pem.bytes())
    settings = {
        "database": database,
        "port": str(port),
        "tls-certificate": str(tmp_path / "chain.pem"),
        "tls-key": str(tmp_path / "key.pem"),
        "console-address": f"https://localhost:{port}",
    }
    with browser.browser() as opened, hub(tmp_path, settings):
        context = opened.new_context(ignore_https_errors=True)
        context.set_default_timeout(PATIENCE * 1000)
        shown = context.new_page()
        shown.goto(f"https://localhost:{port}/console")
        with authenticator(shown):
            sign_in_as_olga(shown)
            shown.get_by_role("link", name="Passkeys").click()
            shown.get_by_label("Name of this device").fill("Olga's phone")
            shown.get_by_role("button", name="Add a passkey").click()
            shown.get_by_text("Olga's phone, since").wait_for()
            assert browser.faults(shown) == []

            def sign_out() -> None:
                shown.get_by_role("button", name="Sign out").click()
                shown.get_by_role("button", name="Use a passkey").wait_for()

            def sign_in_again() -> None:
                shown.get_by_role("button", name="Use a passkey").click()

            for _ in range(2):
                sign_out()
                sign_in_again()
                shown.get_by_text("No SOS is open.").wait_for()
                shown.get_by_text("used last").wait_for()
            administer(database, "user", "password", "Olga", secret="another horse\n")
            shown.reload()
            sign_in_again()
            shown.get_by_text("the hub does not know this passkey").wait_for()
            assert [each["action"] for each in administer(database, "audit")].count(
                "passkey add"
            ) == 1
        context.close()
