"""The console during its use: new events and a second press neither undo nor double anything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests import browser
from tests.hub.raising import kit_of
from tests.hub.test_console import SECRET, Held, console, settle_in
from tests.hub.test_console_administration import sign_in
from tests.processes import Agent, Hub, administer, agent, hub, until

pytestmark = pytest.mark.full

DRAWN = "new Promise(done => requestAnimationFrame(() => setTimeout(done)))"
"""Waits until the effects of an answer are drawn."""


class World(NamedTuple):
    """Olga is a dispatcher, Ben an administrator, and Ada has a linked kit."""

    opened: Any
    hub: Hub
    kit: Agent
    database: str
    ben: str


@contextmanager
def settled(home: Path) -> Iterator[World]:
    """Yield a hub with these people, and a browser without a session."""
    database = str(home / "hub.sqlite3")
    token = settle_in(database)
    ben = str(administer(database, "user", "add", "Ben")["id"])
    administer(database, "user", "password", "Ben", secret=SECRET)
    administer(database, "user", "role", "Ben", "administrator")
    with (
        browser.browser() as opened,
        hub(home, {"database": database}) as running,
        agent(home, kit_of(running, token)) as kit,
    ):
        yield World(opened, running, kit, database, ben)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with settled(tmp_path_factory.mktemp("hub")) as scene:
        yield scene


@contextmanager
def inside(world: World, name: str) -> Iterator[Any]:
    """Yield a signed-in page that accepts each question."""
    with console(world.opened, world.hub, "1280-light") as shown:
        shown.on("dialog", lambda dialog: dialog.accept())
        sign_in(shown, name, SECRET.strip())
        shown.locator("#kits li").first.wait_for()
        yield shown


@pytest.fixture(scope="module")
def olgas(world: World) -> Iterator[Any]:
    with inside(world, "olga@example.org") as shown:
        yield shown


@pytest.fixture(scope="module")
def bens(world: World) -> Iterator[Any]:
    with inside(world, world.ben) as shown:
        yield shown


def reload_console(shown: Any, running: Hub) -> Any:
    shown.unroute_all()
    shown.goto(f"{running.address}/console")
    shown.locator("#kits li").first.wait_for()
    return shown


@pytest.fixture
def desk(world: World, olgas: Any) -> Any:
    """Return Olga's console."""
    return reload_console(olgas, world.hub)


@pytest.fixture
def office(world: World, bens: Any) -> Any:
    """Return Ben's console."""
    return reload_console(bens, world.hub)


@pytest.fixture
def incident(world: World) -> Iterator[str]:
    """Yield the number of an SOS of Ada's kit, and close it at the end."""
    world.kit.call("POST", "/api/sos", {"text": "constructor"})
    until(lambda: administer(world.database, "sos", "list", "--state", "open"))
    (row,) = administer(world.database, "sos", "list", "--state", "open")
    yield str(row["id"])
    administer(world.database, "sos", "close", str(row["id"]), "over", "--by", "Olga")
    until(lambda: world.kit.call("GET", "/api/sos").body["active"] == 0)


def receive_kit_message(world: World, shown: Any, at: int) -> None:
    """Let a message of the kit arrive, so that its card is redrawn."""
    place = {"latitude": 46.5, "longitude": at}
    world.kit.call("POST", "/api/sos", {"position": place})
    shown.locator("#sos .thread li", has_text=f"46.5, {at}").wait_for()


def subject(shown: Any, name: str) -> None:
    shown.locator("header").get_by_role("link", name="Administration").click()
    shown.locator("#subjects").get_by_text(name, exact=True).click()
    shown.get_by_role("heading", name=f"Administration: {name}").wait_for()


