"""Power fails at each step of taking the hub's offer: it is tried once, or refused with the reason.
The steps are real. Network, new program and systemd are simulated.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from fieldagent.agent.outcomes import PROGRAM_DELTA, PROGRAM_OFFER
from fieldagent.extensions.fleet import trial, update, update_offer
from fieldagent.extensions.fleet.fetching import ServerUnreachable, UpdateRefused
from fieldagent.extensions.fleet.update_order import UpdateOrder
from fieldagent.kit import kit_health
from fieldagent.wire.kit_note import ProgramOffer
from fieldagent.wire.minisign_text import SignatureParts
from fieldagent.wire.signed_delta import SignedDelta
from tests.cut import cut_at, cut_everywhere

OLD, NEW = b"the program before\n", b"the new program\n"
VERSIONS = {OLD: "1", NEW: "2"}


class Kit:
    """A kit. `works` is True if the new program works."""

    def __init__(self, folder: Path, *, works: bool) -> None:
        self.works, self.fetched = works, 0
        self.state = folder / "state"
        self.state.mkdir()
        self.place = trial.Place(folder / "state-update")
        self.program = folder / "fieldagent.pyz"
        self.program.write_bytes(OLD)
        self.settings = folder / "agent.properties"
        self.settings.write_text(f"state-directory={self.state}\n")
        self.offer = self.state / PROGRAM_OFFER
        self.bring(ProgramOffer(7, "2", "https://example.org/2.pyz").encode())
        self.refusal: list[UpdateRefused] = []
        """Refusals of the next downloads."""

    def bring(self, body: bytes) -> None:
        self.offer.write_bytes(body)

    def receive_message(self) -> int:
        return update_offer.process_offer(
            UpdateOrder(
                what="",
                program=self.program,
                settings=self.settings,
                key=Path("update.pub"),
                older=False,
                minutes=0.0,
                steady=0.0,
            ),
            self.place,
        )

    def verified(self, what: str, now: bytes, key: Path, place: trial.Place) -> tuple[bytes, str]:
        self.fetched += 1
        if self.refusal:
            raise self.refusal.pop(0)
        return NEW, VERSIONS[NEW]

    def brought(self, delta: SignedDelta, now: bytes, key: Path) -> tuple[bytes, str]:
        assert delta.encode_payload() == PAYLOAD
        return self.verified("", now, key, self.place)

    def status(self, _: Path) -> dict[str, Any] | None:
        new = self.program.read_bytes() == NEW
        if new and not self.works:
            return None
        channels = {"Cellular": {"configured": False}}
        return {"version": "2" if new else "1", "uptime": 60.0, "channels": channels}

    def outcome(self) -> tuple[int, str, str]:
        result = json.loads(self.place.offered.read_bytes())
        return result["number"], result["state"], result["why"]


PAYLOAD = SignedDelta(b"a delta", SignatureParts(bytes(74), "signed", bytes(64))).encode_payload()


@pytest.fixture
def kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kit:
    return kit_in(tmp_path, monkeypatch)


def kit_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Kit:
    made = Kit(folder, works=True)
    monkeypatch.setattr(kit_health, "call_systemctl", lambda *words: None)
    monkeypatch.setattr(kit_health, "fetch_status", made.status)
    monkeypatch.setattr(kit_health, "fetch_working_channels", lambda port: {})
    monkeypatch.setattr(update, "_verify_program", made.verified)
    monkeypatch.setattr(update, "_build_from_delta", made.brought)
    monkeypatch.setattr(update, "_read_version", lambda program: VERSIONS[program.read_bytes()])
    monkeypatch.setattr(update, "_find_faults", lambda program, settings: [])
    monkeypatch.setattr(update, "_start_unit", lambda place: None)
    monkeypatch.setattr(update_offer, "RETRY_PAUSES_S", (0.0, 0.0, 0.0))
    return made


@pytest.mark.parametrize("brought", [False, True], ids=["downloaded", "delivered"])
@pytest.mark.parametrize("works", [True, False], ids=["program works", "program fails"])
def test_power_cut_at_any_step_tries_or_refuses_the_offer_once(
    tmp_path: Path, works: bool, brought: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = ((os, "fsync"), (Path, "rename"), (Path, "unlink"), (kit_health, "call_systemctl"))

    def run(home: Path, step: int) -> list[int]:
        kit = kit_in(home, monkeypatch)
        kit.works = works
        delta = kit.offer.with_name(PROGRAM_DELTA)
        if brought:
            delta.write_bytes(PAYLOAD)
            kit.bring(ProgramOffer(7, "2", "").encode())
        with cut_at(step, *files) as made:
            kit.receive_message()
            trial.continue_trial(kit.place)
        assert kit.program.read_bytes() in (OLD, NEW)
        # Each boot of the kit starts with the program on trial, and then checks for an offer.
        for _ in range(2):
            trial.continue_trial(kit.place)
            kit.receive_message()
        trial.continue_trial(kit.place)
        assert kit.program.read_bytes() == (NEW if works else OLD)
        assert kit.outcome()[:2] == (7, "taken" if works else "back")
        assert not kit.offer.exists() and not delta.exists()
        assert kit.fetched <= 2
        assert {each.name for each in kit.place.folder.iterdir() if each.suffix != ".new"} == {
            "lock", "offer-result.json", "previous.pyz", "result.json",
        }  # fmt: skip
        return made

    assert cut_everywhere(tmp_path, run) > 20


def test_offer_waits_until_a_system_update_has_ended(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refusal would stop the offer for the whole fleet."""
    kit.place.folder.mkdir(exist_ok=True)
    kit.place.system.write_text("{}")
    monkeypatch.setattr(time, "sleep", lambda seconds: kit.place.system.unlink())
    kit.receive_message()
    trial.continue_trial(kit.place)
    assert kit.outcome()[:2] == (7, "taken")


