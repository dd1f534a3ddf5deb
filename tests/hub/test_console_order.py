"""The console with answers and events in any order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.hub.test_console import SECRET, STREAM, Held, console
from tests.hub.test_console_administration import sign_in
from tests.hub.test_console_in_use import DRAWN, World, inside, settled, subject
from tests.processes import administer, until

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with settled(tmp_path_factory.mktemp("hub")) as scene:
        yield scene


@pytest.fixture
def desk(world: World) -> Iterator[Any]:
    """Yield Olga's console."""
    with inside(world, "olga@example.org") as shown:
        yield shown


@pytest.fixture
def office(world: World) -> Iterator[Any]:
    """Yield Ben's console."""
    with inside(world, world.ben) as shown:
        yield shown


class Late:
    """Outdated answers of the hub that are delayed, `many` at most. Later ones pass."""

    def __init__(self, shown: Any, which: str, many: int = 1) -> None:
        self._shown, self._which, self._many = shown, which, many
        self._kept: list[tuple[Any, Any]] = []
        shown.route(which, self._meet)

    def _meet(self, route: Any) -> None:
        if len(self._kept) < self._many:
            self._kept.append((route, route.fetch()))
        else:
            route.continue_()

    def wait(self) -> None:
        until(lambda: self._shown.evaluate("true") and self._kept)

    def release(self) -> None:
        for route, answer in self._kept:
            route.fulfill(response=answer)
        self._shown.evaluate(DRAWN)
        self._shown.unroute(self._which)


def raise_sos(world: World, text: str) -> str:
    """Raise an SOS and return its number."""
    world.kit.call("POST", "/api/sos", {"text": text})
    until(lambda: administer(world.database, "sos", "list", "--state", "open"))
    (row,) = administer(world.database, "sos", "list", "--state", "open")
    return str(row["id"])


def close_sos(world: World, incident: str) -> None:
    administer(world.database, "sos", "close", incident, "over", "--by", "Olga")
    until(lambda: world.kit.call("GET", "/api/sos").body["active"] == 0)


@contextmanager
def open_sos(world: World, text: str) -> Iterator[str]:
    incident = raise_sos(world, text)
    yield incident
    close_sos(world, incident)


PHONE = """
window.Notification = class {
  static permission = "granted";
  constructor() { throw new TypeError("Illegal constructor"); }
};
"""
"""As in Chrome for Android, where only service workers may show notifications."""


def test_sos_rings_in_a_browser_without_page_notifications(world: World) -> None:
    with console(world.opened, world.hub, "390-light") as shown:
        shown.add_init_script(PHONE)
        shown.reload()
        sign_in(shown, "olga@example.org", SECRET.strip())
        shown.get_by_text("No SOS is open.").wait_for()
        # The event must be enough, without a load of all incidents.
        shown.route("**/api/sos?*", lambda route: route.abort())
        with open_sos(world, "on a phone"):
            shown.locator("#sos li.open", has_text="on a phone").wait_for()
            assert shown.title().startswith("1 SOS")


def test_sign_in_works_in_a_browser_without_sound(world: World) -> None:
    with console(world.opened, world.hub, "390-light") as shown:
        shown.add_init_script("delete window.AudioContext")
        shown.reload()
        sign_in(shown, "olga@example.org", SECRET.strip())
        shown.get_by_text("Sound is off: an SOS does not ring here.").wait_for()
        shown.get_by_role("button", name="Test the sound").click()


def test_sos_is_drawn_while_a_pointer_stays_down(world: World, desk: Any) -> None:
    """A pointer stays down after a drag of a scroll bar, or after the menu of the secondary
    button.
    """
    desk.locator("h1").hover()
    desk.mouse.down()
    with open_sos(world, "while a finger is down"):
        desk.locator("#sos li.open", has_text="while a finger is down").wait_for()


