"""Each text of the pages is in each catalogue, and each catalogue has no other texts."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fieldagent.agent import description as agent_description
from fieldagent.agent.channels.contract import LinkState
from fieldagent.agent.settings import CANNED
from fieldagent.hub import description as hub_description
from fieldagent.hub.part import list_console_parts
from fieldagent.hub.records import kit_report
from fieldagent.package import canned
from fieldagent.page.files import CATALOGUES
from tests.page.texts import bare, catalogue, of_page, of_script, places, unsaid

FORMS = {"uk.json": {"one", "few", "many", "other"}}
"""CLDR's plural categories of a language for integers and other numbers."""
TWO = {"one", "other"}
API = agent_description.describe()
SCHEMAS = API["components"]["schemas"]
HUB = hub_description.describe()
SAID_ELSEWHERE = {"checkIn", "commandAnswer", None}


class Spoken(NamedTuple):
    folder: Path
    shared: tuple[str, ...]
    names: frozenset[str]
    """Strings that look like texts but are names of the API, of keys, headers or languages."""

    def scripts(self) -> list[Path]:
        page = Path(str(files("fieldagent.page")))
        return [*sorted(self.folder.glob("*.js")), *(page / name for name in self.shared)]

    def texts(self) -> dict[str, bool]:
        """Return its texts, each with True if it contains a number."""
        page = self.folder / "index.html"
        phrases = dict.fromkeys(of_page(page.read_text()) if page.exists() else (), False)
        return phrases | {
            each.text: each.is_counted
            for path in self.scripts()
            for each in of_script(path.read_text())
        }


BASE = ("language.js", "text.js")
KIT = Spoken(
    Path(str(files("fieldagent.agent.page"))),
    (
        *BASE,
        "choices.js",
        "coordinates.js",
        "grid.js",
        "map.js",
        "picture.js",
        "reasons.js",
        "stream.js",
        "world.js",
    ),
    frozenset(
        {
            "Accept-Language",
            "Content-Type",
            "Idempotency-Key",
            "Enter",
            "Radio",
            "no service",
            "Deutsch",
            "English",
        }
        | {"Delivered", "Error", "Canceled", "Collapsed", "&state=Error", "Español", "Français"}
        | {"called off", "heard by", "seen by", "entry sent", "entry received", "spent full"}
        | {"not notified"}
    ),
)
ENTRANCE = Spoken(
    Path(str(files("fieldagent.agent.entrance"))),
    (),
    frozenset({"Accept-Language", "Content-Type"}),
)
CONSOLE = Spoken(
    Path(str(files("fieldagent.hub.console"))),
    KIT.shared,
    frozenset(
        {
            "Accept-Language",
            "Content-Type",
            "Date",
            "Idempotency-Key",
            "Message",
            "Data",
            "Location",
            "Deutsch",
            "English",
        }
        | {"User", "Integration", "Resource", "Device", "Notification", "PushManager", "Español"}
        | {"Français", "on its way", "heal satellite", "retry satellite", "in time", "heard by"}
        | {"not notified", "nobody reached", "answer on the kit", "seen at a kit", "called off"}
        | {"taken over", "handed over", "last posted", "row failing", "step failing"}
        | {"cluster troubled", "left out", "Satellite", "Cellular", "Radio"}
    ),
)
PAGES = {
    "kit": KIT,
    "entrance": ENTRANCE,
    "console": CONSOLE,
    **{
        name: Spoken(Path(str(files(package))), (), CONSOLE.names)
        for name, package in list_console_parts().items()
    },
}


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
@pytest.mark.parametrize("language", CATALOGUES)
def test_catalogue_translates_exactly_the_texts_of_the_page(page: Spoken, language: str) -> None:
    wanted, there = page.texts(), catalogue(page.folder / language)["texts"]
    assert set(wanted) - set(there) == set(), "is missing"
    assert set(there) - set(wanted) == set(), "nobody says it"
    for text, said in there.items():
        forms = said if wanted[text] else {"other": said}
        if wanted[text]:
            assert set(said) == FORMS.get(language, TWO), text
        for form in forms.values():
            assert form.strip() == form != "", text
            left = {"{n}"} if wanted[text] else set()
            assert {*places(form)} | left == {*places(text)} | left, (text, form)


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_page_scripts_show_no_untranslatable_text(page: Spoken) -> None:
    for path in page.scripts():
        texts = [each for each in unsaid(path.read_text()) if each.strip() not in page.names]
        assert texts == [], path.name


