"""Alternatives to the agent's POST for comparison: ASGI applications under uvicorn.

Both read the body and check it by the agent's own rules, so that only the server, the queue and the
disk differ. `answering` stores nothing, and `committing` commits each row separately.
"""

from __future__ import annotations

import os
import sqlite3
from typing import Any

from fieldagent.package.reading import parse_package

STORE = "UVICORN_APP_STORE"
"""Environment variable with the path of the database of `committing`."""


async def _accepted(receive: Any) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    parse_package(body)
    return body


async def _answer(send: Any, number: int) -> None:
    body = b'{"id":%d,"status":null}\n' % number
    length = b"%d" % len(body)
    headers = [(b"content-type", b"application/json"), (b"content-length", length)]
    await send({"type": "http.response.start", "status": 202, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def answering(scope: Any, receive: Any, send: Any) -> None:
    await _accepted(receive)
    await _answer(send, 1)


_database: list[sqlite3.Connection] = []


def _store() -> sqlite3.Connection:
    if not _database:
        opened = sqlite3.connect(os.environ[STORE], isolation_level=None)
        opened.execute("PRAGMA journal_mode=WAL")
        opened.execute("PRAGMA synchronous=FULL")
        opened.execute("CREATE TABLE package (id INTEGER PRIMARY KEY, body BLOB NOT NULL)")
        _database.append(opened)
    return _database[0]


async def committing(scope: Any, receive: Any, send: Any) -> None:
    body = await _accepted(receive)
    row = _store().execute("INSERT INTO package (body) VALUES (?)", (body,))
    await _answer(send, row.lastrowid or 0)
