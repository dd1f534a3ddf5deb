"""A program is updated and rolled back: real agents and the real unit's command. Only systemd is
simulated.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from fieldagent.agent.journal.schema import JOURNAL
from fieldagent.extensions.fleet.settings_trial import SettingsPlace
from fieldagent.kit import kit_health
from fieldagent.wire.kit_note import SettingsOffer
from fieldagent.wire.settings_change import SettingsChange, get_kit_id
from tests.file_server import file_server
from tests.processes import PATIENCE, administer, sky, until
from tests.shipping.update_kit import Kit, kit, linked_kit, rebuilt, version

SOON = ("--within", "3", "--steady", "1")
MUTE = {
    "fieldagent/agent/channels/sbd_modem.py": (
        "await modem.set_up()",
        "raise ModemSilent('this version cannot')",
    )
}
NOW = JOURNAL.version
ADDED = "CREATE TABLE later (x);\nALTER TABLE package ADD COLUMN later TEXT NOT NULL DEFAULT '';\n"
LATER = {
    "fieldagent/agent/journal/schema.py": (
        f"JOURNAL = Schema({NOW}, TABLES_SQL, STEPS)",
        f"ADDED = {ADDED!r}\n"
        f"JOURNAL = Schema({NOW + 1}, TABLES_SQL + ADDED, {{**STEPS, {NOW}: ADDED}})",
    )
}
DEAD = {
    "fieldagent/cli/kit/run.py": (
        "    start_logging(arguments.verbose)\n",
        "    raise SystemExit('no')\n",
    )
}
STRICT = {"fieldagent/agent/settings.py": ('"inbound-hook"', '"incoming-hook"')}


@pytest.fixture
def programs(zipapp: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "programs"
    folder.mkdir()
    return folder


@pytest.fixture
def ready(zipapp: Path, tmp_path: Path) -> Iterator[Kit]:
    """Yield a running agent with its modem."""
    (tmp_path / "kit").mkdir()
    settings = {"satellite-port": str(tmp_path / "modem"), "inbound-hook": "cat"}
    with sky(tmp_path), kit(tmp_path / "kit", zipapp, settings) as made:
        made.systemctl("start", "fieldagent.service")
        until(lambda: made.state_of("Satellite") == "ready")
        yield made


def signed(made: Kit, program: Path) -> Path:
    made.signer.release(program)
    return program


@pytest.mark.full
def test_newer_program_keeps_queue_and_settings(ready: Kit, zipapp: Path, programs: Path) -> None:
    sent = ready.call("POST", "/api/package", {"message": {"content": "before"}})
    new = rebuilt(zipapp, programs / "9.0.0.pyz", version("9.0.0") | LATER)
    done = ready.update(signed(ready, new), *SOON)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "signed: fieldagent program 9.0.0, signed 20" in done.stderr
    assert "9.0.0 runs" in done.stdout
    assert ready.version() == "9.0.0"
    assert ready.call("GET", f"/api/package/{sent['id']}")["status"] == "Delivered"
    assert sorted(each.name for each in (ready.home / "state-update").iterdir()) == [
        "lock", "previous.pyz", "result.json",
    ]  # fmt: skip
    again = ready.update(new)
    assert again.returncode == 65
    assert "9.0.0 is already running" in again.stderr


@pytest.mark.full
def test_update_waits_for_an_sos_that_is_only_in_memory(
    zipapp: Path, programs: Path, tmp_path: Path
) -> None:
    """Remote settings wait too: the command prints instructions, and the update happens after the
    SOS has ended.
    """
    (tmp_path / "kit/state/journal.sqlite3").mkdir(parents=True)
    with kit(tmp_path / "kit", zipapp, {"satellite-port": str(tmp_path / "nobody")}) as made:
        made.systemctl("start", "fieldagent.service")
        until(lambda: made.version() != "")
        before = made.version()
        made.call("POST", "/api/sos", {"text": "leg broken"})
        new = signed(made, rebuilt(zipapp, programs / "9.0.0.pyz", version("9.0.0")))
        done = made.update(new, *SOON)
        assert done.returncode != 0
        assert "an open SOS is only in memory (" in done.stderr
        assert "it is a folder" in done.stderr
        place = SettingsPlace(tmp_path / "kit/state-update")
        signed_text = programs / "settings"
        change = SettingsChange("kit", get_kit_id(""), 1, (("sos-repeat", "900"),))
        signed_text.write_text(change.format_text())
        offer = SettingsOffer(signed_text.read_text(), made.signer.sign(signed_text))
        (tmp_path / "kit/state/settings.offer").write_bytes(offer.encode())
        made.take_settings()
        until(place.result.exists)
        assert "only in memory" in json.loads(place.result.read_bytes())["why"]
        assert made.version() == before
        made.call("DELETE", "/api/sos")
        until(lambda: not made.call("GET", "/api/status")["sos"]["active"])
        assert kit_health.find_stop_obstacle(made.port) == ""


@pytest.mark.full
def test_only_the_program_delta_is_fetched(ready: Kit, zipapp: Path, programs: Path) -> None:
    """The test updates twice, because the result of a delta is the base of the next one."""
    served, before = programs / "fieldagent.pyz", zipapp
    with file_server(programs) as address:
        for number in ("9.3.0", "9.4.0"):
            new = rebuilt(zipapp, programs / f"{number}.pyz", version(number))
            new.rename(served)
            delta = ready.signer.delta(served, before)
            before = served.rename(programs / number)
            done = ready.update(f"{address}/fieldagent.pyz", *SOON)
            assert done.returncode == 0, done.stdout + done.stderr
            assert ready.version() == number
            size = delta.stat().st_size
            assert f"a delta of {size:,} bytes was applied" in done.stderr and size < 4000


@pytest.fixture
def linked(zipapp: Path, tmp_path: Path) -> Iterator[tuple[Kit, str]]:
    """Yield a running agent linked to its hub, and the hub's database."""
    with linked_kit(tmp_path, zipapp) as linked:
        yield linked


