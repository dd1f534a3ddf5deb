"""Unusable MO messages are kept by IMEI, reported, and imported exactly once when that becomes
possible. Real hubs with DirectIP and RockBLOCK, administered by an operator.
"""

from __future__ import annotations

import base64
import json
import re
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from cryptography.hazmat.primitives import serialization

from fieldagent.hub.access import directory, imeis
from fieldagent.hub.contract import Bearer, Estimate
from fieldagent.hub.field import dead_letters
from fieldagent.hub.field.dead_letters import COUNT_MAX, LETTERS_PER_KIT_MAX
from fieldagent.hub.store.contract import Db, Store
from fieldagent.hub.store.opening import open_store
from fieldagent.package.package import Location, Message
from fieldagent.wire.directip import DirectIpMo, MoLocation, encode_message, parse_mo_confirmation
from fieldagent.wire.envelope import Entry, EstimatedPosition, derive_key, encode
from tests.http.test_openapi import description
from tests.hub.field import START, collect, field_of
from tests.hub.test_journey import receiver
from tests.processes import PATIENCE, Hub, administer, free_port, hub, until
from tests.wire.test_rockblock import FORM, PRIVATE, claims, token

IMEI, MISTYPED = "300234010000001", "300234010000010"
MASTER = bytes(range(32))
MOMENT = 1_790_000_000


def encode_text(text: str, number: int = 1, master: bytes | None = None) -> bytes:
    key = None if master is None else derive_key(master, "MO")
    return encode([Entry(number, Message(text), MOMENT)], key=key)


class Operators:
    """Both operators' gateways, which bring MO messages to a running hub."""

    def __init__(self, home: Path, database: str) -> None:
        self.port = free_port()
        pem = home / "rockblock.pem"
        encoding, kind = serialization.Encoding.PEM, serialization.PublicFormat
        public = PRIVATE.public_key().public_bytes(encoding, kind.SubjectPublicKeyInfo)
        pem.write_bytes(public)
        self.settings = {
            "database": database,
            "directip-listen": f"127.0.0.1:{self.port}",
            "rockblock-username": "kit",
            "rockblock-password": "x",
            "rockblock-public-key": str(pem),
            "webhook-allow": "127.0.0.0/8",
        }

    def directip(
        self,
        body: bytes,
        imei: str = IMEI,
        where: MoLocation | None = None,
        *,
        status: int = 0,
        damage: Callable[[bytes], bytes] = bytes,
    ) -> None:
        message = DirectIpMo(1, imei, status, 7, 0, int(time.time()), body, where)
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE) as line:
            line.sendall(damage(encode_message(message)))
            answer = b""
            while piece := line.recv(100):
                answer += piece
        assert parse_mo_confirmation(answer[3:]) is True

    def rockblock(self, running: Hub, body: bytes, imei: str = IMEI, **more: Any) -> None:
        form = {**FORM, "imei": imei, "data": body.hex(), "iat": int(time.time()), **more}
        signed = {**form, "JWT": token(claims(**form))}
        line = HTTPConnection("127.0.0.1", running.port, timeout=PATIENCE)
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        line.request("POST", "/operator/rockblock", urlencode(signed), kind)
        assert line.getresponse().status == 200
        line.close()


@contextmanager
def running_hub(tmp_path: Path, database: str) -> Iterator[tuple[Operators, Hub]]:
    administer(database, "init", "Alps")
    administer(database, "user", "add", "Ada")
    behind = Operators(tmp_path, database)
    with hub(tmp_path, behind.settings) as running:
        yield behind, running


def listed(database: str) -> list[dict[str, Any]]:
    letters: list[dict[str, Any]] = administer(database, "device", "dead-letter", "list")
    return letters


def read_metrics(running: Hub) -> str:
    line = HTTPConnection("127.0.0.1", running.port, timeout=PATIENCE)
    line.request("GET", "/metrics")
    text = line.getresponse().read().decode()
    line.close()
    return text


def add_device(database: str, *more: str) -> Any:
    return administer(database, "device", "add", "kit", "--user", "Ada", *more)