def test_delayed_list_of_a_left_page_does_not_block_an_sos(world: World, office: Any) -> None:
    subject(office, "Devices")
    office.locator("#admin-devices li").first.wait_for()
    administer(world.database, "device", "add", "kit-of-late", "--user", "Ada")
    office.evaluate("import('/console/file/devices.js').then(each => { window.mine = each; })")
    office.locator("#subjects").get_by_text("Radio key", exact=True).hover()
    office.mouse.down()
    # Both events arrive while the finger is down, the list first.
    office.evaluate("window.mine.loadDevices()")
    with open_sos(world, "beside a list"):
        until(lambda: office.title().startswith("1 SOS"))
        office.mouse.up()
        office.get_by_role("heading", name="Administration: Radio key").wait_for()
        office.locator("#sos li.open", has_text="beside a list").wait_for()
    administer(world.database, "device", "delete", "kit-of-late", "--yes")


LOOK = "import('/console/file/desk.js').then(desk => { desk.loadDesk(); })"


def test_sos_survives_an_outdated_answer(world: World) -> None:
    """Only the load of all incidents contains the SOS, because the stream has not started."""
    with console(world.opened, world.hub, "1280-light") as shown:
        held = Held(shown, STREAM)
        sign_in(shown, "olga@example.org", SECRET.strip())
        shown.get_by_text("No SOS is open.").wait_for()
        late = Late(shown, "**/api/sos?state=open*")
        shown.evaluate(LOOK)
        late.wait()
        with open_sos(world, "leg broken"):
            shown.evaluate(LOOK)
            shown.locator("#sos li.open", has_text="leg broken").wait_for()
            late.release()
            shown.evaluate(DRAWN)
            assert shown.locator("#sos li.open", has_text="leg broken").is_visible()
        held.release()


def test_closed_card_does_not_return_after_an_outdated_answer(world: World, desk: Any) -> None:
    """The answer to a press is older than the closing, and arrives later."""
    incident = raise_sos(world, "slow answer")
    late = Late(desk, f"**/api/sos/{incident}/acknowledge")
    desk.get_by_role("button", name="Acknowledge").click()
    late.wait()
    close_sos(world, incident)
    desk.get_by_text("No SOS is open.").wait_for()
    with desk.expect_response(f"**/api/sos/{incident}"):
        late.release()
    desk.evaluate(DRAWN)
    assert desk.locator("#sos li").count() == 0
    desk.get_by_text("No SOS is open.").wait_for()


@pytest.mark.full
def test_only_one_event_stream_is_open_after_slow_restarts(world: World, desk: Any) -> None:
    """Two streams would use two of a browser's six connections for weeks."""
    session = Held(desk, "**/console/session")
    desk.route("**/api/events*", lambda route: route.fulfill(status=503, body=""))
    with desk.expect_response("**/api/events*"):
        desk.reload()
        session.release()
    session = Held(desk, "**/console/session")
    session.wait(2)
    desk.unroute("**/api/events*")
    asked: list[str] = []
    desk.on("request", lambda request: asked.append(request.url))
    session.release()
    desk.evaluate(DRAWN)
    until(lambda: desk.evaluate("true") and any("/api/events" in each for each in asked))
    world.kit.post("one of it")
    desk.locator("#items", has_text="one of it").wait_for()
    assert len([each for each in asked if "/api/events" in each]) == 1


@pytest.mark.full
def test_event_stream_resumes_after_repeated_failures(world: World, desk: Any) -> None:
    """A hub restarts behind a proxy, so neither streams nor sessions get an answer."""
    desk.route("**/api/events*", lambda route: route.fulfill(status=502, body=""))
    desk.reload()
    lost: list[Any] = []

    def lose_two(route: Any) -> None:
        lost.append(route)
        if len(lost) > 2:
            route.continue_()
        else:
            route.abort()

    with desk.expect_response("**/api/events*"):
        pass
    desk.route("**/console/session", lose_two)
    until(lambda: desk.evaluate("true") and len(lost) >= 2)
    desk.unroute("**/api/events*")
    with desk.expect_response("**/api/events*"):
        pass
    desk.locator("#away").wait_for(state="hidden")


