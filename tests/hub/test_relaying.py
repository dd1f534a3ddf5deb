"""Permission to relay items of another device, and the handling of an unproved SOS."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
import trio

from fieldagent.agent.channels.connecting import open_stream
from fieldagent.agent.channels.hub_connection import HubAddress, open_web_socket
from fieldagent.hub.access import directory
from fieldagent.hub.contract import Bearer
from fieldagent.hub.store.contract import Store
from fieldagent.package.package import Message
from fieldagent.wire.envelope import Entry, UnauthenticatedMark, derive_key, encode
from fieldagent.wire.link import Acknowledged, IpLink, LinkHello
from tests.hub.field import MASTER, Field, collect, said
from tests.hub.field import field_of as field
from tests.hub.test_journey import folder, receiver
from tests.processes import administer, agent, hub, until

TIME = 1_790_000_000
ADA, BEN, CLEO = 1, 2, 3
"""Cleo's messages have a tag."""
HELLO, HELP = Entry(5, Message("hello"), TIME), Entry(6, Message("help"), TIME, sos=True)


async def set_relay(alps: Field, device: int, allowed: bool) -> None:
    await alps.store.commit(lambda db: directory.set_relay(db, device, allowed, now=alps.now))


async def list_dead_letters(alps: Field) -> list[str]:
    return [reason for (reason,) in await alps.rows("SELECT reason FROM dead_letter")]


async def test_relayed_item_waits_until_its_kit_may_relay(store: Store) -> None:
    async with field(store) as alps:
        await set_relay(alps, BEN, False)
        await alps.sends(BEN, HELLO, origin=ADA)
        assert await alps.rows("SELECT id FROM item") == []
        (reason,) = await list_dead_letters(alps)
        assert "kit 2 may not relay: allow it" in reason
        await set_relay(alps, BEN, True)
        hub = alps.mobile_originated()
        assert await store.commit(lambda db: hub.replay(db, alps.device(BEN), ())) == 1
        assert said(await collect(alps.mailbox(CLEO))) == [(ADA, "hello")]
        assert await list_dead_letters(alps) == []


@pytest.mark.parametrize(
    ("bearer", "key", "taken"),
    [
        (Bearer.SATELLITE, None, False),
        (Bearer.IP, None, True),
    ],
    ids=["an untagged message", "a link"],
)
async def test_relay_for_a_tagged_device_needs_an_authenticated_carrier(
    store: Store, bearer: Bearer, key: bytes | None, taken: bool
) -> None:
    async with field(store) as alps:
        await alps.sends(BEN, HELLO, bearer=bearer, key=key, origin=CLEO)
        assert len(await alps.rows("SELECT id FROM item")) == taken
        assert len(await list_dead_letters(alps)) == (not taken)


async def test_relayed_sos_arrives_marked_as_unauthenticated(store: Store) -> None:
    async with field(store) as alps:
        await set_relay(alps, BEN, False)
        for _ in range(2):
            await alps.sends(BEN, HELP, bearer=Bearer.SATELLITE, origin=CLEO)
        (envelope,) = await collect(alps.mailbox(ADA))
        assert said([envelope]) == [(CLEO, "help")]
        assert UnauthenticatedMark() in [entry.content for entry in envelope.entries]
        # Cleo's own SOS arrives in any case, without a warning.
        key = derive_key(MASTER, "MO")
        await alps.sends(CLEO, HELP, bearer=Bearer.SATELLITE, key=key)
        (envelope,) = await collect(alps.mailbox(ADA))
        assert said([envelope]) == [(CLEO, "help")]
        assert UnauthenticatedMark() not in [entry.content for entry in envelope.entries]
        # After the proved SOS, the unproved copy is not new.
        await alps.sends(BEN, HELP, bearer=Bearer.SATELLITE, origin=CLEO)
        assert len(await alps.rows("SELECT id FROM item")) == 2


