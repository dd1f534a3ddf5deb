"""The conditions under which a kit believes news about other kits' incidents."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fieldagent.agent.inbound.incident_news import IncidentNews
from fieldagent.agent.inbound.reception import ReceivedMessage
from fieldagent.agent.journal import incident
from fieldagent.agent.journal.incident import AGE_SHOWN_S, OWN_STATION, HeardIncident
from fieldagent.agent.outbound.incident_status import list_heard_incidents
from fieldagent.cli.kit.sos import format_heard
from fieldagent.package.package import IncidentState, IncidentUpdate, Location, Message
from fieldagent.wire.envelope import Entry, encode
from tests.kit import Kit, kit

ADA = 5
"""Station of the sender in `Kit.hear`."""


def encode_entry(entry: Entry) -> bytes:
    return encode([entry])


def help_at(time: float, number: int = 70, back: int = 0) -> Entry:
    return Entry(number, Message("help"), int(time), sos=True, items_back=back)


def now(k: Kit) -> float:
    """Return Unix time by the trusted clock."""
    return k.journal.clock.date(k.journal.clock.now())


def events(k: Kit) -> list[dict[str, Any]]:
    rows = k.journal.read("SELECT body FROM inbound ORDER BY number")
    return [json.loads(body)["payloads"][0]["events"][0] for (body,) in rows]


async def test_sos_items_of_station_belong_to_one_incident(tmp_path: Path) -> None:
    async with kit(tmp_path, incidents=IncidentNews(7)) as k:
        await k.hear(encode_entry(help_at(now(k))), tagged=False)
        await k.hear(encode_entry(help_at(now(k) + 60, 73, back=3)), tagged=False)
        assert [each["incident"] for each in events(k)] == [{"number": 70}] * 2
        assert all(each["sos"] for each in events(k))
        (heard,) = incident.list_heard(k.journal, 9)
        assert (heard.station, heard.number, heard.state) == (ADA, 70, IncidentState.OPEN)


async def test_open_sos_of_thirty_kits_are_all_shown(tmp_path: Path) -> None:
    async with kit(tmp_path) as k:
        raised = now(k)
        for station in range(1, 31):
            heard = HeardIncident(station, station, IncidentState.OPEN, raised, raised, "")
            await k.journal.commit(partial(incident.store_heard_incident, heard_incident=heard))
        assert len(list_heard_incidents(k.journal)) == 30


AGES = {
    "now": (0, None),
    "just below": (AGE_SHOWN_S - 60, None),
    "a night without power": (13 * 3600, 13 * 3600),
    "a machine that starts in 1970": (None, None),
    "a clock that is ahead": (-13 * 3600, None),
}
"""Seconds by which the sender's clock is slow (None for 1970), and the age that people see."""


@pytest.mark.parametrize("sent", AGES)
@pytest.mark.parametrize("is_trusted", [True, False])
@pytest.mark.parametrize("kind", ["message", "location"])
async def test_sos_with_any_date_opens_incident_and_shows_age(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: str, is_trusted: bool, kind: str
) -> None:
    behind, shown = AGES[sent]
    async with kit(tmp_path, incidents=IncidentNews(7)) as k:
        if not is_trusted:
            monkeypatch.setattr(k.journal.clock, "source", str)
        at = 3600 if behind is None else int(now(k)) - behind
        shown = int(now(k)) - at if behind is None else shown
        entry = help_at(at)
        if kind == "location":
            where = Location(47.0, 8.0, datetime.fromtimestamp(at, UTC))
            entry = Entry(70, where, at, sos=True)
        await k.hear(encode_entry(entry), tagged=False)
        (event,) = events(k)
        assert event["sos"] is True
        (heard,) = list_heard_incidents(k.journal)
        assert (heard["state"], heard["number"]) == (IncidentState.OPEN, 70)
        for age in (event.get("age"), heard["age"]):
            assert age == (pytest.approx(shown, abs=5) if shown and is_trusted else None)
        line = format_heard(heard)
        assert ("by its clock" in line) == bool(shown and is_trusted)
        if shown == 13 * 3600 and is_trusted:
            assert "13 hours ago by its clock" in line


