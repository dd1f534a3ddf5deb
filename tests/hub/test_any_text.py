"""Texts from kits and their neighbours contain any character, and both databases accept it."""

from __future__ import annotations

from fieldagent.hub.records import audit
from fieldagent.hub.records.audit import AuditLine
from fieldagent.hub.store.contract import Db, Store, insert
from fieldagent.package.package import IncidentState, IncidentUpdate, Message
from fieldagent.wire.envelope import Entry
from tests.hub.field import START, field_of

TIME = int(START)


async def test_text_with_a_nul_does_not_block_later_items(store: Store) -> None:
    async with field_of(store) as alps:
        await alps.sends(1, Entry(1, Message("help"), TIME, sos=True))
        word = IncidentUpdate(1, IncidentState.SEEN, 1, by="B\0en", text="com\0ing")
        await alps.sends(2, Entry(1, word, TIME), Entry(2, Message("a\0b"), TIME))
        rows = await alps.rows("SELECT detail FROM sos_event WHERE event = 'seen at a kit'")
        assert [detail[0] + detail[-3:] for (detail,) in rows] == ["Bing"]
        assert await alps.rows("SELECT count(*) FROM item WHERE sender = 2 AND words <> ''")


async def test_text_around_a_nul_is_stored_unchanged(store: Store) -> None:
    async with field_of(store) as alps:
        before = r"c:\u0000 "

        def write(db: Db) -> None:
            audit.write_lines(
                db, [AuditLine(1, "1", "a", f"{before}\0"), AuditLine(1, "1", "b", "é")], 1
            )
            db.execute("UPDATE audit SET actor = ? WHERE action = 'a'", "\0x")
            insert(db, "attempt", ("who", "tat"), [("\0", 1.0)], conflict="DO NOTHING")

        await store.commit(write)
        (first, second) = await alps.rows(
            "SELECT actor, detail FROM audit WHERE action IN ('a', 'b') ORDER BY action"
        )
        assert (first[0][1:], first[1][:-1], second[1]) == ("x", before, "é")
