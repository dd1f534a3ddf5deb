"""What an agent makes of settings that the hub offers, and what it tells of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from fieldagent.agent import outcomes
from fieldagent.agent.channels.kit_notes import LOOK, KitNotes
from fieldagent.agent.from_afar import OFFER
from fieldagent.wire.kit_note import KitReport, SettingsOffer, SettingsReport, UpdateReport, decode
from fieldagent.wire.settings_change import SettingsChange, kit_of

TEXT = SettingsChange("kit", kit_of("token"), 7, (("sos-repeat", "900"),)).text()
BODY = SettingsOffer(TEXT, "signature").encode()


@pytest.fixture
def state(tmp_path: Path) -> Path:
    (tmp_path / "state").mkdir()
    outcomes.folder_of(tmp_path / "state").mkdir()
    return tmp_path / "state"


def left_by_root(of: Path, name: str, **members: Any) -> None:
    (outcomes.folder_of(of) / name).write_text(json.dumps(members))


async def told(notes: KitNotes) -> KitReport:
    with trio.fail_after(60):
        report = decode(await notes.next())
    assert isinstance(report, KitReport)
    return report


async def test_an_offer_waits_for_roots_unit_and_the_hub_hears_what_came_of_it(
    state: Path, clock: Any
) -> None:
    notes = KitNotes(state)
    await notes.take_in(BODY)
    assert (state / OFFER).read_bytes() == BODY
    assert await told(notes) == KitReport(None, SettingsReport(7, "waiting"))
    (state / OFFER).unlink()
    left_by_root(state, outcomes.SETTINGS, number=7, state="taken", why="")
    assert await told(notes) == KitReport(None, SettingsReport(7, "taken"))
    # The hub offers again over the next link, where it has not heard.
    notes.begin()
    await notes.take_in(BODY)
    assert not (state / OFFER).exists()
    assert await told(notes) == KitReport(None, SettingsReport(7, "taken"))


async def test_nothing_is_told_twice_over_a_link_or_where_there_is_nothing(
    state: Path, clock: Any
) -> None:
    """Neither while root's units may write something, nor after."""

    async def silent(notes: KitNotes) -> bool:
        notes.watch_until = trio.current_time() + 4 * LOOK
        with trio.move_on_after(8 * LOOK) as waits:
            await notes.next()
        return waits.cancelled_caught

    assert await silent(KitNotes(state))
    left_by_root(state, outcomes.UPDATE, version="2", previous_version="1", why="")
    notes = KitNotes(state)
    assert await told(notes) == KitReport(UpdateReport("2", "1"))
    assert await silent(notes)


@pytest.mark.parametrize(
    "body", [b"", b"\xff", BODY[:-1], SettingsOffer("no change", "").encode(), KitReport().encode()]
)
async def test_what_cannot_be_an_offer_is_not_kept(state: Path, body: bytes) -> None:
    await KitNotes(state).take_in(body)
    assert not (state / OFFER).exists()


async def test_an_offer_that_the_disk_refuses_is_left_to_the_next_link(
    state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await KitNotes(state / "nowhere").take_in(BODY)
    assert "cannot be kept, it brings them again" in caplog.text


@pytest.mark.parametrize("text", ["", "{", "[]", '{"number": "7"}', '{"number": 7}'])
def test_a_file_that_is_damaged_tells_nothing(state: Path, text: str) -> None:
    for name in (outcomes.SETTINGS, outcomes.UPDATE):
        (outcomes.folder_of(state) / name).write_text(text)
    assert outcomes.read(state) == KitReport()
