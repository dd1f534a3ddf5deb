"""A folder as satellite operator: messages are files. Use it for tests without an account, or if a
courier carries the messages on a USB stick. The example of docs/how-to/add-an-operator.md.

Python must find this module (PYTHONPATH, or a zipapp built `--with` it). In `hub.properties`:

    operators=folder_operator:KIND
    folder-path=/srv/courier

A message to a modem becomes the file IMEI-NUMBER.mt. The hub reads and removes each file
IMEI-ANYTHING.mo.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path

import trio

from fieldagent.hub.operator.contract import (
    NO_MODEM,
    FarModem,
    MoListener,
    OperatorHost,
    OperatorKind,
    Own,
    Verdict,
)
from fieldagent.hub.operator.failures import Failure, Scope, make_unreachable
from fieldagent.store.group import StoreUnavailable
from fieldagent.system.folder import replace_file
from fieldagent.system.properties import Key, read_absolute_path
from fieldagent.system.wording import describe_reason
from fieldagent.wire.outcome import Outcome

POLL_S = 1.0
"""Seconds between two searches for new files."""
MOST_BYTES = 1_960
"""Largest MO message of an SBD modem in bytes."""
FULL = Failure("full", Scope.GATEWAY, "the folder is full: free some space", retry_after=600.0)


class Folder:
    """Writes MT messages as files. Implements `Operator`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def send(
        self, imei: str, body: bytes, *, number: int, priority: bool, modem: FarModem = NO_MODEM
    ) -> Verdict:
        # The same number is the same message, so a repeated call replaces the file.
        target = self._path / f"{imei}-{number}.mt"
        try:
            await trio.to_thread.run_sync(replace_file, target, body)
        except OSError as error:
            full = error.errno == 28
            return Verdict(
                Outcome.NOT_SENT, FULL if full else make_unreachable(describe_reason(error))
            )
        return Verdict(Outcome.SENT)

    async def ring(self, imei: str) -> Verdict:
        return Verdict(Outcome.REFUSED, make_unreachable("a folder cannot ring a modem"))


async def take_files(path: Path, host: OperatorHost) -> None:
    """Receive the files until cancelled. Remove a file once its message is in the database."""
    while True:
        for file, body in await trio.to_thread.run_sync(_read_all, path):
            try:
                await host.take_in(file.name.partition("-")[0], body, None)
                await trio.to_thread.run_sync(file.unlink)
            except StoreUnavailable:
                break  # The store logs the error. Keep the file for the next search.
            except OSError as error:
                host.note_fault(error, f"an MO message in {file}")
        await trio.sleep(POLL_S)


def _read_all(path: Path) -> list[tuple[Path, bytes]]:
    """Return each new file with its message. Call it in a thread, because a disk may be slow."""
    return [(file, file.read_bytes()[:MOST_BYTES]) for file in sorted(path.glob("*.mo"))]


def _caller(own: Own) -> Folder | None:
    return None if own["folder-path"] is None else Folder(own["folder-path"])


def _listen(own: Own) -> MoListener | None:
    path = own["folder-path"]
    if path is None:
        return None

    async def serve(sockets: Sequence[socket.socket], host: OperatorHost) -> None:
        await take_files(path, host)

    return MoListener((), serve)


KIND = OperatorKind(
    "folder",
    "Folder",
    "a folder whose messages a courier carries",
    keys=(Key("folder-path", read_absolute_path, None, "folder of the messages, .mt and .mo"),),
    caller=_caller,
    failures={"full": FULL},
    examples={"folder-path": "/srv/courier"},
    listen=_listen,
)
