"""People and phones at a TAK server while the hub's database is away or full."""

from __future__ import annotations

import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn, cast
from unittest.mock import Mock

import pytest
import trio
import trio.testing
from cryptography.hazmat.primitives import serialization

from fieldagent.extensions.tak import cot
from fieldagent.extensions.tak import events as tak
from fieldagent.extensions.tak.bridge import records, service
from fieldagent.extensions.tak.bridge.door import ReceivedEvent
from fieldagent.extensions.tak.bridge.intake import TakIntake
from fieldagent.extensions.tak.bridge.inward import TakInbox
from fieldagent.extensions.tak.bridge.site import TakSite
from fieldagent.extensions.tak.bridge.users import UserLink
from fieldagent.extensions.tak.cot import CotEvent, CotPoint
from fieldagent.extensions.tak.events import GeoChat, Sighting, TakUnit
from fieldagent.extensions.tak.server import authority, certificates, phone, server
from fieldagent.extensions.tak.server.certificates import PhoneHolder
from fieldagent.extensions.tak.server.exchange import Exchange
from fieldagent.extensions.tak.server.phone import PhoneHost
from fieldagent.extensions.tak.server.server import PhoneServer
from fieldagent.hub.bridge import tenure
from fieldagent.hub.bridge.contract import BridgeHost
from fieldagent.hub.store import persist
from fieldagent.hub.store.contract import Db, Store
from fieldagent.store.group import StoreFull, StoreUnavailable
from tests.extensions.tak.test_budget import BRAVO, CLEO, RULES, mountain
from tests.extensions.tak.test_certificates import PHONE, give, named
from tests.processes import PATIENCE

AWAY = pytest.mark.parametrize("trouble", [StoreUnavailable("away"), StoreFull("full")])


class FailingCommit:
    """A store's `commit` that fails the given number of times."""

    def __init__(self, store: Store, trouble: Exception, times: int) -> None:
        self._commit = store.commit
        self._trouble = trouble
        self.left = times

    async def __call__(self, operation: Any) -> Any:
        if self.left:
            self.left -= 1
            raise self._trouble
        return await self._commit(operation)


@AWAY
async def test_chat_received_during_a_database_outage_is_stored_afterwards(
    store: Store, monkeypatch: pytest.MonkeyPatch, trouble: Exception
) -> None:
    """A phone sends the chat once: a server does not keep it for a client that has received it."""
    monkeypatch.setattr(persist, "RETRY_AFTER_S", 0.01)
    async with mountain(store) as alps, trio.open_nursery() as nursery:
        unit = TakUnit(f"FA-1-{CLEO}", "Cleo")
        put, get = trio.open_memory_channel[ReceivedEvent](9)
        intake = TakIntake(
            BridgeHost(store, {}, alps.clock, Mock(), Mock()),
            TakInbox(1, RULES),
            {CLEO: UserLink(unit)},
            {},
            Mock(),
            get,
        )
        commit = FailingCommit(store, trouble, 3)
        monkeypatch.setattr(store, "commit", commit)
        when = datetime.fromtimestamp(alps.now, UTC)
        for words in ("go down", "the hut is shut"):
            put.send_nowait(
                ReceivedEvent(
                    CLEO, tak.CHAT, tak.make_chat(GeoChat(BRAVO, unit, words, words), when)
                )
            )
        nursery.start_soon(intake.run)
        said = "SELECT words FROM item WHERE target = ? ORDER BY id"
        with trio.fail_after(PATIENCE):
            while await alps.rows(said, CLEO) != [("go down",), ("the hut is shut",)]:
                await trio.sleep(0.01)
        assert not commit.left
        nursery.cancel_scope.cancel()


class EndOfWork(Exception):
    """Error with which a test ends the work at the server."""


