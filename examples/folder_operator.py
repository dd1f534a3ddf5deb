"""A satellite operator that is a folder: messages come and go as files, for a bench without any
account, or where a courier carries them on a stick. The example of docs/how-to/add-an-operator.md.

In `hub.properties`, where Python finds this module (PYTHONPATH, or a zipapp built `--with` it):

    operators=folder_operator:KIND
    folder-path=/srv/courier

A message to a modem becomes IMEI-NUMBER.mt there; a file IMEI-ANYTHING.mo is taken in and removed.
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
from fieldagent.system.folder import put_file
from fieldagent.system.properties import Key, read_absolute_path
from fieldagent.system.wording import describe_reason
from fieldagent.wire.outcome import Outcome

LOOK = 1.0
"""Seconds between two looks for what came."""
MOST_BYTES = 1_960
"""The largest message in bytes that an SBD modem sends."""
FULL = Failure("full", Scope.GATEWAY, "the folder is full: free some space", retry_after=600.0)


class Folder:
    """Implements `Operator`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def send(
        self, imei: str, body: bytes, *, number: int, priority: bool, modem: FarModem = NO_MODEM
    ) -> Verdict:
        # The same number is the same message: called again, it lies there once.
        target = self._path / f"{imei}-{number}.mt"
        try:
            await trio.to_thread.run_sync(put_file, target, body)
        except OSError as error:
            full = error.errno == 28
            return Verdict(
                Outcome.NOT_SENT, FULL if full else make_unreachable(describe_reason(error))
            )
        return Verdict(Outcome.SENT)

    async def ring(self, imei: str) -> Verdict:
        return Verdict(Outcome.REFUSED, make_unreachable("a folder rings nobody"))


async def take_files(path: Path, host: OperatorHost) -> None:
    """Take in what lies there, until cancelled. A file is removed once its message is on disk."""
    while True:
        for file, body in await trio.to_thread.run_sync(_read_all, path):
            try:
                await host.take_in(file.name.partition("-")[0], body, None)
                await trio.to_thread.run_sync(file.unlink)
            except StoreUnavailable:
                break  # the store logs that itself; the file stays for the next look
            except OSError as error:
                host.note_fault(error, f"an MO message in {file}")
        await trio.sleep(LOOK)


def _read_all(path: Path) -> list[tuple[Path, bytes]]:
    """Return each message that has come, with its file; in a thread, as disks may be slow."""
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
    "a folder, from which somebody carries the messages on",
    keys=(Key("folder-path", read_absolute_path, None, "folder of the messages, .mt and .mo"),),
    caller=_caller,
    failures={"full": FULL},
    examples={"folder-path": "/srv/courier"},
    listen=_listen,
)