def read_device(database: str) -> dict[str, Any]:
    (row,) = administer(database, "device", "list")
    assert isinstance(row, dict)
    return row


def test_messages_before_the_imei_was_corrected_arrive_once(tmp_path: Path, database: str) -> None:
    with receiver() as hooked, running_hub(tmp_path, database) as (operators, running):
        administer(database, "webhook", "add", hooked.url, "--untried")
        assert "deadLettersTaken" not in add_device(database, "--imei", MISTYPED)
        operators.directip(encode_text("over DirectIP", 1))
        operators.rockblock(running, encode_text("over RockBLOCK", 2))
        operators.rockblock(running, b"plain text of somebody else's", "300234010000099")
        letters = listed(database)
        assert [each["imei"] for each in letters] == ["300234010000099", IMEI, IMEI]
        assert all("no device in use has this IMEI" in each["reason"] for each in letters)
        assert "fieldagent_hub_dead_letters_kept 3\n" in read_metrics(running)
        assert administer(database, "device", "imei", "kit", IMEI)["deadLettersTaken"] == 2
        assert administer(database, "device", "dead-letter", "replay") == {"deadLettersTaken": 0}
        operators.directip(encode_text("afterwards", 3))

        def contents() -> list[str]:
            return [each["payloads"][0]["events"][0]["content"] for each in hooked.got]

        until(lambda: len(contents()) >= 3)
        assert contents() == ["over DirectIP", "over RockBLOCK", "afterwards"]
        (stranger,) = listed(database)
        payload = base64.b64decode(stranger["payload"])
        assert payload == b"plain text of somebody else's"
        administer(database, "device", "dead-letter", "remove", str(stranger["id"]))
        assert listed(database) == []
        text = read_metrics(running)
        assert "fieldagent_hub_dead_letters_kept 0\n" in text
        assert "fieldagent_hub_dead_letters_total 3\n" in text


def test_messages_before_a_device_was_added_or_enabled_are_imported(
    tmp_path: Path, database: str
) -> None:
    with running_hub(tmp_path, database) as (operators, _):
        operators.directip(encode_text("before it was there", 1))
        assert add_device(database, "--imei", IMEI)["deadLettersTaken"] == 1
        administer(database, "device", "disable", "kit")
        operators.directip(encode_text("while it was disabled", 2))
        assert administer(database, "device", "enable", "kit")["deadLettersTaken"] == 1
        assert listed(database) == []


@pytest.mark.parametrize(
    "body", [b"Hello", b"RB0001234Hello", bytes(range(256)), encode_text("x")[:-1]]
)
def test_unreadable_message_is_stored_with_its_device(tmp_path: Path, body: bytes) -> None:
    database = str(tmp_path / "hub.sqlite3")
    with running_hub(tmp_path, database) as (operators, _):
        add_device(database, "--imei", IMEI)
        operators.directip(body)
        (letter,) = listed(database)
        assert base64.b64decode(letter["payload"]) == body
        assert (letter["imei"], letter["device"]) == (IMEI, "kit")
        assert "it cannot be read: " in letter["reason"]
        assert read_device(database)["deadLetters"] == 1


@pytest.mark.full
def test_sos_arrives_once_for_any_session_status(tmp_path: Path) -> None:
    """The SOS is complete or cut, from a known or an unknown device. The operator gets a
    confirmation in each case.
    """
    database = str(tmp_path / "hub.sqlite3")
    with running_hub(tmp_path, database) as (operators, _):
        add_device(database, "--imei", IMEI)
        for status in range(256):
            whole = encode([Entry(status + 1, Message(f"help {status}"), MOMENT, sos=True)])
            operators.directip(whole, status=status)
            operators.directip(whole, status=status)
        assert listed(database) == []
        for status in range(256):
            operators.directip(b"\xff of %d" % status, f"3{status:014}", status=status)
        kept = {base64.b64decode(each["payload"]) for each in listed(database)}
        assert kept == {b"\xff of %d" % status for status in range(256)}
    with sqlite3.connect(database) as db:
        texts = [words for (words,) in db.execute("SELECT words FROM item WHERE sos = 1")]
    assert sorted(texts) == sorted(f"help {status}" for status in range(256))


