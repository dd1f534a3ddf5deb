"""The hub's data about a person as files: from real processes, on both engines."""

from __future__ import annotations

import base64
import json
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.hub.test_deletion import kit_of
from tests.processes import MODULE, PATIENCE, administer, hub, until


def rows(folder: Path, name: str) -> list[Any]:
    return [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]


def export(database: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [*MODULE, "hub", *words, "--database", database]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)


@pytest.fixture
def elapsed(database: str, tmp_path: Path) -> str:
    """Return a database in which Ada has sent an SOS and some bytes, and Ben has both."""
    first = administer(database, "init", "Alps")
    for name in ("Ada", "Ben"):
        administer(database, "user", "add", name, "--email", f"{name}@example.org")
    tokens = {
        name: administer(database, "device", "add", f"kit of {name}", "--user", name)["hub-token"]
        for name in ("Ada", "Ben")
    }
    with (
        hub(tmp_path, {"database": database}) as running,
        kit_of(tmp_path, "Ada", tokens["Ada"], running.address) as ada,
        kit_of(tmp_path, "Ben", tokens["Ben"], running.address) as ben,
    ):
        for kit in (ada, ben):
            kit.expect("linked to the hub")
        payload = base64.b64encode(b"\x00\x01 bytes").decode()
        for body in (
            {"message": {"content": "Fallen ✚"}, "priority": 200},
            {"data": {"payload": payload}},
        ):
            assert ada.call("POST", "/api/package", body).body["status"] == "Delivered"
        assert ben.post("from Ben to all").body["status"] == "Delivered"
        until(lambda: len(ben.call("GET", "/api/inbound").body["payloads"]) == 2)
        until(lambda: not any(each["waiting"] for each in administer(database, "device", "list")))
    administer(database, "group", "add", "rescue", "Ada", "Ben")
    administer(database, "user", "radio", "Ada", "!a1b2c3d4")
    administer(database, "user", "radio", "Ben", "!b1b2c3d4")
    assert first["apiKey"]
    return database


def test_workspace_export_is_complete_and_without_secrets(elapsed: str, tmp_path: Path) -> None:
    target = tmp_path / "alps"
    summary = json.loads(export(elapsed, "workspace", "export", target, "--json").stdout)
    assert (summary["folder"], summary["name"], summary["items"]) == (str(target), "Alps", 3)
    sos, data, word = rows(target, "items")
    assert sos["event"]["content"] == "Fallen ✚"
    assert sos["sos"]
    assert [each["state"] for each in sos["deliveries"]] == ["stored"]
    assert (target / data["event"]["file"]).read_bytes() == b"\x00\x01 bytes"
    assert word["sender"]["name"] == "Ben"
    assert {each["name"] for each in rows(target, "users")} == {"push", "Ada", "Ben"}
    kits = {each["name"]: each for each in rows(target, "devices")}
    assert kits.keys() == {"kit of Ada", "kit of Ben"}
    assert kits["kit of Ada"]["version"]
    (raised,) = rows(target, "sos")
    assert raised["timeline"][0]["event"] == "raised"
    (group,) = rows(target, "groups")
    assert [each["name"] for each in group["members"]] == ["Ada", "Ben"]
    assert [each["radio"] for each in rows(target, "radios")] == ["!a1b2c3d4", "!b1b2c3d4"]
    assert len(rows(target, "keys")) == len(rows(target, "tokens")) == 1
    assert json.loads((target / "export.json").read_text())["devices"] == 2
    for path in target.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)
    everything = "".join(p.read_text(errors="replace") for p in target.rglob("*") if p.is_file())
    assert not any(word in everything for word in ("lookup", "link_token", "air_key"))


@pytest.mark.full
def test_user_export_contains_only_data_of_the_user(elapsed: str, tmp_path: Path) -> None:
    target = tmp_path / "ada"
    done = export(elapsed, "user", "export", "Ada", target)
    assert done.returncode == 0, done.stderr
    assert [each["sender"]["name"] for each in rows(target, "items")] == ["Ada", "Ada"]
    assert [each["email"] for each in rows(target, "users")] == ["ada@example.org"]
    assert [each["name"] for each in rows(target, "devices")] == ["kit of Ada"]
    assert [each["radio"] for each in rows(target, "radios")] == ["!a1b2c3d4"]
    assert not (target / "keys.jsonl").exists()
    assert not (target / "groups.jsonl").exists()
    again = export(elapsed, "user", "export", "Ada", target)
    assert (again.returncode, "already exists" in again.stderr) == (65, True)
    nobody = export(elapsed, "user", "export", "Eve", tmp_path / "eve")
    assert (nobody.returncode, "no user 'Eve'" in nobody.stderr) == (65, True)
    assert not (tmp_path / "eve").exists()
    nowhere = export(elapsed, "user", "export", "Ada", Path("/proc/none/ada"))
    assert (nowhere.returncode, "the export stopped" in nowhere.stderr) == (74, True)