@pytest.mark.parametrize(
    ("body", "number", "words"),
    [
        (ProgramOffer(7, "3", "https://example.org/2.pyz").encode(), 7, "is 2, and 3 was offered"),
        (b"", 0, "CBOR"),
        (b"\xff" * 100_000, 0, ""),
        (b"\x81\x00", 0, "offers no program"),
        (
            ProgramOffer(7, "2", "").encode(),
            7,
            "offer: it is not a program delta",
        ),
    ],
    ids=["another version", "empty", "garbage", "a report", "no delta beside it"],
)
def test_invalid_update_offer_is_refused_and_changes_nothing(
    kit: Kit, body: bytes, number: int, words: str
) -> None:
    kit.bring(body)
    assert kit.receive_message() == 65
    assert kit.outcome()[:2] == (number, "refused")
    assert words in kit.outcome()[2]
    assert kit.program.read_bytes() == OLD
    assert not kit.offer.exists() and not kit.place.trial.exists()


def test_installed_version_and_repeated_offer_are_not_installed(kit: Kit) -> None:
    kit.program.write_bytes(NEW)
    assert kit.receive_message() == 65
    assert kit.outcome() == (7, "refused", "2 is already running: --older installs it anyway")
    kit.bring(ProgramOffer(7, "2", "https://example.org/2.pyz").encode())
    kit.program.write_bytes(OLD)
    assert kit.receive_message() == 0
    assert kit.fetched == 1 and not kit.offer.exists()


def test_unreachable_server_is_retried_and_a_missing_file_is_not(kit: Kit) -> None:
    kit.refusal = [ServerUnreachable("no route")] * 3
    assert kit.receive_message() == 0
    assert kit.fetched == 4 and kit.place.trial.exists()
    trial.continue_trial(kit.place)
    kit.program.write_bytes(OLD)
    kit.bring(ProgramOffer(8, "2", "https://example.org/2.pyz").encode())
    kit.refusal = [UpdateRefused("404")]
    assert kit.receive_message() == 65
    assert kit.outcome() == (8, "refused", "404")


def test_symlink_as_update_offer_is_not_followed(kit: Kit, tmp_path: Path) -> None:
    (secret := tmp_path / "shadow").write_bytes(kit.offer.read_bytes())
    kit.offer.unlink()
    kit.offer.symlink_to(secret)
    assert kit.receive_message() == 65
    assert kit.outcome()[:2] == (0, "refused")
    assert secret.exists() and not kit.offer.is_symlink()