@pytest.mark.parametrize("by", ["a stop", "another process", "a fault"])
async def test_received_chats_are_stored_before_the_bridge_ends(
    store: Store, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """The server has sent it to this process and sends it to no other."""
    if by == "another process" and not store.shared:
        pytest.skip("one process alone holds the bridge on SQLite")
    monkeypatch.setattr(persist, "RETRY_AFTER_S", 0.01)
    monkeypatch.setattr(tenure, "RENEW_INTERVAL_S", 0.01)
    monkeypatch.setattr(service, "REST_S", 0.01)
    monkeypatch.setattr(tenure, "TENURE_S", 0.05)
    words = ["go down", "the hut is shut", "wait there"]
    ends = trio.Event()
    async with mountain(store) as alps:
        alps.now += 60
        when = datetime.fromtimestamp(alps.now, UTC)
        commit = FailingCommit(store, StoreUnavailable("away"), 0)
        monkeypatch.setattr(store, "commit", commit)

        class Session:
            def __init__(self, unit: TakUnit) -> None:
                self._unit = unit

            async def run(self, take: Callable[[str, bytes], None]) -> NoReturn:
                if self._unit.uid.endswith(f"-{CLEO}"):
                    for text in words:
                        chat = GeoChat(BRAVO, self._unit, text, text)
                        take(tak.CHAT, cot.encode(tak.make_chat(chat, when)))
                    commit.left = 100
                await ends.wait()
                raise EndOfWork

            async def send_events(self, events: Iterable[CotEvent]) -> None:
                await trio.sleep_forever()

        @asynccontextmanager
        async def connect(unit: TakUnit) -> AsyncIterator[Session]:
            yield Session(unit)

        @asynccontextmanager
        async def site(workspace: int) -> AsyncIterator[TakSite]:
            yield TakSite("the TAK server", connect, records.record_person)

        host = BridgeHost(store, {}, alps.clock, Mock(), Mock())
        with trio.fail_after(PATIENCE), suppress(BaseExceptionGroup):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(service.run, host, site, RULES)
                while not 0 < commit.left < 100:
                    await trio.sleep(0.01)
                if by == "another process":
                    # The text is written when the database is back. Until then no receiver has it.
                    while await alps.rows("SELECT words FROM item") != [(each,) for each in words]:
                        await trio.sleep(0.01)
                elif by == "a fault":
                    ends.set()
                    await trio.sleep_forever()
                nursery.cancel_scope.cancel()
        said = "SELECT words FROM item WHERE target = ? ORDER BY id"
        assert await alps.rows(said, CLEO) == [(each,) for each in words]


@AWAY
async def test_phone_connected_during_an_outage_is_known_by_its_next_event(
    store: Store, monkeypatch: pytest.MonkeyPatch, trouble: Exception
) -> None:
    async with mountain(store) as alps, trio.open_nursery() as nursery:
        dora = await named(alps, "Dora")
        await give(alps, dora, "aa")
        host = PhoneHost(store, Exchange(lambda became, by=1: None), 1, alps.clock)
        when = datetime.fromtimestamp(alps.now, UTC)
        sighting = Sighting(CotPoint(46.5, 8.1), when, when + timedelta(minutes=5), tak.HOW_GPS, "")
        here = cot.encode(tak.make_unit_event(TakUnit(PHONE, "Dora"), sighting, when, {}))
        commit = FailingCommit(store, trouble, 1)
        monkeypatch.setattr(store, "commit", commit)
        ours, theirs = trio.testing.memory_stream_pair()
        nursery.start_soon(phone.serve, host, cast(Any, ours), dora, "aa")
        await theirs.send_all(here)
        with trio.fail_after(PATIENCE):
            while not host.exchange.has(PHONE) or commit.left:
                await trio.sleep(0.01)
            await theirs.send_all(here)

            def owner(db: Db) -> PhoneHolder | None:
                return certificates.find_phone_owner(db, 1, PHONE, alps.now)

            while await store.read(owner) != dora:
                await trio.sleep(0.01)
        nursery.cancel_scope.cancel()


async def test_phone_connecting_during_an_outage_is_not_called_invalid(
    store: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with mountain(store) as alps, trio.open_nursery() as nursery:
        dora = await named(alps, "Dora")
        by = await store.commit(authority.open_authority)
        issued = authority.issue_for_phone(by, "Dora", time.time())
        await give(alps, dora, issued.serial)
        host = PhoneHost(store, Exchange(Mock()), 1, time.time)
        phones = server._Phones(store, host, PhoneServer(("127.0.0.1", 0), "localhost"))
        await phones.prepare()
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, phones.enter, [listener])

        async def refuse(operation: Any) -> Any:
            raise StoreUnavailable("away")

        monkeypatch.setattr(store, "read", refuse)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.load_cert_chain(_pem(issued, tmp_path))
        port = listener.socket.getsockname()[1]
        plain = await trio.open_tcp_stream("127.0.0.1", port)
        stream = trio.SSLStream(plain, context, server_hostname="localhost", https_compatible=True)
        with trio.fail_after(PATIENCE):
            await stream.do_handshake()
            while "refused at tak-listen" not in caplog.text:
                await trio.sleep(0.01)
        await trio.aclose_forcefully(plain)
        assert "the database cannot be queried" in caplog.text
        assert "is not valid" not in caplog.text
        nursery.cancel_scope.cancel()


def _pem(issued: authority.IssuedCertificate, folder: Path) -> Path:
    key = issued.key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    file = folder / "phone.pem"
    file.write_bytes(key + issued.certificate.public_bytes(serialization.Encoding.PEM))
    return file