def _replace_once(old: bytes, new: bytes, raw: bytes) -> bytes:
    return raw.replace(old, new, 1)


def test_messages_with_invalid_gateway_fields_are_stored(tmp_path: Path) -> None:
    """Each check before the payload stores the message."""
    database = str(tmp_path / "hub.sqlite3")
    body, now = encode_text("hello"), int(time.time())
    spoilt = (b"?" * 15, b" " * 15, IMEI.encode()[:14] + b"\0")
    verdicts: tuple[dict[str, Any], ...] = (
        {"imei": "12"},
        {"imei": ""},
        {"momsn": "none"},
        {"iat": now - 30 * 86_400},
        {"iat": now + 86_400},
        {"iat": "today"},
    )
    with running_hub(tmp_path, database) as (operators, running):
        for other in spoilt:
            spoil = partial(_replace_once, IMEI.encode(), other)
            operators.directip(body + other, damage=spoil)
        operators.directip(body + b"uncut", damage=lambda raw: raw[:36] + b"\xff" + raw[37:])
        for number, wrong in enumerate(verdicts):
            operators.rockblock(running, body + b"%d" % number, **wrong)
            operators.rockblock(running, body + b"%d" % number, **wrong)
        operators.rockblock(running, b"", data="ABC")
        letters = {base64.b64decode(each["payload"]): each for each in listed(database)}
    assert letters.keys() == {
        *(body + other for other in spoilt),
        body + b"uncut",
        *(body + b"%d" % number for number in range(6)),
        b"ABC",
    }
    assert letters[body + b"?" * 15]["imei"] == ""
    assert "is not an IMEI" in letters[body + b"?" * 15]["reason"]
    assert "another time" in letters[body + b"3"]["reason"]
    assert len(letters) == 11


def test_satellite_key_mismatch_is_reported_and_fixed(tmp_path: Path, database: str) -> None:
    with running_hub(tmp_path, database) as (operators, running):
        add_device(database, "--imei", IMEI)
        operators.directip(encode_text("tagged, and nobody can check it", 1, MASTER))
        assert "the hub has no key to check" in read_device(database)["keyTrouble"]
        running.expect("the hub has no key to check")
        made = administer(database, "device", "key", "kit")
        assert (made["tagged"], len(made["satellite-key"])) == (True, 64)
        operators.directip(encode_text("with the kit's own key", 2, MASTER))
        assert "a key that the hub does not have" in read_device(database)["keyTrouble"]
        (letter,) = listed(database)
        assert "the authentication tag is wrong" in letter["reason"]
        mended = administer(database, "device", "key", "kit", "--given", secret=MASTER.hex())
        assert mended == {"id": 1, "tagged": True, "deadLettersTaken": 1}
        assert read_device(database)["keyTrouble"] == ""
        operators.directip(encode_text("the kit lost its key", 3))
        assert "have no tag" in read_device(database)["keyTrouble"]
        assert administer(database, "device", "key", "kit", "--remove")["deadLettersTaken"] == 1
        assert listed(database) == []
        operators.directip(encode_text("without", 4))
        assert (read_device(database)["keyTrouble"], listed(database)) == ("", [])


