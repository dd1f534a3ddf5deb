"""Answers by mail: polls a folder by IMAP (RFC 3501) and processes answers to the hub's mails.

A mail is flagged as seen once it is on disk. A duplicate is recognised by its content. The answered
message is named in the mail's address (`sos+MESSAGE@…`) or in its In-Reply-To, which only the
recipient knows. A mail larger than MAIL_MAX is ignored. A child process parses all other mails
(`mail_reading`), because the library's parser takes minutes for a maliciously built mail of a few
hundred kilobytes.
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
from fieldagent.hub.escalation.contract import AnswerServices, ContactAnswer, Own
from fieldagent.store.group import StoreUnavailable
from fieldagent.system import waits
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.text_files import read_first_line
from fieldagent.system.wording import describe_reason

if TYPE_CHECKING:
    import imaplib

log = logging.getLogger(__name__)

T = TypeVar("T")

KIND_NAME = "email"
DEADLINE_S = 30.0
"""Seconds for each step with the server."""
MAIL_MAX = 262_144
"""Largest number of bytes of a mail. A typical text has about 200 bytes."""
AT_ONCE = 50
"""Largest number of mails per poll."""
PACKAGE_AT = Path(fieldagent.__file__).parents[1]
"""Folder or archive that contains the program."""
READ_APART = (
    f"import sys; sys.path.insert(0, {str(PACKAGE_AT)!r});"
    " from fieldagent.hub.escalation.mail_reading import main; main()"
)
_LOCAL = ("localhost", "127.0.0.1", "::1")


def reply_address(address: str, message_id: str) -> str:
    """Return the address for answers to a message (RFC 5233)."""
    local, _, domain = address.rpartition("@")
    return f"{local}+{message_id}@{domain}"


def find_faults(settings: Own) -> list[str]:
    """Return the faults of the IMAP settings, such as a missing or unsafe setting; empty if there
    are none.
    """
    problems = []
    if settings["imap-host"] is not None and settings["imap-user"] is None:
        problems.append("imap-host needs imap-user: set that too, or remove imap-host")
    if settings["imap-host"] is not None and settings["mail-from"] is None:
        problems.append("imap-host needs mail-from: set that too, or remove imap-host")
    if settings["imap-tls"] == "none" and settings["imap-host"] not in (None, *_LOCAL):
        problems.append(
            "imap-tls=none would send the password readable: set tls or starttls, or read a server"
            " on this machine"
        )
    return problems


class FetchedMail(NamedTuple):
    uid: bytes
    raw: bytes
    """Empty if the mail is too large."""


def listen(inward: AnswerServices) -> Callable[[], Awaitable[None]] | None:
    """Return a function that polls the folder until cancelled; None without imap-host."""
    if inward.host.own["imap-host"] is None:
        return None
    return partial(_run, inward)


async def _run(inward: AnswerServices) -> None:
    """Poll until cancelled. A failure is logged once, and again if its text changes."""
    last_trouble = ""
    while True:
        try:
            await process_unseen(inward)
            trouble = ""
        except StoreUnavailable:
            trouble = last_trouble  # The store logs the outage itself, and the mails stay unseen.
        except Exception as error:
            if not _is_of_the_server(error):
                raise
            trouble = (
                f"mailbox for answers: {inward.host.own['imap-host']}: {describe_reason(error)}"
            )
        if trouble != last_trouble:
            (log.warning if trouble else log.info)(
                "%s", trouble or "mailbox connection restored; reading e-mail replies"
            )
        last_trouble = trouble
        await waits.sleep(inward.host.own["imap-seconds"])


def _is_of_the_server(error: Exception) -> bool:
    import imaplib

    return isinstance(error, (OSError, imaplib.IMAP4.error, trio.TooSlowError))


async def process_unseen(inward: AnswerServices) -> None:
    """Pass the answers in unseen mails to the inbox, and mark the mails as seen. Raises the errors
    of the server and of the inbox; the remaining mails then stay unseen.
    """
    own = inward.host.own
    connection = await _run_in_thread(partial(_open, own))
    try:
        for mail in await _run_in_thread(partial(_fetch_unseen, connection)):
            answer = await _read(mail, inward)
            if answer is not None:
                await inward.inbox.receive_message(answer)
            await _run_in_thread(partial(_flag_seen, connection, mail.uid))
    finally:
        # Close the socket without a logout, because the server may hang.
        connection.shutdown()


class MailUnreadable(Exception):
    """The child process that parsed a mail failed, or exceeded its limits."""


async def _read(mail: FetchedMail, inward: AnswerServices) -> ContactAnswer | None:
    """Return the answer in a mail, as `read_apart` does. An unreadable mail must not block the next
    mails.
    """
    try:
        return await read_apart(mail.raw, inward.host.own["mail-from"]) if mail.raw else None
    except MailUnreadable as error:
        inward.note_fault(error, f"a mail that answers no current message: uid {mail.uid.decode()}")
        return None


async def read_apart(raw: bytes, mail_from: str) -> ContactAnswer | None:
    """Return the answer in a mail; None if it is not an answer. A child process parses the mail
    within its own limits and DEADLINE_S. Raises MailUnreadable.
    """
    # -I and -S: ignore the environment, and use only the standard library.
    command = [sys.executable, "-I", "-S", "-c", READ_APART, mail_from]
    with trio.move_on_after(DEADLINE_S):
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
    raise MailUnreadable(f"reading the mail took more than {DEADLINE_S:g} s")


async def _run_in_thread(step: Callable[[], T]) -> T:
    """Run a step in a thread. Raises trio.TooSlowError; a thread that hangs is abandoned."""
    with trio.fail_after(DEADLINE_S):
        return await trio.to_thread.run_sync(step, abandon_on_cancel=True)


def _open(settings: Own) -> imaplib.IMAP4:
    import imaplib
    import ssl

    trust, where = ssl.create_default_context(), (settings["imap-host"], settings["imap-port"])
    if settings["imap-tls"] == "tls":
        connection: imaplib.IMAP4 = imaplib.IMAP4_SSL(*where, ssl_context=trust, timeout=DEADLINE_S)
    else:
        connection = imaplib.IMAP4(*where, timeout=DEADLINE_S)
    try:
        if settings["imap-tls"] == "starttls":
            connection.starttls(trust)
        password = read_first_line(settings["imap-password-file"])
        connection.login(settings["imap-user"], password)
        state, said = connection.select(f'"{settings["imap-folder"]}"')
        if state != "OK":
            raise connection.error(f"imap-folder {settings['imap-folder']}: {said!r}")
    except BaseException:
        # A failed handshake has closed the socket already, and is the error to report.
        with suppress(OSError):
            connection.shutdown()
        raise
    return connection


def _fetch_unseen(connection: imaplib.IMAP4) -> list[FetchedMail]:
    _, response = connection.uid("SEARCH", "UNSEEN")
    return [_fetch(connection, uid) for uid in (response[0] or b"").split()[:AT_ONCE]]


def _fetch(connection: imaplib.IMAP4, uid: bytes) -> FetchedMail:
    number = uid.decode("ascii")
    _, said = connection.uid("FETCH", number, "(RFC822.SIZE)")
    size = re.search(rb"RFC822\.SIZE ([0-9]+)", _get_first_line(said))
    if size is None or int(size[1]) > MAIL_MAX:
        log.warning("a mail of more than %d bytes is not read: uid %s", MAIL_MAX, number)
        return FetchedMail(uid, b"")
    _, said = connection.uid("FETCH", number, "(BODY.PEEK[])")
    return FetchedMail(uid, next((part[1] for part in said if isinstance(part, tuple)), b""))


def _get_first_line(lines: list[object]) -> bytes:
    """Return the first line of the server's answer."""
    first = lines[0] if lines else b""
    return first if isinstance(first, bytes) else b""


def _flag_seen(connection: imaplib.IMAP4, uid: bytes) -> None:
    connection.uid("STORE", uid.decode("ascii"), "+FLAGS", r"(\Seen)")