def lose(shown: Any, which: str, method: str = "GET") -> Callable[[], None]:
    """Fail such requests until the returned function is called."""

    def meet(route: Any) -> None:
        if route.request.method == method:
            route.abort()
        else:
            route.fallback()

    shown.route(which, meet)
    return lambda: shown.unroute(which, meet)


@pytest.mark.full
def test_away_notice_disappears_when_the_hub_answers_again(world: World, desk: Any) -> None:
    """One load failed while the stream of events continued."""
    again = lose(desk, "**/api/devices?*")
    world.kit.post("a look fails")
    desk.locator("#away", has_text="does not answer").wait_for()
    again()
    world.kit.post("and the next does not")
    desk.locator("#away").wait_for(state="hidden")


@pytest.mark.full
def test_unanswered_press_is_reported_as_unknown_result(world: World, desk: Any) -> None:
    """The message stays visible through later loads."""
    with open_sos(world, "unheard"):
        again = lose(desk, "**/acknowledge", "POST")
        desk.get_by_role("button", name="Acknowledge").click()
        notice = desk.locator("#away", has_text="so the result is unknown")
        notice.wait_for()
        assert "Trying again" not in notice.inner_text()
        with desk.expect_response("**/api/positions*"):
            world.kit.post("something comes")
        desk.evaluate(DRAWN)
        assert notice.is_visible()
        again()
        desk.get_by_role("button", name="Acknowledge").click()
        notice.wait_for(state="hidden")


MANY = """
async ([first, many]) => {
  const { came } = await import("/console/file/talk.js");
  const { items: [one] } = await (await fetch("/api/items?limit=1")).json();
  for (let at = 0; at < many; at++) came({ ...one, id: first + at });
}
"""


@pytest.mark.full
def test_length_of_an_open_conversation_is_limited(world: World, desk: Any) -> None:
    world.kit.post("again and again")
    desk.locator("#items", has_text="again and again").wait_for()
    desk.evaluate(MANY, [1_000_000, 900])
    desk.locator("#older").wait_for()
    assert 400 < desk.locator("#items > li").count() < 650
    with desk.expect_response("**/api/items?*before=1000*"):
        desk.locator("#older").click()
    desk.locator("#items", has_text="again and again").wait_for()


def test_older_messages_leave_no_gap_after_a_concurrent_reload(world: World, desk: Any) -> None:
    for number in range(8):
        world.kit.post(f"gap {number}")
    desk.locator("#items", has_text="gap 7").wait_for()

    def short(route: Any) -> None:
        route.continue_(url=route.request.url.replace("limit=50", "limit=2"))

    desk.route("**/api/items?*", short)
    load = "import('/console/file/talk.js').then(talk => talk.loadTalk())"
    desk.evaluate(load)
    desk.locator("#older").click()
    desk.locator("#items", has_text="gap 4").wait_for()
    held = Held(desk, "**/api/items?*before=*")
    desk.locator("#older").click()
    held.wait()
    desk.evaluate(load)
    desk.locator("#items", has_text="gap 4").wait_for(state="detached")
    held.release()
    desk.evaluate(DRAWN)
    said = [text for text in desk.locator("#items > li").all_inner_texts() if "gap" in text]
    numbers = [int(text.rpartition("gap ")[2].split()[0]) for text in said]
    assert numbers == list(range(7, 7 - len(numbers), -1))


def test_sign_in_works_while_the_passkey_request_hangs(world: World) -> None:
    with console(world.opened, world.hub, "1280-light") as shown:
        held = Held(shown, "**/console/passkeys/sign-in")
        shown.reload()
        held.wait()
        sign_in(shown, "olga@example.org", SECRET.strip())
        shown.get_by_text("No SOS is open.").wait_for()
        held.release()


EXPIRED = "document.dispatchEvent(new Event('signed-out'))"


