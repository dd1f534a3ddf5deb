"""What the hub knows of modems and messages from their operator: implements `contract.Book`.

Which kind of modem an IMEI has and how the operator calls it; which messages it has brought; up to
when what it kept for us was fetched; and how far what was handed over has come.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from fieldagent.hub.operator.contract import HandedOver
from fieldagent.hub.records import mt_copies, operator_trouble
from fieldagent.hub.store.contract import Db, Store, insert

log = logging.getLogger(__name__)

KEPT = 30 * 86_400.0
"""Seconds for which a message that was brought is known: operators bring again for half a day."""
WATCHED = 5 * 86_400.0
"""Seconds for which a message that was handed over is asked about."""


class OperatorBook:
    """One operator's pages."""

    def __init__(self, store: Store, operator: str, clock: Callable[[], float]) -> None:
        self._store = store
        self._operator = operator
        self._clock = clock

    async def learn(self, imei: str, kind: str, address: str) -> None:
        """Note which kind of modem has this IMEI, and what the operator calls it."""

        def known(db: Db) -> bool:
            rows = db.execute("SELECT modem, thing FROM device WHERE imei = ?", imei)
            return not rows or tuple(rows[0]) == (kind, address)

        if await self._store.read(known):
            return
        await self._store.commit(
            lambda db: db.execute(
                "UPDATE device SET modem = ?, thing = ? WHERE imei = ?", kind, address, imei
            )
        )

    async def imei_of(self, address: str) -> str | None:
        """Return the IMEI of the modem that the operator calls so."""
        rows = await self._store.read(
            lambda db: db.execute("SELECT imei FROM device WHERE thing = ?", address)
        )
        return str(rows[0][0]) if rows and rows[0][0] else None

    async def has(self, id_: str) -> bool:
        """Return whether this message was brought, and taken in, before."""
        return bool(
            await self._store.read(
                lambda db: db.execute(
                    "SELECT 1 FROM operator_message WHERE operator = ? AND id = ?",
                    *(self._operator, id_),
                )
            )
        )

    async def note(self, id_: str) -> None:
        """Note that it was taken in."""
        now = self._clock()

        def store(db: Db) -> None:
            db.execute(
                "INSERT INTO operator_message (operator, id, at) VALUES (?, ?, ?)"
                " ON CONFLICT DO NOTHING",
                *(self._operator, id_, now),
            )
            db.execute("DELETE FROM operator_message WHERE at < ?", now - KEPT)

        await self._store.commit(store)

    async def fetched(self) -> float | None:
        """Return up to which Unix time what the operator kept was fetched; None: never."""
        rows = await self._store.read(
            lambda db: db.execute(
                "SELECT until FROM operator_fetched WHERE operator = ?", self._operator
            )
        )
        return float(rows[0][0]) if rows else None

    async def note_fetched(self, until: float) -> None:
        """Note up to when it was."""
        await self._store.commit(
            lambda db: db.execute(
                "INSERT INTO operator_fetched (operator, until) VALUES (?, ?)"
                " ON CONFLICT (operator) DO UPDATE SET until = excluded.until",
                *(self._operator, until),
            )
        )

    async def note_balance(self, left: Mapping[str, float], *, below: float) -> None:
        """Note what is left of each plan; less than `below` of one raises an alarm, once."""
        now, operator = self._clock(), self._operator

        def store(db: Db) -> list[str]:
            db.execute("DELETE FROM operator_balance WHERE operator = ?", operator)
            rows = [(operator, plan, remaining, now) for plan, remaining in left.items()]
            insert(db, "operator_balance", ("operator", "plan", "remaining", "at"), rows)
            short = {plan: remaining for plan, remaining in left.items() if remaining < below}
            return operator_trouble.note_balance(db, operator, short, now)

        for line in await self._store.commit(store):
            log.warning("%s", line)

    async def under_way(self) -> list[HandedOver]:
        """Return what was handed over and is not known to be in the modem, oldest first."""
        rows = await self._store.read(
            lambda db: db.execute(
                "SELECT id, state FROM handed_over WHERE operator = ? AND ended = 0"
                " AND at > ? ORDER BY at LIMIT 50",
                *(self._operator, self._clock() - WATCHED),
            )
        )
        return [HandedOver(*row) for row in rows]

    async def note_state(self, id_: str, state: str, *, ended: bool) -> None:
        """Note how far the operator says that it has come: at the most into the modem."""
        now = self._clock()

        def store(db: Db) -> None:
            db.execute(
                "UPDATE handed_over SET state = ?, ended = ? WHERE operator = ? AND id = ?",
                *(state, int(ended), self._operator, id_),
            )
            if ended:
                mt_copies.note_arrived(db, id_, now)

        await self._store.commit(store)


def note_handed_over(db: Db, operator: str, id_: str, device: int, now: float) -> None:
    """Note that the operator has taken a message, and calls it so."""
    db.execute("DELETE FROM handed_over WHERE at < ?", now - KEPT)
    db.execute(
        "INSERT INTO handed_over (operator, id, device, at, state, ended)"
        " VALUES (?, ?, ?, ?, '', 0) ON CONFLICT DO NOTHING",
        *(operator, id_, device, now),
    )
