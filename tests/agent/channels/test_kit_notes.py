"""An agent's handling of settings that the hub offers, and its reports about them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from fieldagent.agent import outcomes
from fieldagent.agent.channels.contract import ChannelLink
from fieldagent.agent.channels.kit_notes import (
    CHECK_INTERVAL_S,
    MODEMS_INTERVAL_S,
    KitNotes,
    find_installation_kind,
)
from fieldagent.agent.outcomes import OFFER, PROGRAM_OFFER
from fieldagent.wire.kit_note import (
    ZIPAPP,
    KitReport,
    ModemReport,
    OfferReport,
    ProgramOffer,
    SettingsOffer,
    UpdateReport,
    decode,
)
from fieldagent.wire.settings_change import SettingsChange, get_kit_id

TEXT = SettingsChange("kit", get_kit_id("token"), 7, (("sos-repeat", "900"),)).format_text()
BODY = SettingsOffer(TEXT, "signature").encode()


@pytest.fixture
def state(tmp_path: Path) -> Path:
    (tmp_path / "state").mkdir()
    outcomes.find_root_folder(tmp_path / "state").mkdir()
    return tmp_path / "state"


def write_root_result(of: Path, name: str, **members: Any) -> None:
    (outcomes.find_root_folder(of) / name).write_text(json.dumps(members))


async def next_report(notes: KitNotes) -> KitReport:
    with trio.fail_after(60):
        report = decode(await notes.wait_for_next())
    assert isinstance(report, KitReport)
    return report


async def test_settings_offer_is_stored_and_result_is_reported(state: Path, clock: Any) -> None:
    notes = KitNotes(state, {}, "")
    await notes.process_note(BODY)
    assert (state / OFFER).read_bytes() == BODY
    assert await next_report(notes) == KitReport(None, OfferReport(7, "waiting"))
    (state / OFFER).unlink()
    write_root_result(state, outcomes.SETTINGS, number=7, state="taken", why="")
    assert await next_report(notes) == KitReport(None, OfferReport(7, "taken"))
    # The hub repeats the offer over the next link if it got no report.
    notes.begin()
    await notes.process_note(BODY)
    assert not (state / OFFER).exists()
    assert await next_report(notes) == KitReport(None, OfferReport(7, "taken"))


async def test_report_is_not_repeated_and_empty_report_is_not_sent(state: Path, clock: Any) -> None:
    """The agent does not repeat a report over the same link, and sends no empty report. This holds
    while root's units may write a result, and afterwards.
    """

    async def silent(notes: KitNotes) -> bool:
        notes.watch_until = trio.current_time() + 4 * CHECK_INTERVAL_S
        with trio.move_on_after(8 * CHECK_INTERVAL_S) as waits:
            await notes.wait_for_next()
        return waits.cancelled_caught

    assert await silent(KitNotes(state, {}, ""))
    write_root_result(state, outcomes.UPDATE, version="2", previous_version="1", why="")
    notes = KitNotes(state, {}, "")
    assert await next_report(notes) == KitReport(UpdateReport("2", "1"))
    assert await silent(notes)


@pytest.mark.parametrize(
    ("trial", "result", "members", "ended"),
    [
        (
            *(outcomes.UPDATE_TRIAL, outcomes.UPDATE),
            {"version": "2", "previous_version": "1", "why": ""},
            KitReport(UpdateReport("2", "1")),
        ),
        (
            *(outcomes.SETTINGS_TRIAL, outcomes.SETTINGS),
            {"number": 7, "state": "back", "why": "no link"},
            KitReport(None, OfferReport(7, "back", "no link")),
        ),
    ],
)
async def test_trial_at_start_is_reported_when_trial_ends(
    state: Path, clock: Any, trial: str, result: str, members: dict[str, Any], ended: KitReport
) -> None:
    place = outcomes.find_root_folder(state) / trial
    place.parent.mkdir(exist_ok=True)
    place.write_text("{}")
    notes = KitNotes(state, {}, "")
    notes.begin()
    reports: list[KitReport] = []

    async def listen() -> None:
        reports.append(await next_report(notes))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(listen)
        await trio.sleep(2 * CHECK_INTERVAL_S)
        assert not reports
        write_root_result(state, result, **members)
        place.unlink()
    assert reports == [ended]


async def test_modem_signals_are_reported_at_limited_rate(state: Path, clock: Any) -> None:
    satellite, radio = ChannelLink(), ChannelLink()
    notes = KitNotes(state, {"satellite": satellite, "radio": radio}, "")
    satellite.signal, began = 3, trio.current_time()
    assert await next_report(notes) == KitReport(modems=(ModemReport("satellite", 3, None),))
    radio.facts["battery"], satellite.signal = 87, 5
    with trio.fail_after(2 * MODEMS_INTERVAL_S):
        report = decode(await notes.wait_for_next())
    assert report == KitReport(
        modems=(ModemReport("satellite", 5, None), ModemReport("radio", None, 87))
    )
    assert trio.current_time() - began >= MODEMS_INTERVAL_S
    # Results of root's units are reported immediately, and a new link gets a full report.
    satellite.signal = 1
    write_root_result(state, outcomes.SETTINGS, number=7, state="taken", why="")
    notes.watch_until = trio.current_time() + CHECK_INTERVAL_S
    assert (await next_report(notes)).modems[0].signal == 5
    notes.begin()
    assert (await next_report(notes)).modems[0].signal == 1


PROGRAM = ProgramOffer(8, "9.0.0", "https://example.org/9.0.0.pyz").encode()


async def test_program_offer_is_stored_and_late_result_is_reported(state: Path, clock: Any) -> None:
    notes = KitNotes(state, {}, ZIPAPP)
    await notes.process_note(BODY)
    await notes.process_note(PROGRAM)
    assert (state / PROGRAM_OFFER).read_bytes() == PROGRAM
    waiting = OfferReport(7, "waiting")
    assert await next_report(notes) == KitReport(None, waiting, OfferReport(8, "waiting"), ZIPAPP)
    notes.watch_until = trio.current_time()
    (state / PROGRAM_OFFER).unlink()
    write_root_result(state, outcomes.PROGRAM, number=8, state="refused", why="it is older")
    with trio.fail_after(3 * CHECK_INTERVAL_S):
        refused = OfferReport(8, "refused", "it is older")
        assert await next_report(notes) == KitReport(None, waiting, refused, ZIPAPP)
    notes.begin()
    await notes.process_note(PROGRAM)
    assert not (state / PROGRAM_OFFER).exists()


@pytest.mark.parametrize("how", ["package", "sources"])
async def test_program_offer_is_ignored_without_zipapp(state: Path, how: str) -> None:
    notes = KitNotes(state, {}, how)
    await notes.process_note(PROGRAM)
    assert not (state / PROGRAM_OFFER).exists()
    assert await next_report(notes) == KitReport(installed=how)


def test_kind_of_installation_is_recognised(tmp_path: Path) -> None:
    (zipapp := tmp_path / "fieldagent.pyz").touch()
    assert find_installation_kind(zipapp / "cpython-311/fieldagent/agent/kit_notes.pyc") == ZIPAPP
    assert (
        find_installation_kind(Path("/usr/lib/fieldagent/fieldagent/agent/kit_notes.py"))
        == "package"
    )
    assert find_installation_kind(Path(__file__)) == "sources"


@pytest.mark.parametrize(
    "body", [b"", b"\xff", BODY[:-1], SettingsOffer("no change", "").encode(), KitReport().encode()]
)
async def test_invalid_offer_is_not_stored(state: Path, body: bytes) -> None:
    await KitNotes(state, {}).process_note(body)
    assert not (state / OFFER).exists()


async def test_offer_that_cannot_be_stored_is_logged(
    state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await KitNotes(state / "nowhere", {}).process_note(BODY)
    assert "cannot be stored, the hub will send it again" in caplog.text


@pytest.mark.parametrize("text", ["", "{", "[]", '{"number": "7"}', '{"number": 7}'])
def test_damaged_result_file_is_ignored(state: Path, text: str) -> None:
    for name in (outcomes.SETTINGS, outcomes.UPDATE, outcomes.PROGRAM):
        (outcomes.find_root_folder(state) / name).write_text(text)
    assert outcomes.read(state) == KitReport()