@pytest.mark.full
def test_program_that_does_not_start_is_rolled_back_and_reported(
    linked: tuple[Kit, str], zipapp: Path, programs: Path
) -> None:
    ready, database = linked
    before = ready.version()
    new = rebuilt(zipapp, programs / "9.0.1.pyz", version("9.0.1") | DEAD)
    done = ready.update(signed(ready, new), "--within", "0.1")
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"9.0.1 did not work, and {before} runs again: no agent answers" in done.stderr
    until(lambda: ready.version() == before)
    assert "no agent answers" in ready.update("--last").stderr
    until(lambda: administer(database, "device", "list")[0]["lastUpdate"])
    (listed,) = administer(database, "device", "list")
    assert listed["version"] == before
    assert f"9.0.1 fell back to {before}: no agent answers" in listed["lastUpdate"]


@pytest.mark.full
def test_program_that_loses_a_channel_is_rolled_back_with_its_journal(
    ready: Kit, zipapp: Path, programs: Path
) -> None:
    before = ready.version()
    sent = ready.call("POST", "/api/package", {"message": {"content": "delivered before"}})
    new = rebuilt(zipapp, programs / "9.0.2.pyz", version("9.0.2") | MUTE | LATER)
    done = ready.update(signed(ready, new), "--within", "0.15", "--steady", "1")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Satellite was ready, and is absent" in done.stderr
    until(lambda: ready.version() == before)
    assert ready.call("GET", f"/api/package/{sent['id']}")["status"] == "Delivered"
    assert (ready.home / "state/journal.sqlite3.of-9.0.2").exists()
    until(lambda: ready.state_of("Satellite") == "ready")


@pytest.mark.full
def test_sos_accepted_during_the_trial_is_sent_after_the_rollback(
    ready: Kit, zipapp: Path, programs: Path, tmp_path: Path
) -> None:
    """The earlier program cannot read the journal of the new one."""
    before = ready.version()
    new = rebuilt(zipapp, programs / "9.0.3.pyz", version("9.0.3") | MUTE | LATER)
    until_it_goes_back = ("--within", "0.3", "--steady", "1")
    with ready.begin_update(signed(ready, new), *until_it_goes_back) as process:
        until(lambda: ready.version() == "9.0.3")
        body = {"message": {"content": "accepted on trial"}, "priority": 100}
        sos = ready.call("POST", "/api/package/async", body)
        for number in range(3):
            ready.call("POST", "/api/package/async", {"message": {"content": f"and {number}"}})
        assert ready.call("GET", "/api/status")["sos"]["active"] == 1
        output, complained = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1, output + complained
    until(lambda: ready.version() == before)
    status = ready.call("GET", "/api/status")
    assert status["sos"]["active"] == 1
    assert status["journal"]["losses"] == []
    assert not [*(ready.home / "state").glob("*.bad")]
    place = f"/api/package/{sos['id']}"
    until(lambda: ready.call("GET", place)["channels"]["Satellite"]["status"] == "Delivered")
    until(lambda: ready.call("GET", "/api/queue")["queued"] == 0)
    # None of them gets the number of another.
    assert ready.call("POST", "/api/package/async", body)["id"] == sos["id"] + 4
    assert not [*(ready.home / "state").glob("*.before*")]


