"""Answers by mail: a folder is looked at by IMAP (RFC 3501), and what answers a mail of the hub is
taken in.

A mail is flagged seen once it is on disk; one that comes twice is known by its content. It answers
what its address (`sos+MESSAGE@…`) or its In-Reply-To says: only who was told knows these. What
is larger than MAIL_MAX is left alone. A child process reads the rest (`mail_reading`): the
library's parser takes minutes for a few hundred kilobytes that somebody has thought of.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import trio

import fieldagent
from fieldagent.hub.escalation.contract import ContactAnswer, Inward, Own
from fieldagent.store.group import StoreUnavailable
from fieldagent.system import waits
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.text_files import first_line
from fieldagent.system.wording import reason_of

if TYPE_CHECKING:
    import imaplib

log = logging.getLogger(__name__)

T = TypeVar("T")

KIND_NAME = "email"
DEADLINE = 30.0
"""Seconds for each step with the server."""
MAIL_MAX = 262_144
"""Bytes of a mail that is read: its words have 200."""
AT_ONCE = 50
"""Mails of one look."""
PACKAGE_AT = Path(fieldagent.__file__).parents[1]
"""The folder or archive that holds the program."""
READ_APART = (
    f"import sys; sys.path.insert(0, {str(PACKAGE_AT)!r});"
    " from fieldagent.hub.escalation.mail_reading import main; main()"
)
_LOCAL = ("localhost", "127.0.0.1", "::1")


def reply_address(address: str, message_id: str) -> str:
    """Return where an answer to that message goes (RFC 5233)."""
    local, _, domain = address.rpartition("@")
    return f"{local}+{message_id}@{domain}"


def faults(own: Own) -> list[str]:
    """Return in words what is missing or unsafe among the settings of IMAP; empty where nothing
    is."""
    problems = []
    if own["imap-host"] is not None and own["imap-user"] is None:
        problems.append("imap-host needs imap-user: set that too, or remove imap-host")
    if own["imap-host"] is not None and own["mail-from"] is None:
        problems.append("imap-host needs mail-from: set that too, or remove imap-host")
    if own["imap-tls"] == "none" and own["imap-host"] not in (None, *_LOCAL):
        problems.append(
            "imap-tls=none would send the password readable: set tls or starttls, or read a server"
            " on this machine"
        )
    return problems


class Fetched(NamedTuple):
    uid: bytes
    raw: bytes
    """Empty of one that is too large."""


def listen(inward: Inward) -> Callable[[], Awaitable[None]] | None:
    """Return what looks at the folder until it is cancelled; None without imap-host."""
    if inward.host.own["imap-host"] is None:
        return None
    return partial(_run, inward)


async def _run(inward: Inward) -> None:
    """Look until cancelled. What a server refuses is told once, until it is something else."""
    last_trouble = ""
    while True:
        try:
            await look(inward)
            trouble = ""
        except StoreUnavailable:
            trouble = last_trouble  # the store says that itself; the mails stay unseen
        except Exception as error:
            if not _is_of_the_server(error):
                raise
            trouble = f"answers by mail: {inward.host.own['imap-host']}: {reason_of(error)}"
        if trouble != last_trouble:
            (log.warning if trouble else log.info)(
                "%s", trouble or "answers by mail are read again"
            )
        last_trouble = trouble
        await waits.sleep(inward.host.own["imap-seconds"])


def _is_of_the_server(error: Exception) -> bool:
    import imaplib

    return isinstance(error, (OSError, imaplib.IMAP4.error, trio.TooSlowError))


async def look(inward: Inward) -> None:
    """Take in what is unseen. Raises what the server or the inbox does: the rest stays unseen."""
    own = inward.host.own
    connection = await _in_thread(partial(_open, own))
    try:
        for mail in await _in_thread(partial(_unseen, connection)):
            answer = await _read(mail, inward)
            if answer is not None:
                await inward.inbox.take(answer)
            await _in_thread(partial(_flag_seen, connection, mail.uid))
    finally:
        # Its socket is closed without a word to a server that may hang.
        connection.shutdown()


class MailUnreadable(Exception):
    """The child that read a mail failed, or took too much."""


async def _read(mail: Fetched, inward: Inward) -> ContactAnswer | None:
    """As `read_apart`. A mail that cannot be read must not keep back those behind it."""
    try:
        return await read_apart(mail.raw, inward.host.own["mail-from"]) if mail.raw else None
    except MailUnreadable as error:
        inward.note_fault(error, f"a mail that answers nothing now: uid {mail.uid.decode()}")
        return None


async def read_apart(raw: bytes, mail_from: str) -> ContactAnswer | None:
    """Return the answer that a mail is; None where it is none. A child process reads it, within
    its limits and DEADLINE. Raises MailUnreadable."""
    # -I and -S: nothing of the environment, and the standard library alone.
    command = [sys.executable, "-I", "-S", "-c", READ_APART, mail_from]
    with trio.move_on_after(DEADLINE):
        done = await trio.run_process(
            command, stdin=raw, capture_stdout=True, capture_stderr=True, check=False
        )
        if done.returncode:
            last = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2][:200]
            raise MailUnreadable(f"its reader ended by {done.returncode}: {last}")
        answer = json.loads(done.stdout)
        if answer is None:
            return None
        return ContactAnswer(KIND_NAME, hashlib.sha256(raw).hexdigest(), **answer)
    raise MailUnreadable(f"its reader took more than {DEADLINE:g} s")


async def _in_thread(step: Callable[[], T]) -> T:
    """Raises trio.TooSlowError; a thread that hangs is left behind."""
    with trio.fail_after(DEADLINE):
        return await trio.to_thread.run_sync(step, abandon_on_cancel=True)


def _open(own: Own) -> imaplib.IMAP4:
    import imaplib
    import ssl

    trust, where = ssl.create_default_context(), (own["imap-host"], own["imap-port"])
    if own["imap-tls"] == "tls":
        connection: imaplib.IMAP4 = imaplib.IMAP4_SSL(*where, ssl_context=trust, timeout=DEADLINE)
    else:
        connection = imaplib.IMAP4(*where, timeout=DEADLINE)
    try:
        if own["imap-tls"] == "starttls":
            connection.starttls(trust)
        password = first_line(own["imap-password-file"])
        connection.login(own["imap-user"], password)
        state, said = connection.select(f'"{own["imap-folder"]}"')
        if state != "OK":
            raise connection.error(f"imap-folder {own['imap-folder']}: {said!r}")
    except BaseException:
        # A handshake that failed has closed the socket, and is what is told.
        with suppress(OSError):
            connection.shutdown()
        raise
    return connection


def _unseen(connection: imaplib.IMAP4) -> list[Fetched]:
    _, response = connection.uid("SEARCH", "UNSEEN")
    return [_fetch(connection, uid) for uid in (response[0] or b"").split()[:AT_ONCE]]


def _fetch(connection: imaplib.IMAP4, uid: bytes) -> Fetched:
    number = uid.decode("ascii")
    _, said = connection.uid("FETCH", number, "(RFC822.SIZE)")
    size = re.search(rb"RFC822\.SIZE ([0-9]+)", _line(said))
    if size is None or int(size[1]) > MAIL_MAX:
        log.warning("a mail of more than %d bytes is not read: uid %s", MAIL_MAX, number)
        return Fetched(uid, b"")
    _, said = connection.uid("FETCH", number, "(BODY.PEEK[])")
    return Fetched(uid, next((part[1] for part in said if isinstance(part, tuple)), b""))


def _line(said: list[object]) -> bytes:
    """Return what the server said in its first line of an answer."""
    first = said[0] if said else b""
    return first if isinstance(first, bytes) else b""


def _flag_seen(connection: imaplib.IMAP4, uid: bytes) -> None:
    connection.uid("STORE", uid.decode("ascii"), "+FLAGS", r"(\Seen)")
