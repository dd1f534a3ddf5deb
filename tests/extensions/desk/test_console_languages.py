"""The console and the messages to contacts in the reader's language, in a real browser."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fieldagent.extensions.desk.hub.language import translate, translate_canned
from tests import browser
from tests.extensions.desk.test_contacts import LINK
from tests.hub.raising import BEHIND, kit_of
from tests.hub.relay import mail_relay
from tests.hub.test_console import SECRET, console, settle_in
from tests.hub.test_console_languages import choose_language, load_catalogue
from tests.processes import PATIENCE, Hub, administer, agent, hub, until

pytestmark = pytest.mark.full


@pytest.mark.parametrize(
    ("locale", "words"),
    [("uk-UA", "травма"), pytest.param("de-DE", "Verletzung", marks=pytest.mark.full)],
)
def test_sos_rings_and_is_answered_in_the_reader_language(
    tmp_path: Path, locale: str, words: str
) -> None:
    language = locale[:2]
    texts = load_catalogue(language)["texts"]
    database = str(tmp_path / "hub.sqlite3")
    token = settle_in(database)
    administer(database, "contact", "add", "Duty", "duty@example.org", "--language", language)
    with (
        mail_relay() as relay,
        browser.browser() as opened,
        hub(tmp_path, {"database": database, **relay.settings, **BEHIND}) as running,
        console(opened, running, "390-light", locale=locale, timezone_id="Europe/Kyiv") as shown,
    ):
        shown.get_by_label(texts["User number or e-mail address"]).fill("olga@example.org")
        shown.get_by_label(texts["Password"]).fill(SECRET.strip())
        shown.get_by_role("button", name=texts["Sign in"]).click()
        shown.get_by_text(texts["No SOS is open."]).wait_for()
        assert shown.evaluate("document.documentElement.lang") == language
        assert shown.evaluate("document.documentElement.dir") == "ltr"
        with agent(tmp_path, kit_of(running, token)) as kit:
            assert kit.call("POST", "/api/sos", {"text": "injury"}).status == 201
            card = shown.locator("#sos > li.open")
            # Texts that are sent as numbers appear in each reader's language, and times are local.
            card.locator(".thread").get_by_text(words).wait_for()
            assert "UTC" not in card.locator("strong").inner_text()
            until(lambda: int(shown.locator("#sound-test").get_attribute("data-beeps") or 0) > 1)
            assert shown.title() == f"1 SOS · {texts['fieldagent console']}"
            assert browser.faults(shown) == []
            browser.keep(shown, f"console-sos-{language}")
            mail = relay.mail()
            short = kit.call("GET", "/api/sos").body["incident"]["short"]
            assert mail["Content-Language"] == language
            assert mail["Subject"] == translate(
                language, "{what} of {device}", what=f"SOS {short}", device="kit-ada"
            )
            text = mail.get_content()
            assert words in text
            assert (
                translate(language, "The link is personal, works once, and asks you to confirm.")
                in text
            )
            (link,) = LINK.findall(text)
            answer_by_link(opened, running, link, language, words, f"SOS {short}")
            seen = texts["Seen by {who}, {time}"].partition("{time}")[0].replace("{who}", "Duty")
            shown.locator("#sos > li.seen").get_by_text(seen).wait_for()
            # The contact's answer in their language reaches the kit with its meaning.
            until(lambda: "help is on its way" in json.dumps(kit.call("GET", "/api/sos").body))
            # The choice is kept.
            choose_language(shown, "es")
            shown.locator("#sos").get_by_text("Visto por Duty,").wait_for()
            shown.reload()
            shown.locator("#sos").get_by_text("Visto por Duty,").wait_for()
            choose_language(shown, "en")
            shown.locator("#sos").get_by_text("Seen by Duty,").wait_for()


def answer_by_link(
    opened: Any, running: Hub, link: str, language: str, words: str, title: str
) -> None:
    """Answer as a person whose browser prefers that language."""
    context = opened.new_context(
        locale=language,
        timezone_id="Europe/Kyiv",
        extra_http_headers={"Accept-Language": f"it, {language};q=0.9, en;q=0.8"},
    )
    context.set_default_timeout(PATIENCE * 1000)
    shown = context.new_page()
    shown.goto(f"{running.address}{link}")
    assert shown.evaluate("document.documentElement.lang") == language
    shown.locator("time[title$=Z]").first.wait_for()
    shown.get_by_text(translate(language, "Text: {text}", text=words)).wait_for()
    shown.get_by_label(translate(language, "Message to the kit (optional)")).fill(
        translate_canned(language, "help is on its way")
    )
    browser.keep(shown, f"answer-{language}")
    shown.get_by_role("button", name=translate(language, "Take over")).click()
    shown.get_by_role(
        "heading", name=translate(language, "You have taken over {what}", what=title)
    ).wait_for()
    context.close()


def test_failed_notification_is_explained_in_the_reader_language(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    token = settle_in(database)
    administer(database, "contact", "add", "Duty", "duty@example.org")
    with mail_relay() as relay:
        gone = relay.settings
    texts = load_catalogue("de")["texts"]
    with (
        browser.browser() as opened,
        hub(tmp_path, {"database": database, **gone, **BEHIND}) as running,
        console(opened, running, "390-light", locale="de-AT") as shown,
        agent(tmp_path, kit_of(running, token)) as kit,
    ):
        shown.get_by_label(texts["User number or e-mail address"]).fill("olga@example.org")
        shown.get_by_label(texts["Password"]).fill(SECRET.strip())
        shown.get_by_role("button", name=texts["Sign in"]).click()
        assert kit.call("POST", "/api/sos", {"text": "no signal"}).status == 201
        card = shown.locator("#sos > li.open")
        # Texts by people stay unchanged.
        card.locator(".thread").get_by_text("no signal").wait_for()
        card.locator("summary").click()
        entry = card.locator("details li").filter(has_text="der Mail-Server")
        entry.get_by_text("Verbindung abgelehnt").wait_for()
        assert "neuer Versuch in " in entry.inner_text()
        assert "Duty (per E-Mail)" in entry.inner_text()