@pytest.mark.full
@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        (version("0.0.9"), "0.0.9 is older than"),
        (version("9.1.0") | STRICT, "inbound-hook"),
        ({"fieldagent/__main__.py": ("def main", "raise SystemExit('bang')\ndef main")}, "bang"),
    ],
    ids=["older", "settings", "start"],
)
def test_unsuitable_program_is_refused_before_any_change(
    zipapp: Path, programs: Path, tmp_path: Path, changes: dict[str, tuple[str, str]], refusal: str
) -> None:
    new = rebuilt(zipapp, programs / "new.pyz", changes)
    (tmp_path / "kit").mkdir()
    with kit(tmp_path / "kit", zipapp, {"inbound-hook": "cat"}) as made:
        done = made.update(signed(made, new))
        assert done.returncode == 65, done.stdout + done.stderr
        assert refusal in done.stderr
        assert "nothing was changed" in done.stderr
        assert made.program.read_bytes() == zipapp.read_bytes()
        assert not (made.home / "state-update/trial.json").exists()


def test_unsigned_or_altered_program_is_refused(zipapp: Path, tmp_path: Path) -> None:
    (tmp_path / "kit").mkdir()
    new = tmp_path / "new.pyz"
    new.write_bytes(zipapp.read_bytes())
    with kit(tmp_path / "kit", zipapp, {}) as made:
        unsigned = made.update(new)
        assert f"{new}.minisig cannot be read" in unsigned.stderr
        signed(made, new)
        new.write_bytes(zipapp.read_bytes() + b"!")
        changed = made.update(new)
        assert "changed, or cut short" in changed.stderr
        (made.home / "update.pub").unlink()
        nobody = made.update(new)
        assert "put the public minisign key" in nobody.stderr
        assert {unsigned.returncode, changed.returncode, nobody.returncode} == {65}


SIGNED = "fieldagent {kind} {version}, signed 2026-01-02, expires {until}"


@pytest.mark.full
@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("timestamp:1700000000 file:new.pyz hashed", "has no kind, version and expiry"),
        (SIGNED.format(kind="settings", version="9.2.0", until="9999-12-31"), "not a program"),
        (SIGNED.format(kind="program", version="9.9.9", until="9999-12-31"), "signed as 9.9.9"),
        (
            SIGNED.format(kind="program", version="9.2.0", until="2026-01-03"),
            "the signature expired on 2026",
        ),
        (SIGNED.format(kind="program", version="9.2.0", until="2026-13-01"), "has no date"),
    ],
    ids=["no fields", "kind", "version", "expired", "no date"],
)
def test_program_with_a_signature_for_another_purpose_is_refused(
    zipapp: Path, programs: Path, tmp_path: Path, text: str, refusal: str
) -> None:
    new = rebuilt(zipapp, programs / "new.pyz", version("9.2.0"))
    (tmp_path / "kit").mkdir()
    with kit(tmp_path / "kit", zipapp, {}) as made:
        made.signer.sign(new, "-t", text)
        done = made.update(new)
        assert done.returncode == 65, done.stdout + done.stderr
        assert refusal in done.stderr and "nothing was changed" in done.stderr
        assert made.program.read_bytes() == zipapp.read_bytes()


def test_last_update_is_reported_as_none_or_with_its_result(zipapp: Path, tmp_path: Path) -> None:
    (tmp_path / "kit").mkdir()
    with kit(tmp_path / "kit", zipapp, {}) as made:
        assert "nothing was updated yet" in made.update("--last").stdout
        result = {"version": "2", "previous_version": "1", "why": ""}
        (made.home / "state-update").mkdir()
        (made.home / "state-update/result.json").write_text(json.dumps(result))
        assert "2 runs (before: 1)" in made.update("--last").stdout
        document = json.loads(made.update("--last", "--json").stdout)
        assert document == {"phase": None, "version": "2", "before": "1", "why": None}
