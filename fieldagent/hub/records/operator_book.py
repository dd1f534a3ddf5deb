"""Database records of an operator's modems and messages. Implements `contract.Book`.

The records contain the kind of each modem and the operator's name for the modem. They contain the
messages that the operator has delivered, and the time up to which the hub has fetched the
operator's stored messages. They also contain the state of messages that the hub has handed over.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from fieldagent.hub.operator.contract import HandedOver
from fieldagent.hub.records import mt_copies, operator_trouble
from fieldagent.hub.store.contract import Db, Store, insert

log = logging.getLogger(__name__)

RETENTION_S = 30 * 86_400.0
"""Seconds for which a delivered message is remembered. Operators repeat a delivery for half a
day.
"""
STATE_QUERY_S = 5 * 86_400.0
"""Seconds for which the hub queries the state of a message after handing it over."""


class OperatorBook:
    """Database records of one satellite operator: its modems, messages and balance."""

    def __init__(self, store: Store, operator: str, clock: Callable[[], float]) -> None:
        self._store = store
        self._operator = operator
        self._clock = clock

    async def store_modem(self, imei: str, kind: str, address: str) -> None:
        """Store the kind of the modem with this IMEI, and the operator's name for the modem."""

        def _is_known(db: Db) -> bool:
            rows = db.execute("SELECT modem, thing FROM device WHERE imei = ?", imei)
            return not rows or tuple(rows[0]) == (kind, address)

        if await self._store.read(_is_known):
            return
        await self._store.commit(
            lambda db: db.execute(
                "UPDATE device SET modem = ?, thing = ? WHERE imei = ?", kind, address, imei
            )
        )

    async def find_imei(self, address: str) -> str | None:
        """Return the IMEI of the modem that the operator calls `address`, or None if the modem is
        unknown.
        """
        rows = await self._store.read(
            lambda db: db.execute("SELECT imei FROM device WHERE thing = ?", address)
        )
        return str(rows[0][0]) if rows and rows[0][0] else None

    async def has_message(self, id_: str) -> bool:
        """Return True if the hub has accepted this message before."""
        return bool(
            await self._store.read(
                lambda db: db.execute(
                    "SELECT 1 FROM operator_message WHERE operator = ? AND id = ?",
                    *(self._operator, id_),
                )
            )
        )

    async def record_message(self, id_: str) -> None:
        """Record that the hub has accepted the message."""
        now = self._clock()

        def store(db: Db) -> None:
            db.execute(
                "INSERT INTO operator_message (operator, id, at) VALUES (?, ?, ?)"
                " ON CONFLICT DO NOTHING",
                *(self._operator, id_, now),
            )
            db.execute("DELETE FROM operator_message WHERE at < ?", now - RETENTION_S)

        await self._store.commit(store)

    async def read_fetched(self) -> float | None:
        """Return the Unix time up to which the hub has fetched the operator's stored messages, or
        None if it has never fetched messages.
        """
        rows = await self._store.read(
            lambda db: db.execute(
                "SELECT until FROM operator_fetched WHERE operator = ?", self._operator
            )
        )
        return float(rows[0][0]) if rows else None

    async def record_fetched_until(self, until: float) -> None:
        """Record the Unix time up to which the hub has fetched the operator's stored messages."""
        await self._store.commit(
            lambda db: db.execute(
                "INSERT INTO operator_fetched (operator, until) VALUES (?, ?)"
                " ON CONFLICT (operator) DO UPDATE SET until = excluded.until",
                *(self._operator, until),
            )
        )

    async def record_balance(self, amounts: Mapping[str, float], *, below: float) -> None:
        """Store the remaining amount of each plan. Raise one alarm if an amount is less than
        `below`.
        """
        now, operator = self._clock(), self._operator

        def store(db: Db) -> list[str]:
            db.execute("DELETE FROM operator_balance WHERE operator = ?", operator)
            rows = [(operator, plan, remaining, now) for plan, remaining in amounts.items()]
            insert(db, "operator_balance", ("operator", "plan", "remaining", "at"), rows)
            short = {plan: remaining for plan, remaining in amounts.items() if remaining < below}
            return operator_trouble.record_low_balance(db, operator, short, now)

        for line in await self._store.commit(store):
            log.warning("%s", line)

    async def list_under_way(self) -> list[HandedOver]:
        """Return at most 50 messages that were handed over in the last STATE_QUERY_S seconds and
        that may not be in the modem yet, oldest first.
        """
        rows = await self._store.read(
            lambda db: db.execute(
                "SELECT id, state FROM handed_over WHERE operator = ? AND ended = 0"
                " AND at > ? ORDER BY at LIMIT 50",
                *(self._operator, self._clock() - STATE_QUERY_S),
            )
        )
        return [HandedOver(*row) for row in rows]

    async def record_state(self, id_: str, state: str, *, is_final: bool) -> None:
        """Store the state of a message that the operator reports. `is_final` is True if the modem
        has the message.
        """
        now = self._clock()

        def store(db: Db) -> None:
            db.execute(
                "UPDATE handed_over SET state = ?, ended = ? WHERE operator = ? AND id = ?",
                *(state, int(is_final), self._operator, id_),
            )
            if is_final:
                mt_copies.record_arrival(db, id_, now)

        await self._store.commit(store)


def record_handover(db: Db, operator: str, id_: str, device: int, now: float) -> None:
    """Record that the operator has accepted a message under this id."""
    db.execute("DELETE FROM handed_over WHERE at < ?", now - RETENTION_S)
    db.execute(
        "INSERT INTO handed_over (operator, id, device, at, state, ended)"
        " VALUES (?, ?, ?, ?, '', 0) ON CONFLICT DO NOTHING",
        *(operator, id_, device, now),
    )
