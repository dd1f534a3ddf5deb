"""Power fails at each step of remote settings: the old file or the new one is complete, and the
right one wins in the end. The steps and signatures are real. systemd and the agent's answers are
simulated.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from fieldagent.agent.from_afar import (
    BUILT_IN_VALUES,
    LOCAL_ONLY_SETTINGS,
    NotForThisKit,
    change_settings,
)
from fieldagent.agent.outcomes import OFFER
from fieldagent.agent.settings import list_all_keys, parse
from fieldagent.extensions.fleet import settings_trial
from fieldagent.extensions.fleet.settings_trial import SettingsPlace
from fieldagent.kit import kit_health
from fieldagent.wire.kit_note import SettingsOffer
from fieldagent.wire.settings_change import SettingsChange, get_kit_id
from tests.cut import PowerCut, cut_at, cut_everywhere
from tests.signer import Signer

TOKEN = "x" * 40
OPERATING = (Path(__file__).parents[3] / "docs/how-to/change-settings.md").read_text()
WAS = "# of the kit\nhub-address=https://hub.example.org\nhub-token={}\nsos-repeat=600\n"


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Signer:
    return Signer(tmp_path_factory.mktemp("operator") / "keys")


class Kit:
    """A kit. `links` is True if the agent finds the hub with the current settings."""

    def __init__(self, folder: Path, signer: Signer, *, links: bool = True) -> None:
        self.signer, self.links, self.runs = signer, links, True
        self.place = SettingsPlace(folder / "state-update")
        self.state = folder / "state"
        self.state.mkdir()
        self.offer = self.state / OFFER
        self.key = folder / "update.pub"
        self.key.write_text(signer.public)
        self.settings = folder / "agent.properties"
        self.was = WAS.format(TOKEN) + f"state-directory={self.state}\n"
        self.settings.write_text(self.was)

    def bring(
        self, *pairs: tuple[str, str], number: int = 7, token: str = TOKEN, as_text: str = ""
    ) -> None:
        """Put settings from the hub where the agent leaves them."""
        text = as_text or SettingsChange("kit", get_kit_id(token), number, pairs).format_text()
        signed = self.settings.with_name("signed")
        signed.write_text(text)
        self.offer.write_bytes(SettingsOffer(text, self.signer.sign(signed)).encode())

    def go_on(self) -> int:
        return settings_trial.continue_trial(
            self.place, self.settings, self.key, minutes=0, steady=0
        )

    def systemctl(self, *words: str) -> None:
        self.runs = words[0] == "start"

    def status(self, _: Path) -> dict[str, Any] | None:
        new = self.settings.read_text() != self.was
        state = "ready" if self.links or not new else "no service"
        return {"uptime": 60.0, "channels": {"Cellular": {"state": state, "reason": "far away"}}}

    def outcome(self) -> tuple[int, str, str]:
        result = json.loads(self.place.result.read_bytes())
        return result["number"], result["state"], result["why"]


@pytest.fixture
def kit(tmp_path: Path, signer: Signer, monkeypatch: pytest.MonkeyPatch) -> Kit:
    return kit_in(tmp_path, signer, monkeypatch)


def kit_in(folder: Path, signer: Signer, monkeypatch: pytest.MonkeyPatch) -> Kit:
    made = Kit(folder, signer)
    monkeypatch.setattr(kit_health, "call_systemctl", made.systemctl)
    monkeypatch.setattr(kit_health, "fetch_status", made.status)
    monkeypatch.setattr(kit_health, "fetch_working_channels", lambda port: {"Cellular": "ready"})
    return made


@pytest.fixture(scope="module")
def signed_offer(tmp_path_factory: pytest.TempPathFactory, signer: Signer) -> bytes:
    """Return an offer that is signed once for all steps."""
    (folder := tmp_path_factory.mktemp("brought")).mkdir(exist_ok=True)
    made = Kit(folder, signer)
    made.bring(("sos-repeat", "900"))
    return made.offer.read_bytes()


@pytest.mark.parametrize("links", [True, False], ids=["link returns", "link stays down"])
def test_power_cut_at_any_step_leaves_old_or_new_settings_complete(
    tmp_path: Path,
    signer: Signer,
    signed_offer: bytes,
    links: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = ((os, "fsync"), (Path, "rename"), (Path, "unlink"), (kit_health, "call_systemctl"))

    def run(home: Path, step: int) -> list[int]:
        kit = kit_in(home, signer, monkeypatch)
        kit.links = links
        kit.offer.write_bytes(signed_offer)
        with cut_at(step, *files) as made:
            kit.go_on()
        new = kit.was.replace("sos-repeat=600\n", "") + "sos-repeat=900\n"
        assert kit.settings.read_text() in (kit.was, new)
        kit.systemctl("start")
        kit.go_on()
        assert kit.settings.read_text() == (new if links else kit.was)
        assert kit.outcome()[:2] == (7, "taken" if links else "back")
        assert kit.runs
        assert not kit.offer.exists()
        assert {each.name for each in kit.place.folder.iterdir()} <= {
            "lock", "settings-number", "settings-result.json", "settings-result.json.new",
            "settings.json.new", "settings-new.properties.new", "settings-before.properties.new",
            "settings-number.new",
        }  # fmt: skip
        return made

    assert cut_everywhere(tmp_path, run) > 20


def test_new_settings_are_applied_and_the_previous_file_is_kept(kit: Kit) -> None:
    kit.bring(("sos-repeat", "900"), ("radio-name", ""), ("gpsd", "none"))
    assert kit.go_on() == 0
    assert kit.settings.read_text().splitlines()[-2:] == ["sos-repeat=900", "gpsd=none"]
    assert "# of the kit" in kit.settings.read_text()
    assert kit.settings.with_name("agent.properties.before").read_text() == kit.was
    assert kit.place.result.stat().st_mode & 0o777 == 0o644
    # The hub may send them again before it gets the result.
    kit.bring(("sos-repeat", "900"))
    kit.go_on()
    assert kit.outcome() == (7, "taken", "")


def test_settings_are_rolled_back_with_the_reason_if_the_link_stays_down(kit: Kit) -> None:
    kit.links = False
    kit.bring(("cellular-interface", "wwan9"))
    assert kit.go_on() == 1
    assert kit.settings.read_text() == kit.was
    assert kit.outcome() == (7, "back", "Cellular was ready, and is no service (far away)")


@pytest.mark.parametrize("works", [["Satellite"], ["Satellite", "Cellular"]], ids=len)
def test_settings_received_by_satellite_require_only_the_channels_that_worked(
    kit: Kit, monkeypatch: pytest.MonkeyPatch, works: list[str]
) -> None:
    """A kit that is in range only by its modem has no link that could return."""
    now = dict.fromkeys(works, "ready")
    monkeypatch.setattr(kit_health, "fetch_working_channels", lambda port: now)
    settings = parse(
        "satellite-port=/dev/modem\nhub-address=https://hub\nhub-token=x\n", kit.settings
    )
    assert settings_trial._find_required_channels(settings, by_satellite=True) == now
    by_link = settings_trial._find_required_channels(settings, by_satellite=False)
    assert by_link == now | {"Cellular": "ready"}


def test_settings_edited_locally_during_the_trial_are_kept(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_hand = kit.was + "sos-repeat=1200\n"

    def mended(_: Path) -> None:
        kit.settings.write_text(by_hand)

    monkeypatch.setattr(kit_health, "fetch_status", mended)
    kit.bring(("sos-repeat", "900"))
    kit.go_on()
    assert kit.settings.read_text() == by_hand


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "of another kit": ({"token": "y" * 40}, "the settings are for another kit"),
    "a typo": ({"pairs": [("sos-repaet", "5")]}, "'sos-repaet' is not a setting; the nearest is"),
    "a wrong value": ({"pairs": [("sos-repeat", "never")]}, "sos-repeat must be a whole number"),
    "incomplete": ({"pairs": [("radio-port", "/dev/ttyACM0")]}, "radio-port needs radio-station"),
    "no such text": ({"as_text": "PK a program\n"}, "the signed text does not have the form"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_invalid_settings_offer_is_refused_and_changes_nothing(kit: Kit, name: str) -> None:
    how, why = REFUSED[name]
    kit.bring(*how.pop("pairs", [("sos-repeat", "900")]), **how)
    assert kit.go_on() == 65
    number, state, reason = kit.outcome()
    assert (number in (0, 7), state) == (True, "refused")
    assert why in reason
    assert kit.settings.read_text() == kit.was
    assert not kit.offer.exists()


def test_third_party_program_is_refused_in_remote_settings() -> None:
    """The test covers each setting whose description allows a third-party program."""
    named = {key.name for key in list_all_keys() if "package.module:NAME" in key.description}
    assert named == BUILT_IN_VALUES.keys()
    for name in named:
        change = SettingsChange("kit", get_kit_id(TOKEN), 1, ((name, "json:loads"),))
        with pytest.raises(
            NotForThisKit, match="can only be set on the kit, because it is a program"
        ):
            change_settings(f"hub-token={TOKEN}\n", change, Path("agent.properties"))


@pytest.mark.parametrize("name", LOCAL_ONLY_SETTINGS)
def test_local_only_setting_is_refused_in_remote_settings(kit: Kit, name: str) -> None:
    assert name in {key.name for key in list_all_keys()}
    assert f"`{name}`" in OPERATING and LOCAL_ONLY_SETTINGS[name] in OPERATING
    kit.bring((name, "1"))
    assert kit.go_on() == 65
    assert f"{name} can only be set on the kit" in kit.outcome()[2]
    assert kit.settings.read_text() == kit.was


def test_replayed_or_altered_settings_offer_is_refused(kit: Kit) -> None:
    kit.bring(("sos-repeat", "900"), number=9)
    kit.go_on()
    kit.bring(("sos-repeat", "300"), number=8)
    assert kit.go_on() == 65
    assert "later settings were already processed, number 9" in kit.outcome()[2]
    kit.bring(("sos-repeat", "300"), number=10)
    kit.offer.write_bytes(kit.offer.read_bytes().replace(b"=300", b"=301"))
    assert kit.go_on() == 65
    assert kit.outcome() == (
        10, "refused", "the file is not the one that was signed: it was changed, or cut short",
    )  # fmt: skip
    assert "sos-repeat=900" in kit.settings.read_text()


def test_agents_user_cannot_read_or_change_root_files_by_an_offer(kit: Kit, tmp_path: Path) -> None:
    secret = tmp_path / "shadow"
    secret.write_text("root's")
    for leave in (
        lambda: kit.offer.symlink_to(secret),
        lambda: os.mkfifo(kit.offer),
        lambda: kit.offer.write_bytes(b"\xff" * 100_000),
        lambda: kit.offer.write_bytes(b""),
    ):
        leave()
        assert kit.go_on() == 65
        assert not kit.offer.is_symlink() and not kit.offer.exists()
        assert "root's" not in kit.place.result.read_text()
    assert secret.read_text() == "root's"
    assert kit.settings.read_text() == kit.was


def test_missing_operators_key_is_reported_with_its_path(kit: Kit) -> None:
    kit.key.unlink()
    kit.bring(("sos-repeat", "900"))
    assert kit.go_on() == 65
    assert f"{kit.key} does not exist: put the operator's minisign key" in kit.outcome()[2]


def test_settings_are_rolled_back_after_repeated_restarts(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(_: Path) -> None:
        raise PowerCut

    kit.bring(("sos-repeat", "900"))
    with monkeypatch.context() as failing:
        failing.setattr(kit_health, "fetch_status", dies)
        for _ in range(kit_health.BOOTS):
            with pytest.raises(PowerCut):
                kit.go_on()
    assert kit.go_on() == 1
    assert "was started 3 times" in kit.outcome()[2]
    assert kit.settings.read_text() == kit.was