def test_text_typed_at_the_desk_survives_new_events(world: World, desk: Any, incident: str) -> None:
    desk.get_by_role("button", name="Acknowledge").click()
    held = Held(desk, "**/api/users*")
    desk.get_by_role("button", name="Hand over").click()
    held.wait()
    receive_kit_message(world, desk, 7)
    held.release()
    words = desk.locator(f"#sos-heir-note-{incident}")
    words.fill("heli at 14:00")
    desk.locator(f"#sos-heir-{incident}").select_option("Ben")
    receive_kit_message(world, desk, 8)
    assert words.input_value() == "heli at 14:00"
    assert desk.locator(f"#sos-heir-{incident} option:checked").inner_text() == "Ben"
    # A second press closes the form. The other controls were there all the time.
    desk.get_by_role("button", name="Hand over").click()
    words.wait_for(state="detached")
    # A note is written once, even if its card is redrawn meanwhile.
    desk.get_by_text("What happened").click()
    note = desk.locator(f"#sos-note-{incident}")
    for ends in ("", "of three"):
        note.fill("one")
        held = Held(desk, "**/note")
        desk.get_by_role("button", name="Note", exact=True).click()
        held.wait()
        if ends:
            note.fill(ends)
        else:
            receive_kit_message(world, desk, 9)
        held.release()
        desk.evaluate(DRAWN)
        assert note.input_value() == ends


def test_text_named_like_an_object_property_is_shown(desk: Any, incident: str) -> None:
    desk.locator("#sos .thread li", has_text="Ada: constructor").wait_for()
    desk.locator("#items li", has_text="SOS constructor").first.wait_for()


def test_unsubmitted_search_text_does_not_filter_new_items(world: World, desk: Any) -> None:
    desk.get_by_label("Search").type("summit")
    world.kit.post("camp reached")
    desk.locator("#items").get_by_text("camp reached").wait_for()


def test_empty_lists_are_not_reported_before_the_hub_answers(world: World) -> None:
    """The lists of kits, messages and positions behave the same."""
    with console(world.opened, world.hub, "1280-light") as shown:
        held = [Held(shown, f"**/api/{each}?*") for each in ("devices", "items", "positions")]
        shown.goto(f"{world.hub.address}/console/kit/1")
        sign_in(shown, "olga@example.org", SECRET.strip())
        for each in held[:2]:
            each.wait()
        shown.get_by_label("Find a kit").type("a")
        shown.evaluate(DRAWN)
        text = shown.locator("#room").inner_text()
        for words in ("No kit", "Nothing was said", "No position has arrived"):
            assert words not in text
        for each in held:
            each.release()
        shown.get_by_role("heading", name="Conversation with kit-ada").wait_for()


def test_older_entries_are_loaded_once_despite_repeated_clicks(
    world: World, desk: Any, office: Any
) -> None:
    """The history and the audit log have two entries per page here."""

    def short(route: Any) -> None:
        route.continue_(url=route.request.url.replace("limit=50", "limit=2").replace("20&", "1&"))

    for raised in ("one", "two", "three"):
        world.kit.call("POST", "/api/sos", {"text": raised})
        until(lambda: administer(world.database, "sos", "list", "--state", "open"))
        (row,) = administer(world.database, "sos", "list", "--state", "open")
        administer(world.database, "sos", "close", str(row["id"]), "over", "--by", "Olga")
        until(lambda: world.kit.call("GET", "/api/sos").body["active"] == 0)
    desk.route("**/api/sos?state=closed*", short)
    desk.get_by_text("Closed SOS and alarms").click()
    office.route("**/api/audit*", short)
    subject(office, "Audit log")
    for shown, which, button, lines in (
        (desk, "**/api/sos?*before=*", "#history-older", "#history-list > li"),
        (office, "**/api/audit?*before=*", "#audit-older", "#admin-audit > li"),
    ):
        shown.locator(button).wait_for()
        held = Held(shown, which)
        shown.locator(button).dblclick()
        held.wait()
        held.release()
        shown.evaluate(DRAWN)
        texts = shown.locator(lines).all_inner_texts()
        assert len(texts) == len(set(texts))


def test_price_of_another_command_is_not_shown(office: Any) -> None:
    office.locator("#kits a").first.click()
    office.get_by_text("Send a command to this kit").click()
    held: list[Any] = []
    office.route("**/commands/cost", lambda route: held.append(route))
    office.locator("#hands-give").click()
    until(lambda: office.evaluate("true") and held)
    office.locator("#hands-what").select_option("reboot")
    price = {"linked": False, "reached": True, "fits": True, "credits": 3, "creditsLeft": None}
    held[0].fulfill(json={**price, "down": 9, "up": 120})
    office.locator("#hands-give:not([disabled])").wait_for()
    assert office.locator("#hands-give").inner_text() == "Send"
    assert office.locator("#hands-cost").inner_text() == ""


