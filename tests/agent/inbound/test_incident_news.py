"""What a kit takes for true of other kits' incidents."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fieldagent.agent.inbound.incident_news import OLD, IncidentNews
from fieldagent.agent.journal import incident
from fieldagent.agent.journal.incident import OWN
from fieldagent.package.package import IncidentWord, Location, Message, Said
from fieldagent.wire.envelope import Entry, encode
from tests.kit import Kit, kit

ADA = 5
"""The station that `Kit.hear` hears."""


def said(entry: Entry) -> bytes:
    return encode([entry])


def help_at(time: float, number: int = 70, back: int = 0) -> Entry:
    return Entry(number, Message("help"), int(time), sos=True, back=back)


def now(k: Kit) -> float:
    """Unix time, by the clock that is trusted."""
    return k.journal.clock.date(k.journal.clock.now())


def events(k: Kit) -> list[dict[str, Any]]:
    rows = k.journal.read("SELECT body FROM inbound ORDER BY number")
    return [json.loads(body)["payloads"][0]["events"][0] for (body,) in rows]


async def test_an_sos_rings_with_its_incident(tmp_path: Path) -> None:
    async with kit(tmp_path, incidents=IncidentNews(7)) as k:
        await k.hear(said(help_at(now(k))), tagged=False)
        await k.hear(said(help_at(now(k) + 60, 73, back=3)), tagged=False)
        assert [each["incident"] for each in events(k)] == [{"number": 70}] * 2
        assert all(each["sos"] for each in events(k))
        (heard,) = incident.heard(k.journal, 9)
        assert (heard.station, heard.number, heard.state) == (ADA, 70, Said.OPEN)


async def test_a_recording_is_marked_by_its_age_and_does_not_ring(tmp_path: Path) -> None:
    async with kit(tmp_path, incidents=IncidentNews(7)) as k:
        await k.hear(said(help_at(now(k) - OLD - 60)), tagged=False)
        (event,) = events(k)
        assert "sos" not in event
        assert event["age"] == pytest.approx(OLD + 60, abs=5)
        (heard,) = incident.heard(k.journal, 9)
        assert heard.state == "old"
        # One that is open still has younger items.
        await k.hear(said(help_at(now(k), 75, back=5)), tagged=False)
        assert events(k)[1]["sos"]
        (heard,) = incident.heard(k.journal, 9)
        assert heard.state == Said.OPEN


async def test_nobody_calls_another_kits_sos_off_by_radio_alone(tmp_path: Path) -> None:
    async with kit(tmp_path, incidents=IncidentNews(7)) as k:
        await k.hear(said(help_at(now(k))), tagged=False)
        off = Entry(71, IncidentWord(70, Said.CALLED_OFF), int(now(k)))
        await k.hear(said(off), tagged=False)
        (heard,) = incident.heard(k.journal, 9)
        assert heard.state == Said.OPEN
        (word,) = incident.words(k.journal, 70, ADA)
        assert (word.says, word.proved) == (Said.CALLED_OFF, False)


@pytest.mark.parametrize("station", [7, OWN], ids=["with a station", "without"])
@pytest.mark.parametrize("has_hub", [True, False])
async def test_a_person_at_another_kit_counts_where_there_is_no_hub(
    tmp_path: Path, has_hub: bool, station: int
) -> None:
    """A kit without a radio does not know its number, and its incident is its own all the same."""
    async with kit(tmp_path, incidents=IncidentNews(station, has_hub=has_hub)) as k:
        await k.post(message={"content": "help"}, priority=100)
        word = IncidentWord(k.sequence(), Said.SEEN, 7, "Ben")
        await k.hear(said(Entry(9, word, int(now(k)))), tagged=False)
        open_incident = incident.open_one(k.journal)
        assert open_incident is not None and open_incident.state == ("open" if has_hub else "seen")
        assert [each.by for each in incident.words(k.journal, k.sequence())] == ["Ben"]


async def test_who_has_another_kits_sos_rings_for_it_no_more(tmp_path: Path) -> None:
    async with kit(tmp_path, incidents=IncidentNews(7)) as k:
        await k.hear(said(help_at(now(k))), tagged=False)
        word = IncidentWord(70, Said.SEEN, ADA, "Ben")
        at = k.journal.clock.now()
        # As the page's *I have it* writes it down.
        await k.journal.commit(
            lambda db: incident.note_word(db, word, at, at, proved=True, counts=False)
        )
        (heard,) = incident.heard(k.journal, 9)
        assert heard.state == Said.SEEN


async def test_what_is_said_of_another_kits_sos_after_its_end_opens_it_no_more(
    tmp_path: Path,
) -> None:
    """The word of who had seen it comes late, or a person here takes what is over."""
    async with kit(tmp_path, incidents=IncidentNews(7)) as k:
        await k.hear(said(help_at(now(k))), tagged=False)
        at = k.journal.clock.now()
        for says in (Said.CALLED_OFF, Said.SEEN, Said.CLOSED):
            word = IncidentWord(70, says, ADA, "Ben")
            await k.journal.commit(
                lambda db, word=word: incident.note_word(  # type: ignore[misc]
                    db, word, at, at, proved=True, counts=False
                )
            )
            (heard,) = incident.heard(k.journal, 9)
            assert heard.state == Said.CALLED_OFF
        assert len(incident.words(k.journal, 70, ADA)) == 3, "what was said is shown"


@pytest.mark.parametrize("says", [Said.CLOSED, Said.CALLED_OFF, Said.SEEN])
async def test_what_was_said_of_another_kits_sos_before_it_came_counts(
    tmp_path: Path, says: Said
) -> None:
    async with kit(tmp_path, incidents=IncidentNews(7)) as k:
        at = k.journal.clock.now()
        for each in (Said.SEEN, says):
            word = IncidentWord(70, each, ADA, "Ben")
            await k.journal.commit(
                lambda db, word=word: incident.note_word(  # type: ignore[misc]
                    db, word, at, at, proved=True, counts=False
                )
            )
        await k.hear(said(help_at(now(k))), tagged=False)
        (heard,) = incident.heard(k.journal, 9)
        assert heard.state == says


async def test_words_that_come_behind_the_position_are_its_words(tmp_path: Path) -> None:
    async with kit(tmp_path, incidents=IncidentNews(7)) as k:
        place = Location(47.0, 8.0, datetime.fromtimestamp(int(now(k)), UTC))
        await k.hear(said(Entry(71, place, int(now(k)), sos=True, back=1)), tagged=False)
        await k.hear(said(help_at(now(k))), tagged=False)
        (heard,) = incident.heard(k.journal, 9)
        assert (heard.number, heard.text) == (70, "help")


async def test_an_sos_that_is_open_is_listed_before_later_ones_that_are_over(
    tmp_path: Path,
) -> None:
    async with kit(tmp_path, incidents=IncidentNews(7)) as k:
        await k.hear(said(help_at(now(k))), tagged=False)
        at = k.journal.clock.now()
        for number in range(71, 75):
            await k.hear(said(help_at(now(k), number)), tagged=False)
            word = IncidentWord(number, Said.CLOSED, ADA, "Ben")
            await k.journal.commit(
                lambda db, word=word: incident.note_word(  # type: ignore[misc]
                    db, word, at, at, proved=True, counts=False
                )
            )
        assert [each.number for each in incident.heard(k.journal, 3)] == [74, 73, 70]
