"""Replies by email: polls an IMAP folder (RFC 3501) and processes replies to the hub's messages.

An email is marked as seen after its content is on disk. The hub recognises a duplicate by its
content. The address of the reply (`sos+MESSAGE@…`) or the header In-Reply-To names the message that
the reply is for. Only the recipient of the message knows this name. Emails that are larger than
`MAIL_MAX` are ignored. A child process parses all other emails (`mail_reading`). The parser of the
standard library can need minutes for a malicious email of a few hundred kilobytes.
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
from fieldagent.hub.contact.contract import AnswerServices, ContactAnswer, Own
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
"""Seconds within which each step with the server must end."""
MAIL_MAX = 262_144
"""Largest number of bytes of an email. A typical text has about 200 bytes."""
AT_ONCE = 50
"""Largest number of emails per poll."""
PACKAGE_AT = Path(fieldagent.__file__).parents[1]
"""Folder or archive that contains the program."""
READ_APART = (
    f"import sys; sys.path.insert(0, {str(PACKAGE_AT)!r});"
    " from fieldagent.extensions.desk.hub.mail_reading import main; main()"
)
_LOCAL = ("localhost", "127.0.0.1", "::1")


def make_reply_address(address: str, message_id: str) -> str:
    """Return the address to which a person replies to a message: the hub's address with
    `message_id` in its local part (RFC 5233).
    """
    local, _, domain = address.rpartition("@")
    return f"{local}+{message_id}@{domain}"


def find_faults(settings: Own) -> list[str]:
    """Return the faults in the IMAP settings, such as a missing or unsafe setting."""
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
    """Bytes of the email; empty if the email is too large."""


def listen(inward: AnswerServices) -> Callable[[], Awaitable[None]] | None:
    """Return a function that polls the folder until it is cancelled. Return None if `imap-host` is
    not set.
    """
    if inward.host.own["imap-host"] is None:
        return None
    return partial(_run, inward)


async def _run(inward: AnswerServices) -> None:
    """Poll until cancelled. Log a failure once, and again when its text changes."""
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
    """Pass the answers in unseen emails to the inbox, and mark the emails as seen. Errors of the
    server and of the inbox are raised. The remaining emails then stay unseen.
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
        # Close the socket without a logout, because the server may not respond.
        connection.shutdown()


class MailUnreadable(Exception):
    """Error: the child process that parsed an email failed or exceeded its limits."""


async def _read(mail: FetchedMail, inward: AnswerServices) -> ContactAnswer | None:
    """Return the answer in an email, in the same way as `parse_in_child_process`. If the email
    cannot be parsed, return None, so that it does not block the next emails.
    """
    try:
        return (
            await parse_in_child_process(mail.raw, inward.host.own["mail-from"])
            if mail.raw
            else None
        )
    except MailUnreadable as error:
        inward.note_fault(error, f"a mail that answers no current message: uid {mail.uid.decode()}")
        return None


async def parse_in_child_process(raw: bytes, mail_from: str) -> ContactAnswer | None:
    """Return the answer in an email, or None if the email contains no answer. A child process with
    its own limits parses the email within `DEADLINE_S`. Raises MailUnreadable.
    """
    # The options -I and -S make Python ignore the environment and use only the standard library.
    command = [sys.executable, "-I", "-S", "-c", READ_APART, mail_from]
    with trio.move_on_after(DEADLINE_S):
        process = await trio.run_process(
            command, stdin=raw, capture_stdout=True, capture_stderr=True, check=False
        )
        if process.returncode:
            last = process.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2][:200]
            raise MailUnreadable(f"its reader ended by {process.returncode}: {last}")
        answer = json.loads(process.stdout)
        if answer is None:
            return None
        return ContactAnswer(KIND_NAME, hashlib.sha256(raw).hexdigest(), **answer)
    raise MailUnreadable(f"reading the mail took more than {DEADLINE_S:g} s")


async def _run_in_thread(step: Callable[[], T]) -> T:
    """Run a step in a thread. Raises trio.TooSlowError if the step takes too long. The function
    does not wait for such a thread to end.
    """
    with trio.fail_after(DEADLINE_S):
        return await trio.to_thread.run_sync(step, abandon_on_cancel=True)


def _open(settings: Own) -> imaplib.IMAP4:
    import imaplib
    import ssl

    trust, server = ssl.create_default_context(), (settings["imap-host"], settings["imap-port"])
    if settings["imap-tls"] == "tls":
        connection: imaplib.IMAP4 = imaplib.IMAP4_SSL(
            *server, ssl_context=trust, timeout=DEADLINE_S
        )
    else:
        connection = imaplib.IMAP4(*server, timeout=DEADLINE_S)
    try:
        if settings["imap-tls"] == "starttls":
            connection.starttls(trust)
        password = read_first_line(settings["imap-password-file"])
        connection.login(settings["imap-user"], password)
        state, response = connection.select(f'"{settings["imap-folder"]}"')
        if state != "OK":
            raise connection.error(f"imap-folder {settings['imap-folder']}: {response!r}")
    except BaseException:
        # A failed handshake has closed the socket already. Its error is the error to report.
        with suppress(OSError):
            connection.shutdown()
        raise
    return connection


def _fetch_unseen(connection: imaplib.IMAP4) -> list[FetchedMail]:
    _, response = connection.uid("SEARCH", "UNSEEN")
    return [_fetch(connection, uid) for uid in (response[0] or b"").split()[:AT_ONCE]]


def _fetch(connection: imaplib.IMAP4, uid: bytes) -> FetchedMail:
    number = uid.decode("ascii")
    _, response = connection.uid("FETCH", number, "(RFC822.SIZE)")
    size = re.search(rb"RFC822\.SIZE ([0-9]+)", _get_first_line(response))
    if size is None or int(size[1]) > MAIL_MAX:
        log.warning("a mail of more than %d bytes is not read: uid %s", MAIL_MAX, number)
        return FetchedMail(uid, b"")
    _, response = connection.uid("FETCH", number, "(BODY.PEEK[])")
    return FetchedMail(uid, next((part[1] for part in response if isinstance(part, tuple)), b""))


def _get_first_line(lines: list[object]) -> bytes:
    """Return the first line of the server's response."""
    first = lines[0] if lines else b""
    return first if isinstance(first, bytes) else b""


def _flag_seen(connection: imaplib.IMAP4, uid: bytes) -> None:
    connection.uid("STORE", uid.decode("ascii"), "+FLAGS", r"(\Seen)")
