"""The contract between each satellite operator and the hub (`hub/operator/contract.py`), tested
with each.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from fieldagent.http.listeners import get_port, open_listeners
from fieldagent.hub.contract import Estimate
from fieldagent.hub.operator.contract import FarModem, Operator, OperatorHost
from fieldagent.hub.operator.registry import get_operator_places, get_operators
from fieldagent.hub.settings import parse_settings
from fieldagent.package.package import Message
from fieldagent.store.group import StoreUnavailable
from fieldagent.system.properties import InvalidSettings
from fieldagent.system.supervisor import log_fault
from fieldagent.wire.envelope import Entry, encode
from fieldagent.wire.outcome import Outcome
from tests import offline
from tests.hub.operator.gateways import (
    EXAMPLE,
    Gateway,
    MakeGateway,
    Shelf,
    example,
    gateways,
    settings_of,
)
from tests.hub.test_journey import folder, message_to
from tests.processes import MODULE, PATIENCE, administer, hub, until
from tests.wire.test_rockblock import NOW

MT = b"to the kit"
THERE = FarModem("imt", "t" * 32)
"""The hub's knowledge of the modem."""
NAMES = [*get_operator_places(), "folder"]
"""Includes the example of docs/how-to/add-an-operator.md."""


@pytest.fixture(params=NAMES)
def make(request: pytest.FixtureRequest) -> MakeGateway:
    name: str = request.param
    known = gateways()
    assert name in known, f"no gateway for {name}: add one to tests/extensions/FOLDER/gateways.py"
    return known[name]


def get_caller(gateway: Gateway) -> Operator:
    caller = gateway.kind.caller(gateway.own)
    assert caller is not None
    return caller


class Desk:
    """Receives MO messages."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, bytes]] = []
        self.fail: Exception | None = None

    async def take_in(
        self, imei: str, body: bytes, estimate: Estimate | None, *, unusable: str = ""
    ) -> None:
        assert not unusable
        if self.fail is not None:
            raise self.fail
        self.taken.append((imei, body))

    async def record_modem_session(self, imei: str, *, fetched: bool) -> None:
        pass

    def lent(self) -> OperatorHost:
        return OperatorHost(
            self.take_in, self.record_modem_session, log_fault, lambda: NOW, Shelf()
        )


async def check_operator(gateway: Gateway) -> None:
    """An MT message is delivered complete, and an MO message is confirmed after it is stored."""
    verdict = await get_caller(gateway).send(gateway.imei, MT, number=7, priority=True, modem=THERE)
    assert (verdict.outcome, verdict.failure) == (Outcome.SENT, None)
    assert gateway.taken() == [MT]
    desk = Desk()
    assert await gateway.bring(desk.lent())
    assert desk.taken == [(gateway.imei, gateway.body)]


async def test_operator_transfers_mo_and_mt_messages(make: MakeGateway, tmp_path: Path) -> None:
    async with make(tmp_path) as gateway:
        await check_operator(gateway)


async def test_mo_message_is_not_confirmed_if_storage_fails(
    make: MakeGateway, tmp_path: Path
) -> None:
    async with make(tmp_path) as gateway:
        desk = Desk()
        desk.fail = StoreUnavailable("the database is away")
        assert not await gateway.bring(desk.lent())
        desk.fail = None
        assert await gateway.bring(desk.lent())
        assert desk.taken == [(gateway.imei, gateway.body)]


async def test_each_refusal_code_of_the_operator_has_a_reason(
    make: MakeGateway, tmp_path: Path
) -> None:
    async with make(tmp_path) as gateway:
        for code in gateway.codes:
            gateway.refuse(code)
            verdict = await get_caller(gateway).send(
                gateway.imei, MT, number=7, priority=False, modem=THERE
            )
            assert (verdict.outcome, verdict.failure) == (Outcome.NOT_SENT, gateway.codes[code])
            assert verdict.reason


async def test_operator_call_without_an_answer_is_doubtful(
    make: MakeGateway, tmp_path: Path
) -> None:
    async with make(tmp_path) as gateway:
        if not gateway.fall_silent():
            pytest.skip(f"{gateway.kind.name} has no answer that could be missing")
        verdict = await get_caller(gateway).send(
            gateway.imei, MT, number=7, priority=False, modem=THERE
        )
        assert verdict.outcome is Outcome.DOUBTFUL
        assert verdict.reason


async def test_mt_message_to_unreachable_gateway_is_not_sent(
    make: MakeGateway, tmp_path: Path
) -> None:
    async with make(tmp_path) as gateway:
        (listener,) = open_listeners(0, ["127.0.0.1"])
        port = get_port([listener])
        listener.close()
        nowhere: Any
        match gateway.own[gateway.address]:
            case str():
                nowhere = f"http://127.0.0.1:{port}"
            case Path():
                nowhere = tmp_path / "nothing"
            case _:
                nowhere = ("127.0.0.1", port)
        caller = gateway.kind.caller({**gateway.own, gateway.address: nowhere})
        assert caller is not None
        verdict = await caller.send(gateway.imei, MT, number=7, priority=False, modem=THERE)
        assert verdict.outcome is Outcome.NOT_SENT
        assert verdict.reason


async def test_ring_alert_is_sent_or_refused_without_mt_message(
    make: MakeGateway, tmp_path: Path
) -> None:
    async with make(tmp_path) as gateway:
        verdict = await get_caller(gateway).ring(gateway.imei)
        assert verdict.outcome in (Outcome.SENT, Outcome.REFUSED)
        assert gateway.taken() == []


@pytest.mark.parametrize("name", NAMES)
def test_operator_without_settings_is_inactive(name: str) -> None:
    kind = {**get_operators(), "folder": example()}[name]
    own = settings_of(kind)
    assert kind.caller(own) is None
    assert kind.routes(own, Desk().lent()) == []
    assert kind.listen(own) is None
    assert kind.faults(own) == []


@pytest.mark.parametrize("name", NAMES)
def test_operator_has_description_prefixed_settings_and_failure_texts(name: str) -> None:
    kind = {**get_operators(), "folder": example()}[name]
    assert kind.name == name
    assert kind.description
    assert kind.keys and all(key.name.startswith(f"{name}-") for key in kind.keys)
    assert {*kind.examples} <= {key.name for key in kind.keys}
    assert all(failure.code and failure.text for failure in kind.failures.values())


PAGE = EXAMPLE.parents[1] / "docs/how-to/add-an-operator.md"


SECTIONS = PAGE.read_text().partition("## Add a kind of contact")[0]


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", SECTIONS, re.DOTALL))
def test_how_to_page_quotes_the_example_code(block: str) -> None:
    assert block in EXAMPLE.read_text()


def test_third_party_operator_transfers_messages_in_a_real_hub(tmp_path: Path) -> None:
    """A real hub pushes to a device of that operator, and a file contains the device's answer."""
    courier, database = folder(tmp_path / "courier"), str(tmp_path / "hub.sqlite3")
    settings = {
        "database": database,
        "operators": "folder_operator:KIND",
        "folder-path": str(courier),
        "satellite-grace": "0",
    }
    first = administer(database, "init", "Alps")
    ada = administer(database, "user", "add", "Ada")["id"]
    imei = "300234010000001"
    with hub(
        folder(tmp_path / "hub"), settings, PYTHONPATH=offline.path(str(EXAMPLE.parent))
    ) as running:
        add = ["hub", "device", "add", "kit-ada", "--user", "Ada", "--imei", imei]
        command = [*MODULE, *add, "--operator", "folder", *running.arguments]
        beside = {**os.environ, "PYTHONPATH": offline.path(str(EXAMPLE.parent))}
        subprocess.run(command, env=beside, check=True, capture_output=True)
        proof = {"x-api-key": first["apiKey"], "Authorization": f"Bearer {first['token']}"}
        calls = HTTPConnection("127.0.0.1", running.port, timeout=PATIENCE)

        def call(method: str, path: str, content: Any = None) -> tuple[int, bytes]:
            kind = {} if content is None else {"Content-Type": "application/json"}
            text = None if content is None else json.dumps(content)
            calls.request(method, path, text, {**proof, **kind})
            answer = calls.getresponse()
            return answer.status, answer.read()

        assert call("POST", "/api/package", message_to(ada, first, "come down"))[0] == 200
        until(lambda: [*courier.glob(f"{imei}-*.mt")])
        (courier / f"{imei}-1.mo").write_bytes(encode([Entry(9, Message("on my way"))]))
        until(lambda: not [*courier.glob("*.mo")])
        proof |= {"x-api-key": administer(database, "key", "add", "reader", "--read")["apiKey"]}
        assert b"on my way" in call("GET", "/api/items")[1]
        calls.close()