def test_untranslatable_text_is_detected() -> None:
    assert unsaid('tell("a", "All is lost");') == ["All is lost"]
    assert unsaid("tell(`${count} are left`)") == [" are left"]
    assert unsaid('tell(say("All is lost, {who}", { who: "Nobody" })); // "Not This"') == ["Nobody"]
    with pytest.raises(AssertionError):
        list(of_script("say(what)"))
    assert bare('put("//no"); // "yes"').split() == ['put("//no");']


@pytest.mark.parametrize("language", CATALOGUES)
def test_kit_catalogue_translates_the_terms_of_the_local_api(language: str) -> None:
    sent = SCHEMAS["Sent"]["properties"]["packages"]["items"]["properties"]
    states = [each["properties"]["state"]["enum"] for each in _schemas("IncidentStep", "Incident")]
    people = API["paths"]["/api/people"]["get"]["responses"]["200"]["content"]["application/json"]
    kinds = people["schema"]["properties"]["people"]["items"]["properties"]["kind"]["enum"]
    terms = {
        *(each.value for each in LinkState),
        *sent["status"]["enum"],
        *sent["channels"]["propertyNames"]["enum"],
        *sent["kind"]["enum"],
        *states[0],
        *kinds,
        *CANNED.split("; "),
    }
    # The page does not show `user`.
    assert set(catalogue(KIT.folder / language)["terms"]) == terms - SAID_ELSEWHERE - {"user"}


def _schemas(*names: str) -> list[Any]:
    return [SCHEMAS[name] for name in names]


@pytest.mark.parametrize("language", CATALOGUES)
def test_console_catalogue_translates_the_terms_of_the_hubs_api(language: str) -> None:
    schemas = HUB["components"]["schemas"]
    device, user = (schemas[name]["properties"] for name in ("Device", "User"))
    deliveries = schemas["ItemDeliveries"]["properties"]
    listing = _json(HUB["paths"]["/api/devices/{id}/commands"]["get"]["responses"]["200"])
    command = listing["properties"]["commands"]["items"]["properties"]
    key = _json(HUB["paths"]["/api/keys"]["post"]["requestBody"])["properties"]
    radio_key = schemas["RadioKeyChange"]["properties"]["kits"]["items"]["properties"]
    terms = {
        *device["over"]["enum"],
        *device["checkIn"]["oneOf"][1]["properties"]["state"]["enum"],
        *user["role"]["enum"],
        *user["type"]["enum"],
        *deliveries["webhooks"]["items"]["properties"]["state"]["enum"],
        *command["outcome"]["enum"],
        *key["scopes"]["items"]["enum"],
        *radio_key["state"]["enum"],
        *kit_report.STATES,
        # A kit's channels in its signal reports to the hub.
        *("Cellular", "Radio", "Satellite"),
    }
    # For a person the page shows the role.
    assert set(catalogue(CONSOLE.folder / language)["terms"]) == terms - {"User", None}


def _json(content: Any) -> Any:
    return content["content"]["application/json"]["schema"]


@pytest.mark.parametrize("language", CATALOGUES)
def test_kit_page_and_console_translate_common_texts_alike(language: str) -> None:
    kit, console = (catalogue(each.folder / language) for each in (KIT, CONSOLE))
    for part in ("texts", "words"):
        both = kit[part].keys() & console[part].keys()
        assert {each: kit[part][each] for each in both} == {
            each: console[part][each] for each in both
        }


@pytest.mark.parametrize("page", [KIT, CONSOLE], ids=["kit", "console"])
@pytest.mark.parametrize("language", CATALOGUES)
def test_canned_texts_have_unique_translations(page: Spoken, language: str) -> None:
    """A translated text that is read back must belong to exactly one canned text."""
    words = catalogue(page.folder / language)["words"]
    assert set(words) == {*canned.TEXT_BY_NUMBER.values()} - {"SOS"}
    said = [each.casefold() for each in words.values()]
    assert len(set(said)) == len(said)
    # A word with another meaning in English stays unchanged.
    assert all(words.get(each, each) == each for each in words.values())


def test_page_offers_every_existing_catalogue() -> None:
    script = files("fieldagent.page").joinpath("language.js").read_text()
    (table,) = re.findall(r"LANGUAGES = \{(.*?)\}", script, re.S)
    offered = re.findall(r"(\w+): \"", table)
    assert offered == sorted(offered)
    assert {f"{each}.json" for each in offered} == {*CATALOGUES, "en.json"}
    for page in PAGES.values():
        assert {path.name for path in page.folder.glob("*.json")} >= {*CATALOGUES}