def test_operator_position_is_added_to_items_without_a_position(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    with receiver() as hooked, running_hub(tmp_path, database) as (operators, running):
        administer(database, "webhook", "add", hooked.url, "--untried")
        add_device(database, "--imei", IMEI)
        operators.directip(encode_text("over DirectIP", 1), where=MoLocation(-33.85, 151.2, 3))
        seen = {"iridium_latitude": "46.5", "iridium_longitude": "7.25", "iridium_cep": "12.0"}
        operators.rockblock(running, encode_text("over RockBLOCK", 2), **seen)
        own = encode([Entry(3, Location(46.0, 7.0), MOMENT)])
        operators.directip(own, where=MoLocation(46.5, 7.25, 3))
        until(lambda: len(hooked.got) >= 3)
        events = [each["payloads"][0]["events"][0] for each in hooked.got]
        assert [each.get("estimatedPosition") for each in events] == [
            {"latitude": "-33.85", "longitude": "151.2", "radius": 3000, "by": "operator"},
            {"latitude": "46.5", "longitude": "7.25", "radius": 12000, "by": "operator"},
            None,
        ]


async def test_message_that_fails_processing_twice_is_stored_as_dead_letter(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError("as a test")

    async with field_of(store) as alps:
        taking = alps.mobile_originated()
        with monkeypatch.context() as broken:
            broken.setattr(taking, "_make_posting", fails)
            bring = partial(taking.take_in_from, alps.device(1).imei or "", encode_text("hello"))
            with pytest.raises(ZeroDivisionError):
                await bring()
            await bring()
            (letter,) = await store.read(dead_letters.list_letters)
            assert "failed to process it, twice: ZeroDivisionError" in letter["reason"]
            replay = partial(taking.replay, device=alps.device(1), keys=[])
            assert await store.commit(replay) == 0
            assert len(await store.read(dead_letters.list_letters)) == 1
        assert await store.commit(replay) == 1
        assert await store.commit(replay) == 0
        assert len(await alps.rows("SELECT id FROM item")) == 1
        assert await store.read(dead_letters.list_letters) == []


async def test_unreadable_message_over_ip_is_stored_as_dead_letter(store: Store) -> None:
    async with field_of(store) as alps:
        await alps.mailbox(1).store_body(b"\xff garbage")
        understood, later = Entry(1, Message("hello"), MOMENT), Entry(2, Message("x"), MOMENT)
        body = encode([understood, later]).replace(b"\x84\x01\x02", b"\x84\x18\x63\x02")
        await alps.mailbox(1).store_body(body)
        await alps.mailbox(1).store_body(body)
        listed = await store.read(dead_letters.list_letters)
        assert [(each["bearer"], each["device"]) for each in listed] == [("ip", "kit 1")] * 3
        assert ["kind 99" in each["reason"] for each in listed] == [True, True, False]
        assert len(await alps.rows("SELECT id FROM item")) == 1
        taking = alps.mobile_originated()
        assert await store.commit(partial(taking.replay, device=alps.device(1), keys=[])) == 0


async def test_dead_letters_of_one_unknown_modem_are_limited(store: Store) -> None:
    async with field_of(store):

        def come(db: Db) -> None:
            keep = partial(dead_letters.store_letter, reason="x", device=None, now=START)
            keep(db, b"first", imei="2" * 15, bearer=Bearer.SATELLITE)
            for number in range(LETTERS_PER_KIT_MAX + 5):
                keep(db, b"%d" % number, imei="1" * 15, bearer=Bearer.SATELLITE)

        await store.commit(come)
        listed = await store.read(dead_letters.list_letters)
        assert len(listed) == LETTERS_PER_KIT_MAX + 1 < COUNT_MAX
        assert base64.b64decode(listed[-1]["payload"]) == b"first"
        assert base64.b64decode(listed[-2]["payload"]) == b"5"
        figures = await store.read(dead_letters.count_figures)
        assert figures["dead_letters_dropped"] == 5


async def test_sos_is_sent_to_other_kits_with_the_operator_position(store: Store) -> None:
    async with field_of(store) as alps:
        sos = encode([Entry(5, Message("help"), MOMENT, sos=True)])
        for body in (encode_text("not urgent"), sos):
            imei = alps.device(1).imei or ""
            await alps.mobile_originated().take_in_from(imei, body, Estimate(46.5, 7.25, 3))
        (envelope,) = await collect(alps.mailbox(2))
        (urgent,) = [entry for entry in envelope.entries if entry.sos]
        sightings = [e for e in envelope.entries if isinstance(e.content, EstimatedPosition)]
        assert sightings == [Entry(urgent.sequence, EstimatedPosition(46.5, 7.25, 3))]
        kept = await alps.rows("SELECT estimate FROM item")
        assert [Estimate(**json.loads(text)) for (text,) in kept] == [Estimate(46.5, 7.25, 3)] * 2


def test_dead_letter_of_unknown_modem_is_shown_only_to_the_operator(
    tmp_path: Path, database: str
) -> None:
    """No answer or export for an administrator of the only workspace contains the dead letter. The
    test covers all documented answers, including new ones. The operator sees the next step.
    """
    stranger, words = "300234010000099", "not for the Alps"
    shown = (stranger, words, base64.b64encode(words.encode()).decode())
    with running_hub(tmp_path, database) as (operators, running):
        add_device(database, "--imei", IMEI)
        administer(database, "user", "role", "Ada", "administrator")
        key = administer(database, "key", "add", "office", "--read", "--administer")["apiKey"]
        secret = administer(database, "user", "token", "add", "office", "--user", "Ada")["token"]
        proof = {"x-api-key": key, "Authorization": f"Bearer {secret}"}
        operators.directip(words.encode(), stranger)
        operators.directip(b"own", IMEI)
        line = HTTPConnection("127.0.0.1", running.port, timeout=PATIENCE)
        answered = {}
        for path, described in description("hub")["paths"].items():
            if "get" in described and path not in ("/link", "/api/events"):
                query = "?device=1" if path == "/api/deliveries" else ""
                line.request("GET", re.sub(r"\{.*?\}", "1", path) + query, headers=proof)
                answer = line.getresponse()
                answered[path] = answer.status, answer.read().decode(errors="replace")
        line.request("GET", "/api/events", headers={**proof, "Last-Event-ID": "0"})
        stream = line.getresponse()
        operators.directip(encode_text("afterwards"), IMEI)
        heard = ""
        while "afterwards" not in heard:
            heard += stream.readline().decode()
        line.close()
        assert base64.b64encode(b"own").decode() in answered["/api/dead-letters"][1]
        lists = {path for path in answered if path.startswith("/api/") and "{" not in path}
        refused = {path for path in lists if answered[path][0] != 200}
        assert refused == set()
        texts = {"export": "", "/api/events": heard} | {
            p: text for p, (_, text) in answered.items()
        }
        administer(database, "workspace", "export", str(tmp_path / "all"))
        texts["export"] = "".join(each.read_text() for each in (tmp_path / "all").glob("*.jsonl"))
        assert [
            (where, each) for where, text in texts.items() for each in shown if each in text
        ] == []
        assert "hub device add" in running.expect(f"from {stranger} are stored as a dead letter")
        assert [each["imei"] for each in listed(database)] == [IMEI, stranger]


def test_operator_assigns_a_contested_modem_and_its_dead_letters(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    with running_hub(tmp_path, database) as (operators, _):
        administer(database, "workspace", "add", "Andes")
        administer(database, "user", "add", "Dora", "--workspace", "Andes")
        andes = ("--workspace", "Andes")
        operators.directip(encode_text("before anybody had it", 1))
        administer(database, "device", "add", "kit-dora", "--user", "Dora", *andes)
        with closing(open_store(database)) as store:
            # As when an administrator of a workspace enters it.
            store.run_once(lambda db: imeis.set_imei(db, 1, IMEI, now=0.0, actor="2"))
            store.run_once(
                lambda db: directory.add_device(
                    db, 1, 2, directory.NewDevice("squat", IMEI), now=0.0, actor="2"
                )
            )
        assert len(listed(database)) == 1
        assert administer(database, "device", "dead-letter", "replay") == {"deadLettersTaken": 0}
        (claim,) = administer(database, "device", "contested", *andes)
        assert (claim["imei"], claim["heldName"]) == (IMEI, "kit-dora")
        assert administer(database, "device", "dead-letter", "assign", "kit-dora", *andes) == {
            "id": 1,
            "deadLettersTaken": 1,
        }
        taken = administer(
            database, "device", "imei", "squat", IMEI, "--take", "--workspace", "Alps"
        )
        assert taken["imei"] == IMEI
        assert administer(database, "device", "contested", *andes) == []