async def test_clock_corrected_after_arrival_gives_sos_no_age(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This kit's clock was ten years ahead when the SOS arrived."""
    async with kit(tmp_path, incidents=IncidentNews(7)) as k:
        began = int(now(k))
        date = k.journal.clock.date
        with monkeypatch.context() as wrong:
            wrong.setattr(
                k.journal.clock, "date", lambda elapsed: date(elapsed) + 10 * 365 * 86_400
            )
            wrong.setattr(k.journal.clock, "source", str)
            await k.hear(encode_entry(help_at(began)), tagged=False)
        (heard,) = list_heard_incidents(k.journal)
        assert (heard["state"], heard["age"]) == (IncidentState.OPEN, None)


async def test_unauthenticated_call_off_does_not_end_incident_with_hub(tmp_path: Path) -> None:
    async with kit(tmp_path, incidents=IncidentNews(7)) as k:
        await k.hear(encode_entry(help_at(now(k))), tagged=False)
        off = Entry(71, IncidentUpdate(70, IncidentState.CALLED_OFF), int(now(k)))
        await k.hear(encode_entry(off), tagged=False)
        (heard,) = incident.list_heard(k.journal, 9)
        assert heard.state == IncidentState.OPEN
        (word,) = incident.list_updates(k.journal, 70, ADA)
        assert (word.state, word.is_authenticated) == (IncidentState.CALLED_OFF, False)


@pytest.mark.parametrize(
    ("by", "state"), [(ADA, IncidentState.CALLED_OFF), (ADA + 1, IncidentState.OPEN)]
)
async def test_without_hub_only_raising_kit_calls_off_sos(
    tmp_path: Path, by: int, state: IncidentState
) -> None:
    async with kit(tmp_path, incidents=IncidentNews(7, has_hub=False)) as k:
        await k.hear(encode_entry(help_at(now(k))), tagged=False)
        off = Entry(71, IncidentUpdate(70, IncidentState.CALLED_OFF, ADA), int(now(k)))
        taken = ReceivedMessage(k.journal.clock.now())
        await k.journal.persist(lambda db: k.inbox.store_entry(db, -by, off, taken))
        (heard,) = incident.list_heard(k.journal, 9)
        assert heard.state == state
        (kept,) = incident.list_updates(k.journal, 70, ADA)
        assert not kept.is_authenticated, "the update is shown as unauthenticated"


@pytest.mark.parametrize("station", [7, OWN_STATION], ids=["with a station", "without"])
@pytest.mark.parametrize("has_hub", [True, False])
async def test_seen_update_of_other_kit_counts_only_without_hub(
    tmp_path: Path, has_hub: bool, station: int
) -> None:
    """A kit without a radio does not know its number, and its incident is its own in any case."""
    async with kit(tmp_path, incidents=IncidentNews(station, has_hub=has_hub)) as k:
        await k.post(message={"content": "help"}, priority=100)
        word = IncidentUpdate(k.sequence(), IncidentState.SEEN, 7, "Ben")
        await k.hear(encode_entry(Entry(9, word, int(now(k)))), tagged=False)
        open_incident = incident.find_open(k.journal)
        assert open_incident is not None and open_incident.state == ("open" if has_hub else "seen")
        assert [each.by for each in incident.list_updates(k.journal, k.sequence())] == ["Ben"]


async def test_taking_over_sos_of_other_kit_marks_incident_seen(tmp_path: Path) -> None:
    async with kit(tmp_path, incidents=IncidentNews(7)) as k:
        await k.hear(encode_entry(help_at(now(k))), tagged=False)
        word = IncidentUpdate(70, IncidentState.SEEN, ADA, "Ben")
        at = k.journal.clock.now()
        # The page's *I have it* button stores the same.
        await k.journal.commit(
            lambda db: incident.record_update(db, word, at, at, is_proved=True, counts=False)
        )
        (heard,) = incident.list_heard(k.journal, 9)
        assert heard.state == IncidentState.SEEN


async def test_late_update_does_not_reopen_ended_incident(
    tmp_path: Path,
) -> None:
    """A "seen" update arrives late, or a person here takes over an SOS that is over."""
    async with kit(tmp_path, incidents=IncidentNews(7)) as k:
        await k.hear(encode_entry(help_at(now(k))), tagged=False)
        at = k.journal.clock.now()
        for says in (IncidentState.CALLED_OFF, IncidentState.SEEN, IncidentState.CLOSED):
            word = IncidentUpdate(70, says, ADA, "Ben")
            await k.journal.commit(
                lambda db, word=word: incident.record_update(  # type: ignore[misc]
                    db, word, at, at, is_proved=True, counts=False
                )
            )
            (heard,) = incident.list_heard(k.journal, 9)
            assert heard.state == IncidentState.CALLED_OFF
        assert len(incident.list_updates(k.journal, 70, ADA)) == 3, "late updates are listed"


@pytest.mark.parametrize(
    "says", [IncidentState.CLOSED, IncidentState.CALLED_OFF, IncidentState.SEEN]
)
async def test_update_before_arrival_of_sos_sets_incident_state(
    tmp_path: Path, says: IncidentState
) -> None:
    async with kit(tmp_path, incidents=IncidentNews(7)) as k:
        at = k.journal.clock.now()
        for each in (IncidentState.SEEN, says):
            word = IncidentUpdate(70, each, ADA, "Ben")
            await k.journal.commit(
                lambda db, word=word: incident.record_update(  # type: ignore[misc]
                    db, word, at, at, is_proved=True, counts=False
                )
            )
        await k.hear(encode_entry(help_at(now(k))), tagged=False)
        (heard,) = incident.list_heard(k.journal, 9)
        assert heard.state == says


async def test_text_received_after_position_is_text_of_incident(tmp_path: Path) -> None:
    async with kit(tmp_path, incidents=IncidentNews(7)) as k:
        place = Location(47.0, 8.0, datetime.fromtimestamp(int(now(k)), UTC))
        await k.hear(
            encode_entry(Entry(71, place, int(now(k)), sos=True, items_back=1)), tagged=False
        )
        await k.hear(encode_entry(help_at(now(k))), tagged=False)
        (heard,) = incident.list_heard(k.journal, 9)
        assert (heard.number, heard.text) == (70, "help")


async def test_open_incident_is_listed_beside_later_ended_incidents(
    tmp_path: Path,
) -> None:
    async with kit(tmp_path, incidents=IncidentNews(7)) as k:
        await k.hear(encode_entry(help_at(now(k))), tagged=False)
        at = k.journal.clock.now()
        for number in range(71, 75):
            await k.hear(encode_entry(help_at(now(k), number)), tagged=False)
            word = IncidentUpdate(number, IncidentState.CLOSED, ADA, "Ben")
            await k.journal.commit(
                lambda db, word=word: incident.record_update(  # type: ignore[misc]
                    db, word, at, at, is_proved=True, counts=False
                )
            )
        assert [each.number for each in incident.list_heard(k.journal, 3)] == [74, 73, 70]


@pytest.mark.parametrize(
    ("proof", "proved", "goes"),
    [(b"12345678", False, True), (b"", True, True), (b"", False, False)],
    ids=["proof of other kit", "tag of this kit", "no proof"],
)
async def test_proved_update_for_other_kit_is_forwarded(
    tmp_path: Path, proof: bytes, proved: bool, goes: bool
) -> None:
    """The addressee checks the proof. A satellite message needs no tag of this kit."""
    news = IncidentNews(7)
    async with kit(tmp_path, incidents=news) as k:
        word = IncidentUpdate(70, IncidentState.SEEN, 9, "Olga", "we come", proof)
        taken = ReceivedMessage(k.journal.clock.now(), is_authenticated=proved)
        entry = Entry(0, word, int(now(k)))
        await k.journal.commit(
            lambda db: news.store_news(db, 0, entry, None, k.journal.clock, taken) and None
        )
        assert [each.content for each in taken.updates_for_kits] == [word] * goes
        assert [each.is_authenticated for each in incident.list_updates(k.journal, 70, 9)] == [
            proved
        ]