def test_selection_and_text_survive_a_finished_request(world: World, office: Any) -> None:
    for name in ("relay", "store"):
        administer(world.database, "user", "add", name, "--type", "Integration")
        administer(world.database, "user", "token", "add", name, "--user", name)
    subject(office, "Tokens of programs")
    held = Held(office, "**/api/tokens/*")
    office.get_by_role("button", name="Revoke").first.click()
    held.wait()
    office.get_by_label("For whom").select_option("store")
    held.release()
    office.locator("#act-done").get_by_text("is revoked").wait_for()
    assert office.locator("#new-token-userId option:checked").inner_text() == "store"
    # Text that is typed during the first request belongs to the next token.
    name = office.get_by_label("Name of the new token")
    name.fill("first")
    held = Held(office, "**/api/tokens")
    office.get_by_role("button", name="Add the token").click()
    name.fill("second")
    held.release()
    office.locator("#once-title", has_text="The token first").wait_for()
    assert name.input_value() == "second"


def test_late_answer_shows_no_error_and_keeps_the_secret(world: World, office: Any) -> None:
    """The answer arrives when the page already shows another subject."""
    subject(office, "Devices")
    office.locator("#new-device-userId").wait_for()
    held = Held(office, "**/api/devices?*")
    subject(office, "Radio key")
    subject(office, "Devices")
    held.wait()
    subject(office, "Users")
    held.release()
    office.evaluate(DRAWN)
    assert not office.locator("#away").is_visible()
    subject(office, "Tokens of programs")
    office.get_by_label("Name of the new token").fill("third")
    held = Held(office, "**/api/tokens")
    office.get_by_role("button", name="Add the token").click()
    held.wait()
    subject(office, "Users")
    held.release()
    office.locator("#once-title", has_text="The token third").wait_for()
    office.evaluate(DRAWN)
    assert not office.locator("#away").is_visible()


def test_refused_event_stream_keeps_the_typed_text(world: World, office: Any) -> None:
    """The console starts again for the same person."""
    office.route("**/api/events*", lambda route: route.fulfill(status=503, body=""))
    office.goto(f"{world.hub.address}/console/administration/users")
    office.get_by_label("Name of the new user").fill("Eve")
    with office.expect_response("**/console/session"):
        pass
    office.evaluate(DRAWN)
    assert office.get_by_label("Name of the new user").input_value() == "Eve"


def test_open_filter_list_survives_an_update(
    world: World, desk: Any, request: pytest.FixtureRequest
) -> None:
    """Only the numbers in the list change."""
    option = desk.locator("#kit-show option", has_text="In trouble")
    desk.locator("#kit-show option", has_text="SOS (0)").wait_for(state="attached")
    option.evaluate("each => { window.mine = each; }")
    request.getfixturevalue("incident")
    desk.locator("#kit-show option", has_text="SOS (1)").wait_for(state="attached")
    assert desk.evaluate("window.mine.isConnected")


SENDING = ("POST", "PATCH", "DELETE", "PUT")


def _key(request: Any) -> tuple[str, str, str]:
    return request.method, request.url, request.post_data or ""


class Twice:
    """Presses a sending control twice while the first request, whose answer is then lost, is in
    transit.
    """

    def __init__(self, shown: Any) -> None:
        self.shown = shown
        self._held: list[Any] = []
        self._lost: set[tuple[str, str, str]] = set()
        """Aborted requests, some of which the page repeats by itself."""
        for path in ("api", "console"):
            shown.route(f"**/{path}/**", self._meet)

    def _meet(self, route: Any) -> None:
        request = route.request
        if request.method not in SENDING or request.url.endswith("/cost"):
            route.continue_()
        elif _key(request) in self._lost:
            route.abort()
        else:
            self._held.append(route)

    def _lose(self) -> None:
        while self._held:
            route = self._held.pop()
            self._lost.add(_key(route.request))
            route.abort()

    def press(self, button: Any) -> None:
        name = button.get_attribute("id") or button.inner_text()
        self._lose()
        button.scroll_into_view_if_needed()
        button.evaluate("each => { each.click(); each.click(); }")
        until(lambda: self.shown.evaluate("true") and self._held)
        button.evaluate("each => each.isConnected && each.click()")
        self.shown.evaluate(DRAWN)
        assert len(self._held) == 1, name
        self._lose()
        self.shown.evaluate(DRAWN)


