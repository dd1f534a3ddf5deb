"""The console in the reader's language, in a real browser."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from tests import browser
from tests.hub.raising import BEHIND
from tests.hub.test_console import SECRET, Held, console, settle_in
from tests.processes import hub

pytestmark = pytest.mark.full


def load_catalogue(language: str) -> dict[str, dict[str, Any]]:
    path = files("fieldagent.hub.console").joinpath(f"{language}.json")
    document: dict[str, dict[str, Any]] = json.loads(path.read_bytes())
    return document


def choose_language(shown: Any, language: str) -> None:
    shown.locator("#choices summary").click()
    shown.locator("#choice-language").select_option(language)
    shown.wait_for_function("code => document.documentElement.lang === code", arg=language)


def test_refusal_of_the_hub_is_shown_in_the_chosen_language(tmp_path: Path) -> None:
    """The chosen language differs from the browser's. Each fault names its field."""
    database = str(tmp_path / "hub.sqlite3")
    settle_in(database)
    texts = load_catalogue("de")["texts"]
    with (
        browser.browser() as opened,
        hub(tmp_path, {"database": database, **BEHIND}) as running,
        console(opened, running, "390-light", locale="fr-FR") as shown,
    ):
        choose_language(shown, "de")
        shown.get_by_label(texts["User number or e-mail address"]).fill("olga@example.org")
        shown.get_by_label(texts["Password"]).fill("wrong")
        shown.get_by_role("button", name=texts["Sign in"]).click()
        shown.get_by_text("Name oder Passwort ist falsch").wait_for()
        shown.get_by_label(texts["Password"]).fill(SECRET.strip())
        receivers = Held(shown, "**/api/users?*")
        shown.get_by_role("button", name=texts["Sign in"]).click()
        receivers.wait()
        shown.get_by_label(texts["Waypoint"], exact=True).check()
        assert shown.locator("#everyone").is_disabled(), "a press would choose nobody, unseen"
        receivers.release()
        shown.locator("#everyone").check()
        for name, value in {"name": "Hut", "latitude": "91", "longitude": "8.5"}.items():
            shown.locator(f"#field-{name}").fill(value)
        shown.locator("#send").click()
        said = "Breite muss von -90 bis 90 Grad sein"
        shown.locator("#write-fault").get_by_text(said, exact=True).wait_for()
        shown.locator("#field-latitude").fill("32T MT 65356 47001")
        shown.locator("#field-latitude").press("Tab")
        shown.wait_for_function("() => document.getElementById('field-longitude').value !== '8.5'")
        assert shown.locator("#field-latitude").input_value().startswith("47.3755")
