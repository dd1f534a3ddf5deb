"""`fieldagent hub …` and `fieldagent push` at the command line."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.processes import MODULE, PATIENCE, hub
from tests.processes import administer_from_shell as administer


@pytest.mark.full
def test_directory_is_managed_from_the_command_line(database: str) -> None:
    first = administer(database, "init", "Alps")
    assert first["apiKey"].startswith("key_")
    assert first["token"].startswith("token_")
    ada = administer(database, "user", "add", "Ada", "--email", "ada@example.org")["id"]
    ben = administer(database, "user", "add", "Ben", "--password", secret="a long one\n")["id"]
    andes = administer(database, "workspace", "add", "Andes")["id"]
    in_alps = ("--workspace", "Alps")
    administer(database, "user", "join", str(ada), "--workspace", "Andes", "--over-satellite")
    assert [user["name"] for user in administer(database, "user", "list", *in_alps)] == [
        "push",
        "Ada",
        "Ben",
    ]
    (joined,) = administer(database, "user", "list", "--workspace", str(andes))
    assert (joined["id"], joined["overSatellite"], joined["password"]) == (ada, True, False)
    imei = ("--imei", "300234010000001", "--tagged", "--credits-per-day", "9")
    device = administer(database, "device", "add", "kit", "--user", "Ada", *imei, *in_alps)
    assert len(bytes.fromhex(device["satellite-key"])) == 32
    administer(database, "device", "rename", "kit", "old kit", *in_alps)
    administer(database, "device", "rename", "old kit", "kit", *in_alps)
    again = administer(database, "device", "token", "kit", *in_alps)
    assert again["hub-token"] != device["hub-token"]
    (listed,) = administer(database, "device", "list", *in_alps)
    assert (listed["imei"], listed["operator"], listed["linked"]) == (imei[1], "directip", False)
    administer(database, "device", "disable", "kit", *in_alps)
    assert administer(database, "device", "list", *in_alps)[0]["disabled"] is not None
    key = administer(database, "key", "add", "few", "--kind", "location", "--days", "1", *in_alps)
    rate = administer(database, "key", "rate", str(key["id"]), "--per-minute", "9", *in_alps)
    assert rate == {"id": key["id"], "perMinute": 9, "burst": 60}
    with pytest.raises(AssertionError, match="is active in that workspace"):
        administer(database, "key", "revoke", str(key["id"]), "--workspace", str(andes))
    administer(database, "key", "revoke", str(key["id"]), *in_alps)
    keys = administer(database, "key", "list", *in_alps)
    assert [(each["name"], each["revoked"] is None) for each in keys] == [
        ("push", True),
        ("few", False),
    ]
    administer(database, "user", "token", "add", "of Ben", "--user", str(ben), *in_alps)
    assert len(administer(database, "user", "token", "list", *in_alps)) == 2
    hook = administer(database, "webhook", "add", "https://example.org/x", "--untried", *in_alps)
    assert administer(database, "webhook", "list", *in_alps)[0]["signed"] is True
    administer(database, "webhook", "remove", str(hook["id"]), *in_alps)
    audit = str(administer(database, "audit"))
    for action in ("workspace add", "user join", "device add", "key revoke", "webhook remove"):
        assert action in audit
    for secret in (first["apiKey"], first["token"], device["hub-token"], key["apiKey"]):
        assert secret not in audit


@pytest.mark.full
def test_user_name_ignores_case_unless_ambiguous(database: str) -> None:
    administer(database, "init", "Alps")
    in_alps, in_andes = ("--workspace", "Alps"), ("--workspace", "Andes")
    administer(database, "workspace", "add", "Andes")
    ids = [
        administer(database, "user", "add", *words)["id"]
        for words in (
            ["Ada", "--email", "Ada@Example.org", *in_alps],
            ["Ben", *in_alps],
            # A workspace refuses a second user of a name, but one of another workspace may join.
            ["ben", *in_andes],
            ["Zoe", *in_alps],
            ["Zoe", *in_andes],
        )
    ]
    for id_ in (ids[2], ids[4]):
        administer(database, "user", "join", str(id_), *in_alps)
    called = {"ADA": ids[0], "ada@example.ORG": ids[0], "Ben": ids[1], "ben": ids[2], "4": ids[2]}
    for number, (name, id_) in enumerate(called.items()):
        administer(database, "device", "add", f"kit {number}", "--user", name, *in_alps)
        devices = {each["name"]: each for each in administer(database, "device", "list", *in_alps)}
        assert devices[f"kit {number}"]["user"] == id_, name
    for name in ("BEN", "Zoe"):
        with pytest.raises(AssertionError, match=r"2 users have the name .*: use a number, "):
            administer(database, "device", "add", "one more", "--user", name, *in_alps)


def test_init_shows_the_path_of_the_database(tmp_path: Path) -> None:
    done = subprocess.run(
        [*MODULE, "hub", "init", "Alps", "--database", "hub.sqlite3"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert f"The database is {tmp_path / 'hub.sqlite3'}." in done.stderr


@pytest.mark.full
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["user", "add", "x", "--workspace", "Andes"], "no workspace 'Andes' exists"),
        (["device", "add", "x", "--user", "Nobody"], "no user 'Nobody' is in that workspace"),
        (["device", "add", "x", "--user", "push", "--imei", "1"], "an IMEI has 15 digits"),
        (["key", "revoke", "99"], "no key 99 is active"),
        (["key", "rate", "1", "--burst", "0"], "--burst: '0' is not a number from 1 to 1000000"),
        (["init", "Again"], "a workspace already exists"),
        (["webhook", "add", "ftp://x"], "must be a URL"),
        (["webhook", "add", "http://127.0.0.1:1/"], "127.0.0.1 is not a public address"),
    ],
)
def test_invalid_hub_command_is_rejected_with_the_reason(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    database = str(tmp_path / "hub.sqlite3")
    administer(database, "init", "Alps")
    with pytest.raises(AssertionError, match=message):
        administer(database, *arguments)


@pytest.fixture
def pushing(tmp_path: Path) -> Any:
    database = str(tmp_path / "hub.sqlite3")
    first = administer(database, "init", "Alps")
    one = administer(database, "key", "add", "slow", "--per-minute", "5", "--burst", "1")
    administer(database, "user", "add", "Ada")
    with hub(tmp_path, {"database": database}) as running:

        def push(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
            known = {"FIELDAGENT_API_KEY": one["apiKey"], "FIELDAGENT_TOKEN": first["token"]}
            common = ["--hub", running.address, "--workspace", "1", "--source", "1"]
            return subprocess.run(
                [*MODULE, "push", arguments[0], *common, *arguments[1:]],
                env={**os.environ, **known, **environment},
                capture_output=True,
                text=True,
                timeout=PATIENCE,
            )

        yield push


@pytest.mark.full
def test_push_command_waits_as_long_as_the_hub_asks(pushing: Any) -> None:
    for _ in range(2):
        done = pushing("message", "--target", "2", "Storm at noon")
        assert (done.returncode, done.stdout) == (0, "accepted\n"), done.stderr
    assert re.search("too often; .*trying again in [0-9]+ s", done.stderr)


@pytest.mark.full
@pytest.mark.parametrize(
    ("arguments", "environment", "code", "message"),
    [
        (["location", "47.1", "8.2"], {}, 0, ""),
        (["waypoint", "47.1", "8.2", "Hut"], {}, 0, ""),
        (["data", "-"], {}, 0, ""),
        (["location", "91", "8.2"], {}, 65, "/location/latitude"),
        (["message", "--target", "9", "x"], {}, 65, "target 9 is not in workspace 1"),
        (["location", "1", "1"], {"FIELDAGENT_TOKEN": "wrong"}, 65, "is wrong or expired"),
        (
            ["location", "1", "1", "--hub", "http://127.0.0.1:1", "--patience", "0"],
            {},
            69,
            "no hub",
        ),
        (["location", "1", "1", "--hub", "nowhere"], {}, 2, "--hub must be https://"),
        (["data", "/no/such/file"], {}, 2, "cannot read /no/such/file"),
    ],
)
def test_push_command_exits_with_the_documented_code(
    pushing: Any, arguments: list[str], environment: dict[str, str], code: int, message: str
) -> None:
    done = pushing(*arguments, **environment)
    assert done.returncode == code, done.stderr
    assert message in done.stderr


def test_hub_on_a_port_in_use_exits_with_code_75(tmp_path: Path) -> None:
    with hub(tmp_path, {"database": str(tmp_path / "hub.sqlite3")}) as running:
        (tmp_path / "second").write_text(
            f"listen=127.0.0.1\nport={running.port}\ndatabase={tmp_path}/second.sqlite3\n"
        )
        second = subprocess.run(
            [*MODULE, "hub", "run", "--config", tmp_path / "second"],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    assert second.returncode == 75
    assert f"port {running.port} on 127.0.0.1 is in use by another program" in second.stderr


@pytest.mark.full
@pytest.mark.parametrize("secret", ["", "\n", "\r\n"])
def test_empty_password_is_rejected(database: str, secret: str) -> None:
    """A script's variable may not be set. With an empty password, any person could sign in as
    Olga.
    """
    administer(database, "init", "Alps")
    administer(database, "user", "add", "Olga")
    for words in (("user", "password", "Olga"), ("user", "add", "Ben", "--password")):
        with pytest.raises(
            AssertionError, match="nothing was changed, because the password is empty"
        ):
            administer(database, *words, secret=secret)
    passwords = {each["name"]: each["password"] for each in administer(database, "user", "list")}
    assert passwords == {"push": False, "Olga": False}
