"""The reasons why a Package waits or failed, in the person's language, in a real browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from fieldagent.page.reasons import translate_templates
from tests.browser import page
from tests.page.texts import places
from tests.processes import Agent, agent

pytestmark = pytest.mark.full

BECAUSE = "texts => import('/page/reasons.js').then(all => texts.map(all.because))"
ADJACENT = "{1} answered {2}{3}"
"""The boundary between two places is not visible."""


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    home = tmp_path_factory.mktemp("kit")
    with agent(home, {"satellite-port": str(home / "nobody")}) as running:
        yield running


def filled(form: str) -> str:
    for place in places(form):
        form = form.replace(place, f"x{place[1]}")
    return form


@pytest.mark.parametrize("locale", ["de-CH", "es-ES", "fr-FR", "uk-UA"])
def test_each_reason_template_is_translated(chromium: Any, kit: Agent, locale: str) -> None:
    said = {
        filled(form): filled(own)
        for form, own in json.loads(translate_templates(locale[:2])).items()
        if form != ADJACENT
    }
    with page(chromium, kit.port, locale=locale) as shown:
        translations = shown.evaluate(BECAUSE, [*said])
    assert dict(zip(said, translations, strict=True)) == said


@pytest.mark.parametrize(
    ("locale", "shown"),
    [("en-GB", "0.5 credits"), ("de-CH", "0,5 Credits"), ("uk-UA", "0,5 кредиту")],
)
def test_number_is_formatted_in_language_of_browser(
    chromium: Any, kit: Agent, locale: str, shown: str
) -> None:
    counted = (
        "import('/page/language.js').then(all => all.counted(0.5, '{n} credit', '{n} credits'))"
    )
    with page(chromium, kit.port, locale=locale) as opened:
        assert opened.evaluate(counted) == shown


def test_composed_reason_is_translated_part_by_part(chromium: Any, kit: Agent) -> None:
    said = {
        "No signal; next try 12:00:03 UTC": "kein Signal; nächster Versuch 12:00:03 UTC",
        "hub.example: connection refused": "hub.example: Verbindung abgelehnt",
        "the network is congested (42)": "das Netz ist überlastet (42)",
        "Satellite: no network service": "Satellit: kein Netz",
        "delivered over Satellite": "über Satellit zugestellt",
        "340 bytes, 7 credits, shared by 2": "340 Bytes, 7 Credits, geteilt durch 2",
        "the budget of today is spent: 5 of 8 credits, 2 of them kept for an SOS; it is renewed at"
        " 00:00 UTC": "das Budget von heute ist verbraucht: 5 von 8 Credits, davon 2 für ein SOS"
        " reserviert; neues Budget um 00:00 UTC",
        "the journal is in memory, and not on the disk: the disk cannot store data:"
        " disk I/O error": "das Journal ist im Arbeitsspeicher und nicht auf dem Datenträger:"
        " der Datenträger kann nichts speichern: disk I/O error",
        "3 packets were heard on the air without a tag, and radio-key is set here: give that kit"
        " the same radio-key (last 12:00:03 UTC)": (
            "3 Pakete wurden per Funk gehört, ohne Kennzeichnung, aber hier ist radio-key gesetzt:"
            " jenem Kit denselben radio-key geben (zuletzt 12:00:03 UTC)"
        ),
        "the journal was damaged (database disk image is malformed): intact Packages: 3, 1"
        " of them to be sent; intact payloads: 2; damaged and not sent: 4, 5; unknown: the"
        " last 2 accepted. Post those again. The damaged one is kept as journal.sqlite3.bad": (
            "das Journal war beschädigt (database disk image is malformed): unbeschädigte Pakete:"
            " 3, davon 1 noch zu senden; unbeschädigte empfangene Nachrichten: 2; beschädigt und"
            " nicht gesendet: 4, 5; unbekannt: die letzten 2 angenommenen. Diese noch einmal"
            " senden. Das beschädigte liegt jetzt in journal.sqlite3.bad"
        ),
        "a packet was heard on the air with unreadable content: something else may be on this"
        " frequency (last 12:00:03 UTC)": (
            "ein Paket wurde per Funk gehört, nicht lesbar: vielleicht ist etwas anderes auf dieser"
            " Frequenz (zuletzt 12:00:03 UTC)"
        ),
        "something in the network cuts idle links after 60 s: tested every 45 s": (
            "etwas auf dem Weg trennt ruhende Verbindungen nach 60 s: alle 45 s geprüft"
        ),
        "map-file /map.pmtiles is cut short (5 of 90 bytes): copy it there again": (
            "map-file /map.pmtiles ist abgeschnitten (5 von 90 Bytes): die Datei noch einmal"
            " dorthin kopieren"
        ),
        "0.2.0 fell back to 0.1.0: Satellite was ready, and is waiting (no signal)": (
            "0.2.0 ist auf 0.1.0 zurückgefallen: Satellit: vorher bereit, jetzt wartet"
            " (kein Signal)"
        ),
        "hub-token can only be set on the kit: it is a secret that identifies the kit in the signed"
        " text, and readers of the hub's database could read it": (
            "hub-token lässt sich nur am Kit setzen: es ist ein Geheimnis, das im signierten Text"
            " das Kit bezeichnet, und wer die Datenbank des Hubs liest, könnte es lesen"
        ),
        "an SMTP nobody knows of": "an SMTP nobody knows of",
        "x: something new; the link failed": "x: something new; die Verbindung ist fehlgeschlagen",
    }
    with page(chromium, kit.port, locale="de-DE") as shown:
        translations = shown.evaluate(BECAUSE, [*said])
        retold = shown.evaluate(
            "text => import('/page/language.js').then(all => all.read(text))",
            json.dumps(
                {
                    "text": "no signal",
                    "reason": "no signal",
                    "notices": ["the journal is in memory, and not on the disk: the disk is full"],
                    "history": [{"event": "sent", "detail": "3 bytes", "times": 1}],
                    "losses": [
                        {
                            "text": "Package 7 is damaged on the disk and was not sent: post it"
                            " again",
                            "packages": 1,
                            "payloads": 0,
                        }
                    ],
                    "faults": [{"part": "Satellite queue", "error": "KeyError: 3", "down": False}],
                    "timeline": [
                        {"event": "note", "detail": "no signal"},
                        {"event": "not notified", "detail": "Ada by mail: no signal"},
                    ],
                }
            ),
        )
    assert dict(zip(said, translations, strict=True)) == said
    # Texts by people stay unchanged.
    assert retold == {
        "text": "no signal",
        "reason": "kein Signal",
        "notices": [
            "das Journal ist im Arbeitsspeicher und nicht auf dem Datenträger: der Datenträger ist"
            " voll"
        ],
        "history": [{"event": "gesendet", "detail": "3 Bytes", "times": 1}],
        "losses": [
            {
                "text": "Paket 7 ist auf dem Datenträger beschädigt und wurde nicht gesendet: noch"
                " einmal senden",
                "packages": 1,
                "payloads": 0,
            }
        ],
        "faults": [{"part": "die Warteschlange Satellit", "error": "KeyError: 3", "down": False}],
        "timeline": [
            {"event": "note", "detail": "no signal"},
            {"event": "not notified", "detail": "Ada by mail: kein Signal"},
        ],
    }


def test_reasons_of_wait_and_end_are_in_language_of_browser(chromium: Any, kit: Agent) -> None:
    body = {"message": {"content": "camp reached"}, "collapseKey": 7}
    for content in ("camp reached", "camp left"):
        body["message"] = {"content": content}
        assert kit.call("POST", "/api/package/async", body).status == 202
    with page(chromium, kit.port, locale="de-DE") as shown:
        entries = shown.locator("#conversation li.entry")
        ended = entries.filter(has_text="camp reached")
        ended.get_by_text("durch Paket 2 ersetzt").first.wait_for()
        entries.filter(has_text="camp left").get_by_text("nächster Versuch").wait_for()
        nobody = shown.locator("#links article", has_text="Satellit")
        nobody.get_by_text("es gibt keine solche Datei").wait_for()
        ended.locator("summary").click()
        ended.locator(".story li").filter(has_text="angenommen").wait_for()
        assert "accepted" not in ended.inner_text()
    with page(chromium, kit.port, locale="en-GB") as shown:
        loaded: list[str] = []
        shown.on("request", lambda request: loaded.append(request.url))
        shown.reload()
        shown.get_by_text("replaced by Package 2").first.wait_for()
        assert [each for each in loaded if "reasons" in each] == []


ALARMS = (
    "sos => import('/page/sos.js').then(all => {"
    " all.showAlarms(sos); return document.getElementById('alarms').textContent; })"
)
RINGS = (
    "sos => import('/page/sos.js').then(all => {"
    " all.showAlarms(sos); return document.getElementById('alarms').matches('.active'); })"
)
"""Both scripts use one call, because the page soon shows the kit's own state again."""
RAISED = {"state": "raised", "at": 1_800_000_000}
LEFT = {"state": "left", "at": 1_800_000_000, "channel": "Satellite"}
NEARBY = {**LEFT, "by": "Ben"}
OWN = {
    "number": 70_000_007,
    "short": "007",
    "state": "open",
    "raised": 1_800_000_000,
    "ended": None,
    "items": [],
}
HEARD = {
    "station": 5,
    "name": "Ada",
    "number": 70,
    "short": "070",
    "state": "open",
    "text": "help",
    "steps": [],
}
NONE, AGAIN = "No channel can send the SOS", "Next try"