SUBJECTS = {
    "Devices": 6, "Users": 5, "API keys": 3, "Tokens of programs": 2, "Webhooks": 1,
}  # fmt: skip
"""Minimum number of sending controls of each subject."""


def test_double_press_sends_once_in_the_administration(world: World, office: Any) -> None:
    administer(world.database, "key", "add", "relay", "--read")
    press_each_twice(office, SUBJECTS)


def press_each_twice(office: Any, subjects: dict[str, int]) -> None:
    """Press each button of these subjects twice. The values are the smallest numbers of buttons."""
    twice = Twice(office)
    for name, least in subjects.items():
        subject(office, name)
        office.locator("#subject li").first.wait_for()
        for fold in office.locator("#subject li > details").all()[:2]:
            fold.locator("summary").first.click()
            fold.locator("button").first.wait_for()
        ids = office.locator("#subject button:visible").evaluate_all(
            "all => all.map(each => each.id)"
        )
        assert len(ids) >= least, (name, ids)
        for each in ids:
            twice.press(office.locator(f"#{each}"))


def test_double_press_sends_once_at_the_desk(world: World, desk: Any, incident: str) -> None:
    desk.get_by_role("button", name="Acknowledge").click()
    desk.get_by_role("button", name="Hand over").click()
    desk.get_by_text("What happened").click()
    twice = Twice(desk)
    for field, button in (
        (f"#sos-words-{incident}", f"#sos-write-{incident}"),
        (f"#sos-heir-note-{incident}", f"#sos-heir-ask-{incident}"),
        (f"#sos-note-{incident}", f"#sos-note-give-{incident}"),
        (f"#sos-reason-{incident}", f"#sos-close-{incident}"),
        ("#field-content", "#send"),
    ):
        desk.locator(field).fill("words")
        if button == "#send":
            desk.locator("#people").get_by_label("Ada").check()
        twice.press(desk.locator(button))


def test_narrowest_screen_with_large_text_needs_no_horizontal_scrolling(
    world: World, incident: str
) -> None:
    """The language has long words, and a person has entered a long word."""
    world.kit.call("POST", "/api/sos", {"text": "Donaudampfschifffahrtsgesellschaft"})

    with console(world.opened, world.hub, "390-light", locale="uk") as shown:
        shown.set_viewport_size({"width": 320, "height": 900})
        shown.locator("[name=username]").fill(world.ben)
        shown.locator("[name=password]").fill(SECRET.strip())
        shown.locator("#enter button").first.click()
        shown.locator("#sos li.open", has_text="Donau").wait_for()
        for place in ("", "/fleet", "/administration/devices"):
            shown.goto(f"{world.hub.address}/console{place}")
            shown.locator("#sos li.open", has_text="Donau").wait_for()
            shown.locator("#kits li, #figures-kits tr, #subject li").first.wait_for(
                state="attached"
            )
            shown.locator("#choices summary").click()
            for size in ("100%", "200%"):
                shown.evaluate(f"document.documentElement.style.fontSize = '{size}'")
                wide = "document.documentElement.scrollWidth"
                assert shown.evaluate(wide) == 320, (place, size)
        # On paper there are no controls.
        shown.goto(f"{world.hub.address}/console")
        shown.locator("#sos li.open").wait_for()
        shown.emulate_media(media="print")
        assert shown.locator("button:visible, input:visible").count() == 0


def test_double_press_signs_in_once(world: World) -> None:
    with console(world.opened, world.hub, "1280-light") as shown:
        shown.locator("[name=username]").fill("olga@example.org")
        shown.locator("[name=password]").fill(SECRET.strip())
        Twice(shown).press(shown.locator("#enter button").first)