def test_late_401_of_an_earlier_session_does_not_sign_out(world: World, desk: Any) -> None:
    held: list[Any] = []
    desk.route("**/api/positions*", lambda route: route.continue_() if held else held.append(route))
    world.kit.post("a look")
    until(lambda: desk.evaluate("true") and held)
    desk.evaluate(EXPIRED)
    with desk.expect_response("**/api/sos?*"):
        sign_in(desk, "olga@example.org", SECRET.strip())
    held[0].fulfill(status=401, json={"title": "Unauthorized", "status": 401})
    desk.evaluate(DRAWN)
    assert desk.locator("#desk").is_visible()


def test_next_user_sees_nothing_of_an_expired_session(world: World, desk: Any) -> None:
    desk.get_by_label("Text", exact=True).fill("for nobody else")
    desk.evaluate(EXPIRED)
    sign_in(desk, "olga@example.org", SECRET.strip())
    desk.locator("#room").wait_for()
    assert desk.get_by_label("Text", exact=True).input_value() == "for nobody else"
    desk.evaluate(EXPIRED)
    # Olga's content is hidden from the next person.
    held = Held(desk, "**/api/**")
    sign_in(desk, world.ben, SECRET.strip())
    desk.locator("#who", has_text="Ben").wait_for()
    held.wait()
    assert desk.get_by_label("Text", exact=True).input_value() == ""
    assert desk.locator("#kits li, #items li").count() == 0
    held.release()


def test_late_administration_answers_show_no_error_on_another_page(office: Any) -> None:
    def short(route: Any) -> None:
        route.continue_(url=route.request.url.replace("limit=50", "limit=2"))

    office.route("**/api/audit?*", short)
    leave_during_request(office, "Audit log", "#audit-older", "**/api/audit?*before=*")


def leave_during_request(office: Any, where: str, deed: str, which: str) -> None:
    """Press a button of a subject, and go to another page before the answer. Check that the page
    shows no error.
    """
    subject(office, where)
    office.locator("#subject li").first.wait_for()
    held = Held(office, which)
    office.locator(deed).first.click()
    held.wait()
    subject(office, "Users")
    held.release()
    office.locator("#admin-users li").first.wait_for()
    office.evaluate(DRAWN)
    assert office.locator("#away").inner_text() == "", deed


def test_secret_stays_until_saved_despite_a_second_secret(office: Any) -> None:
    subject(office, "API keys")
    for name in ("one", "two"):
        office.get_by_label("Name of the new key").fill(name)
        office.get_by_role("button", name="Add the key").click()
        office.locator("#once-title", has_text=f"The key {name}").wait_for()
    for name in ("two", "one"):
        assert f"The key {name}" in office.locator("#once-title").inner_text()
        assert office.locator("#once-text").input_value()
        office.get_by_role("button", name="I have saved it").click()
    office.locator("#once").wait_for(state="hidden")


def test_success_is_shown_although_the_list_fails_to_load(office: Any) -> None:
    """A person who sees a failure would repeat the action."""
    subject(office, "API keys")
    office.locator("#admin-keys li").first.wait_for()
    again = lose(office, "**/api/keys")
    office.get_by_label("Name of the new key").fill("three")
    office.get_by_role("button", name="Add the key").click()
    office.locator("#act-done", has_text="The key three is added.").wait_for()
    office.locator("#away", has_text="This page may be out of date").wait_for()
    again()


def test_outdated_list_is_not_drawn_after_a_change(world: World, office: Any) -> None:
    for name in ("left", "right"):
        administer(world.database, "key", "add", name, "--read")
    subject(office, "API keys")
    for name in ("left", "right"):
        office.locator("#admin-keys summary", has_text=f"{name} (").first.click()
    revoke = {
        name: office.locator("#admin-keys li", has_text=f"{name} (").get_by_role(
            "button", name="Revoke"
        )
        for name in ("left", "right")
    }
    late = Late(office, "**/api/keys")
    revoke["left"].click()
    late.wait()
    with office.expect_response("**/api/keys/*"):
        revoke["right"].click()
    # Requests that come after it have been answered by then, if they start immediately.
    office.evaluate(DRAWN)
    office.evaluate("fetch('/api/groups').then(answer => answer.text())")
    office.evaluate(DRAWN)
    late.release()
    for name in ("left", "right"):
        office.locator("#admin-keys li", has_text=f"{name} (").get_by_text("revoked").wait_for()


