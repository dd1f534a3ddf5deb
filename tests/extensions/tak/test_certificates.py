"""The owners of phones at the hub's own TAK server, on both databases, and the files for a
phone.
"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, cast

import pytest
import trio
import trio.testing
from cryptography.hazmat.primitives.serialization import pkcs12

from fieldagent.extensions.tak import cot
from fieldagent.extensions.tak import events as tak
from fieldagent.extensions.tak.bridge import inward, records
from fieldagent.extensions.tak.bridge.inward import TakInbox, TakOutcome
from fieldagent.extensions.tak.bridge.records import OVER_AFTER_S, TakPerson
from fieldagent.extensions.tak.cot import CotPoint
from fieldagent.extensions.tak.events import GeoChat, Sighting, TakUnit
from fieldagent.extensions.tak.server import authority, certificates, invitations, phone
from fieldagent.extensions.tak.server.certificates import PhoneHolder
from fieldagent.extensions.tak.server.exchange import Exchange, TakGuest
from fieldagent.extensions.tak.server.invitations import CertificateTerms
from fieldagent.extensions.tak.server.phone import PhoneHost
from fieldagent.hub.access import directory
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.contract import ItemResult
from fieldagent.hub.store.contract import Store
from fieldagent.package.delivery import Stage
from fieldagent.package.package import Message
from fieldagent.wire.envelope import Entry
from tests.extensions.tak.test_budget import CLEO, KITS, RULES, line_up, mountain
from tests.hub.field import Field, collect, said

PHONE, OTHER = "ANDROID-1", "ANDROID-2"


async def named(alps: Field, name: str) -> PhoneHolder:
    member = await alps.store.commit(
        lambda db: directory.add_user(db, 1, name, type_="User", now=alps.now)
    )
    return PhoneHolder(member, name)


async def give(alps: Field, holder: PhoneHolder, serial: str, lasts: float = 1e9) -> None:
    put = partial(certificates.add_certificate, workspace=1, holder=holder, serial=serial)
    await alps.store.commit(lambda db: put(db, expires=alps.now + lasts, now=alps.now))


async def arrive(alps: Field, holder: PhoneHolder, serial: str, uid: str) -> None:
    await alps.store.commit(
        lambda db: certificates.record_phone(db, serial, holder.member, uid, alps.now)
    )


async def test_valid_certificates_and_the_owner_of_a_phone_are_listed(store: Store) -> None:
    async with mountain(store) as alps:
        dora, emil = await named(alps, "Dora"), await named(alps, "Emil")
        await give(alps, dora, "aa")
        await give(alps, dora, "bb", lasts=60.0)
        await give(alps, emil, "cc")
        await arrive(alps, dora, "bb", PHONE)

        async def valid() -> set[str]:
            serials = ["aa", "bb", "cc", "dd"]
            return await store.read(lambda db: certificates.find_valid(db, 1, serials, alps.now))

        async def owner(uid: str) -> PhoneHolder | None:
            return await store.read(lambda db: certificates.find_phone_owner(db, 1, uid, alps.now))

        assert await valid() == {"aa", "bb", "cc"}
        assert await owner(PHONE) == dora and await owner(OTHER) is None
        find = partial(certificates.find_person, workspace=1, callsign="Emil", uid=PHONE)
        person = await store.commit(lambda db: find(db, now=alps.now))
        assert person == TakPerson(dora.member, "Dora", PHONE)
        alps.now += 61
        assert await valid() == {"aa", "cc"} and await owner(PHONE) is None
        assert await store.read(lambda db: certificates.find_holder(db, 1, "bb", alps.now)) is None
        await store.commit(
            lambda db: directory.set_disabled(db, "member", emil.member, alps.now, now=alps.now)
        )
        assert await valid() == {"aa"}
        assert (
            await store.commit(
                lambda db: certificates.revoke_certificates(db, 1, dora.member, alps.now)
            )
            == 2
        )
        assert await valid() == set()
        # Two users with one name would be one on each phone.
        like = await named(alps, "Emil")
        with pytest.raises(Refused, match="another Emil is at the TAK server"):
            await give(alps, like, "ee")
        rows = await store.read(lambda db: certificates.list_certificates(db, 1))
        assert [(each["name"], each["phone"]) for each in rows] == [
            ("Dora", ""),
            ("Dora", PHONE),
            ("Emil", ""),
        ]


async def test_message_waiting_for_a_phone_is_sent_at_its_connection(store: Store) -> None:
    async with mountain(store) as alps:
        dora = await named(alps, "Dora")
        await give(alps, dora, "aa")
        await alps.sends(1, Entry(1, Message("answer"), int(alps.now), to="Dora"))
        await line_up(alps)
        (out,) = await store.read(lambda db: records.list_due_events(db, KITS, alps.now, 9))
        assert (out.callsign, out.uid) == ("Dora", "")
        await store.commit(lambda db: records.record_sent(db, out, alps.now, handed=False))
        assert await alps.rows("SELECT rung FROM reached WHERE item = ?", out.item) == []
        assert await store.read(lambda db: records.list_due_events(db, KITS, alps.now, 9)) == []
        await arrive(alps, dora, "aa", PHONE)
        (out,) = await store.read(lambda db: records.list_due_events(db, KITS, alps.now, 9))
        assert out.uid == PHONE
        await store.commit(lambda db: records.record_sent(db, out, alps.now, handed=True))
        tick = partial(
            records.record_receipt, workspace=1, uid=PHONE, message_id=out.message_id, read=True
        )
        assert await store.commit(lambda db: tick(db, now=alps.now))
        rows = await alps.rows("SELECT rung, text FROM reached WHERE item = ?", out.item)
        assert (Stage.READ, "Dora") in rows
        # Dora's message belongs to her, and does not return to her phone.
        inbox = TakInbox(1, RULES, certificates.find_person)
        chat = GeoChat(TakUnit(PHONE, "Cleo"), TakUnit("FA-1-3", "Cleo"), "m-1", "down")
        taken = await store.commit(lambda db: inward.accept_chat(db, inbox, CLEO, chat, alps.now))
        assert taken.result is ItemResult.TAKEN
        stranger = chat.__class__(TakUnit(OTHER, "Dora"), chat.to, "m-2", "no")
        refused = await store.commit(
            lambda db: inward.accept_chat(db, inbox, CLEO, stranger, alps.now)
        )
        assert refused == TakOutcome(ItemResult.LIMITED)
        assert [text for _, text in said(await collect(alps.mailbox(CLEO)))][-1] == "down"
        assert await line_up(alps) == []


async def test_silent_phone_of_a_kit_user_is_not_reported_as_unreachable(store: Store) -> None:
    async with mountain(store) as alps:
        cleo = PhoneHolder(CLEO, "Cleo")
        await store.commit(
            lambda db: db.execute("UPDATE member SET name = ? WHERE id = ?", cleo.name, CLEO)
        )
        await give(alps, cleo, "aa")
        await alps.sends(1, Entry(1, Message("answer"), int(alps.now), to="Cleo"))
        await line_up(alps)
        (out,) = await store.read(lambda db: records.list_due_events(db, KITS, alps.now, 9))
        await arrive(alps, cleo, "aa", PHONE)
        # Her phone's tick does not mean that her kit has it, and neither does its silence.
        tick = partial(
            records.record_receipt, workspace=1, uid=PHONE, message_id=out.message_id, read=False
        )
        assert await store.commit(lambda db: tick(db, now=alps.now))
        alps.now += OVER_AFTER_S
        await store.commit(lambda db: records.end_old_events(db, alps.now))
        assert await alps.rows("SELECT rung FROM reached WHERE item = ?", out.item) == []


async def test_invitation_that_expires_during_its_use_is_refused(store: Store) -> None:
    async with mountain(store) as alps:
        dora = await named(alps, "Dora")
        token = await store.commit(lambda db: invitations.create_invitation(db, 1, dora, alps.now))
        for _ in range(invitations.OF_A_USER):
            alps.now += 1
            await store.commit(lambda db: invitations.create_invitation(db, 1, dora, alps.now))
        new = CertificateTerms("aa", alps.now + certificates.PHONE_LIFETIME)
        with pytest.raises(Refused, match="has expired in the meantime: ask for another"):
            await store.commit(lambda db: invitations.use_invitation(db, 1, dora, token, "00", new))


async def test_message_to_all_in_transit_at_a_disconnect_is_sent_again(
    store: Store,
) -> None:
    async with mountain(store) as alps:
        dora = await named(alps, "Dora")
        exchange = Exchange(lambda became, by=1: None)
        host = PhoneHost(store, exchange, 1, alps.clock)
        cleo = TakUnit(f"FA-1-{CLEO}", "Cleo")
        guest = TakGuest(CLEO, lambda kind, raw, unit: True)
        exchange.enter(guest, cleo, alps.now)
        when = datetime.fromtimestamp(alps.now, UTC)
        unit = TakUnit(PHONE, "Dora")
        sighting = Sighting(CotPoint(46.5, 8.1), when, when + timedelta(minutes=5), tak.HOW_GPS, "")
        here = cot.encode(tak.make_unit_event(unit, sighting, when, {}))

        ping = cot.encode(tak.make_ping(PHONE, when))

        async def visit(*words: str) -> bytes:
            """Return the data for a phone that connects, speaks to all before each message, and
            disconnects.
            """
            ours, theirs = trio.testing.memory_stream_pair()
            heard = bytearray()

            async def hear(what: str) -> None:
                while what.encode() not in heard:
                    heard.extend(await theirs.receive_some())

            async with trio.open_nursery() as nursery:
                nursery.start_soon(phone.serve, host, cast(Any, ours), dora, "aa")
                await theirs.send_all(here)
                for word in words:
                    await theirs.send_all(ping)
                    await hear(tak.PONG)
                    heard.clear()
                    chat = GeoChat(cleo, tak.ALL_UNITS, word, word)
                    exchange.send_events(guest, tak.make_chat(chat, when), alps.now)
                    await hear(word)
                if not words:
                    await theirs.send_all(ping)
                    await hear(tak.PONG)
                await theirs.aclose()
            return bytes(heard)

        await visit("first", "second")
        # It has sent data after the first one. It is unknown if it has the second one.
        again = await visit()
        assert b"second" in again and b"first" not in again


def test_authority_issues_files_that_openssl_and_android_read() -> None:
    now = datetime(2031, 6, 1, tzinfo=UTC).timestamp()
    key = authority._make_key()
    by = authority.Authority(key, authority._make_own_certificate(key))
    assert by.certificate == authority._make_own_certificate(key), "it is the same each time"
    issued = authority.issue_for_phone(by, "Ada " * 30, now)
    issued.certificate.verify_directly_issued_by(by.certificate)
    written = authority.encode_phone_file(by, issued, "Ada", "secret")
    # As made by `openssl pkcs12 -legacy`: PBE with SHA-1 and 3DES, and a MAC with SHA-1.
    assert bytes.fromhex("060a2a864886f70d010c0103") in written
    assert bytes.fromhex("06052b0e03021a") in written
    trust = pkcs12.load_pkcs12(authority.encode_trust_file(by, "secret"), b"secret")
    assert [each.certificate for each in trust.additional_certs] == [by.certificate]
    for host in ("hub.example.org", "192.0.2.1", "2001:db8::1"):
        server = authority.issue_for_server(by, host, now).certificate
        lasts = server.not_valid_after_utc - server.not_valid_before_utc
        assert lasts.days < 825
    assert authority.make_context(by, "localhost", now).verify_mode is ssl.CERT_REQUIRED


def test_expiry_is_read_with_the_cryptography_of_debian_12() -> None:
    class Certificate:
        not_valid_after = datetime(2036, 1, 2, 3, 4, 5)

    certificate: Any = Certificate()
    assert authority.find_expiry(certificate) == datetime(2036, 1, 2, 3, 4, 5, tzinfo=UTC)