def test_page_shows_only_known_facts_of_sos(chromium: Any, kit: Agent) -> None:
    own: dict[str, tuple[dict[str, Any], str]] = {
        "raised": ({"steps": [RAISED]}, ""),
        "next try": ({"steps": [RAISED], "nextTry": 1_800_000_060}, AGAIN),
        "no channel": ({"steps": [RAISED], "nextTry": None}, NONE),
        "left without next try": ({"steps": [RAISED, LEFT], "nextTry": None}, ""),
        "called off": ({"steps": [RAISED], "nextTry": None, "ended": 1_800_000_001}, ""),
    }
    with page(chromium, kit.port) as shown:
        for name, (members, words) in own.items():
            sos = {"active": 1, "incident": {**OWN, **members}, "heard": []}
            text = shown.evaluate(ALARMS, sos)
            assert [each for each in (NONE, AGAIN) if each in text] == [words] * bool(words), name
            assert "SOS 007" in text and "70000007" not in text, "the short number of the console"
        sos = {"active": 1, "incident": {**OWN, "steps": [NEARBY], "nextTry": 1.0}, "heard": []}
        assert "left by Ben’s satellite" in shown.evaluate(ALARMS, sos)
        for age, words in (
            (None, "SOS 070 from Ada"),
            (46_800, "13 hours ago by its clock"),
        ):
            heard = {**HEARD, "raised": 1_800_000_000, "came": 1_800_046_800, "age": age}
            sos = {"active": 0, "incident": None, "heard": [heard]}
            text = shown.evaluate(ALARMS, sos)
            assert words in text and "help" in text
            assert shown.evaluate(RINGS, sos)