VECTORS = {
    "map": {
        "vector": True, "address": "/api/map/tiles", "highest": 14, "lowest": 0, "name": "Alps",
        "attribution": "", "bounds": None,
    },
    "trouble": None,
}  # fmt: skip


@pytest.mark.full
def test_missing_map_library_is_reported_without_further_errors(world: World) -> None:
    """Positions are shown in any case, and later content causes no error."""
    with console(world.opened, world.hub, "1280-light") as shown:
        shown.route("**/api/map", lambda route: route.fulfill(json=VECTORS))
        shown.route("**/protomaps-leaflet.js", lambda route: route.abort())
        sign_in(shown, "olga@example.org", SECRET.strip())
        shown.locator("#map-trouble", has_text="its library did not load").wait_for()
        for _ in range(2):
            with shown.expect_response("**/api/positions*"):
                world.kit.post("a look")
            shown.evaluate(DRAWN)
        assert shown.locator("#away").inner_text() == ""


@pytest.mark.full
def test_sos_of_the_url_is_shown_after_a_failed_request(world: World, desk: Any) -> None:
    with open_sos(world, "long ago") as incident:
        pass
    asked: list[Any] = []

    def first_lost(route: Any) -> None:
        asked.append(route)
        if len(asked) == 1:
            route.abort()
        else:
            route.continue_()

    desk.route(f"**/api/sos/{incident}", first_lost)
    desk.goto(f"{world.hub.address}/console/sos/{incident}")
    desk.locator("#named", has_text="long ago").wait_for()
    assert len(asked) == 2


def test_refused_command_of_one_kit_is_not_shown_at_another(world: World, office: Any) -> None:
    kit = administer(world.database, "device", "add", "kit-two", "--user", "Ada")["id"]
    office.goto(f"{world.hub.address}/console/kit/1")
    office.get_by_text("Send a command to this kit").click()
    held: list[Any] = []
    office.route("**/commands/cost", lambda route: held.append(route))
    office.locator("#hands-give").click()
    until(lambda: office.evaluate("true") and held)
    office.locator(f"#kit-{kit}").click()
    office.get_by_role("heading", name="Conversation with kit-two").wait_for()
    held[0].fulfill(status=409, json={"title": "Conflict", "status": 409, "detail": "not that kit"})
    office.locator("#away", has_text="not that kit").wait_for()
    assert office.locator("#hands-fault").inner_text() == ""


def test_history_entry_is_shown_once_after_repeated_opening(world: World, desk: Any) -> None:
    with open_sos(world, "of the history") as incident:
        pass
    desk.get_by_text("Closed SOS and alarms").click()
    short = administer(world.database, "sos", "show", incident)["short"]
    entry = desk.locator("#history-list > li", has_text=f"SOS {short} ")
    held = Held(desk, f"**/api/sos/{incident}")
    for many in (1, 1, 2):
        entry.locator("summary").click()
        held.wait(many)
    held.release()
    entry.locator("article").first.wait_for()
    desk.evaluate(DRAWN)
    assert entry.locator("article").count() == 1


@pytest.mark.full
def test_press_on_the_map_survives_a_concurrent_redraw(world: World, desk: Any) -> None:
    world.kit.call("POST", "/api/package", {"location": {"latitude": 46.5, "longitude": 7.5}})
    spot = desk.locator("#map path.spot.other, #map path.spot.troubled").first
    spot.wait_for()
    spot.hover()
    desk.mouse.down()
    desk.evaluate("import('/console/file/fleet.js').then(fleet => fleet.showFleet())")
    desk.mouse.up()
    desk.get_by_role("heading", name="Conversation with kit-ada").wait_for()