@pytest.mark.parametrize("bearer", [Bearer.IP, Bearer.SATELLITE])
async def test_sos_of_a_guest_at_a_linked_kit_is_unauthenticated(
    store: Store, bearer: Bearer
) -> None:
    """The kit marks an SOS that it heard from an unauthenticated handheld."""
    async with field(store) as alps:
        guests = [HELP, Entry(HELP.sequence, UnauthenticatedMark(), TIME)]
        own = Entry(7, Message("leg broken"), TIME, sos=True)
        key = derive_key(MASTER, "MO") if bearer is Bearer.SATELLITE else None
        for entries in (guests, [own]):
            await alps.sends(CLEO, *entries, bearer=bearer, key=key)
        marked = await alps.rows("SELECT source_sequence, unauthenticated FROM item ORDER BY id")
        assert marked == [(6, 1), (7, 0)]
        envelopes = await collect(alps.mailbox(ADA))
        marks = [
            entry.sequence
            for envelope in envelopes
            for entry in envelope.entries
            if isinstance(entry.content, UnauthenticatedMark)
        ]
        assert (said(envelopes), len(marks)) == ([(CLEO, "help"), (CLEO, "leg broken")], 1)
        assert await list_dead_letters(alps) == []


def test_hook_and_webhook_get_the_mark_of_an_unauthenticated_sos(tmp_path: Path) -> None:
    """A real hub and a real kit run. The journal of a second agent simulates a stolen token."""
    database = str(tmp_path / "hub.sqlite3")
    administer(database, "init", "Alps")
    devices = {}
    for name in ("Ada", "Ben", "Cleo"):
        member = administer(database, "user", "add", name)["id"]
        devices[name] = administer(database, "device", "add", name, "--user", str(member))
    with ExitStack() as stack:
        hooked = stack.enter_context(receiver())
        settings = {"database": database, "webhook-allow": "127.0.0.0/8"}
        running = stack.enter_context(hub(folder(tmp_path / "hub"), settings))
        administer(database, "webhook", "add", hooked.url, "--untried")
        link = {"hub-address": running.address, "satellite-port": None}
        kit = stack.enter_context(
            agent(
                folder(tmp_path / "ada"),
                {
                    **link,
                    "hub-token": devices["Ada"]["hub-token"],
                    "inbound-hook": 'echo "hook: ${AGENT_PAYLOAD_UNAUTHENTICATED:-none} done"',
                },
            )
        )
        kit.expect("linked to the hub")
        trio.run(
            _bring_forged_items, running.port, devices["Ben"]["hub-token"], devices["Cleo"]["id"]
        )
        kit.expect("hook: 1 done")
        until(lambda: hooked.got)
        (event,) = hooked.got[0]["payloads"][0]["events"]
        assert (event["content"], event["sos"], event["unauthenticated"]) == ("help", True, True)
        assert hooked.headers[0]["fieldagent-unauthenticated"] == "1"
        (listed,) = kit.call("GET", "/api/inbound").body["payloads"]
        assert '"unauthenticated": true' in json.dumps(listed)
        (ben,) = [each for each in administer(database, "device", "list") if each["name"] == "Ben"]
        assert ben["relay"] is False
        assert ben["deadLetters"] == 1, "the message that was no SOS"
        assert administer(database, "device", "relay", "Ben")["deadLettersTaken"] == 1


async def _bring_forged_items(port: int, token: str, cleo: int) -> None:
    """Bring an SOS and a message over Ben's link that claim to be Cleo's."""
    address = HubAddress(f"http://127.0.0.1:{port}", token)
    stream = await open_stream(address.server)
    socket = await open_web_socket(address, stream)
    link = IpLink(LinkHello())
    await socket.send(link.make_hello())
    link.receive(await socket.receive())
    for entry in (HELP, HELLO):
        now = Entry(entry.sequence, entry.content, int(time.time()), entry.sos)
        await socket.send(link.send(encode([now], origin=cleo))[1])
    acknowledged = 0
    while acknowledged < 2:
        event = link.receive(await socket.receive())
        if isinstance(event, Acknowledged):
            acknowledged += len(event.numbers)
    await trio.aclose_forcefully(stream)