def test_third_party_operator_has_its_own_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE.parent))
    lines = "operators=folder_operator:KIND\nfolder-path=/srv/courier\n"
    settings = parse_settings(lines, Path("hub.properties"))
    assert settings.operator_own["folder-path"] == Path("/srv/courier")
    assert settings.operator_own["directip-gateway"] is None


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ("folder-path=/srv", "'folder-path' is not a setting"),
        ("operators=folder", "operators must be package.module:NAME"),
        ("operators=no_such:KIND", "operators names no_such:KIND, which cannot be loaded"),
        ("operators=json:dumps", "which is not a fieldagent.hub.operator.contract.OperatorKind"),
        (
            "operators=fieldagent.hub.operator.directip:KIND",
            "operators names one that already exists",
        ),
    ],
)
def test_unusable_third_party_operator_is_reported(lines: str, why: str) -> None:
    with pytest.raises(InvalidSettings, match=why):
        parse_settings(lines, Path("hub.properties"))


def test_third_party_extension_adds_an_operator_with_its_own_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = EXAMPLE.read_text().replace('"folder"', '"courier"').replace("folder-", "courier-")
    place = '{"courier": f"{__name__}:KIND"}'
    text += (
        "from fieldagent.system.extension import Extension\n"
        f'EXTENSION = Extension("a courier", operators={place})\n'
    )
    (tmp_path / "own_courier.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("fieldagent.extensions._THIRD_PARTY", {})
    text = "extensions=own_courier:EXTENSION\ncourier-path=/srv/courier\n"
    settings = parse_settings(text, Path("hub.properties"))
    assert "courier" in get_operators(settings.operators)
    assert settings.operator_own["courier-path"] == Path("/srv/courier")
