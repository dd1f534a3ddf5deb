"""Answers by mail: a folder is looked at by IMAP (RFC 3501), and what answers a mail of the hub is
taken in.

A mail is flagged seen once it is on disk; one that comes twice is known by its content. It answers
what its address (`sos+MESSAGE@…`) or its In-Reply-To says: only who was told knows these. What
machines send by themselves is left alone (RFC 3834), and so are quotes, signatures and what is
larger than MAIL_MAX.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from html.parser import HTMLParser
from typing import TYPE_CHECKING, TypeVar

import trio

from fieldagent.hub.escalation.contract import ContactAnswer, Inward, Own
from fieldagent.store.group import StoreUnavailable
from fieldagent.system import waits
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.text_files import first_line
from fieldagent.system.wording import reason_of

if TYPE_CHECKING:
    import imaplib
    from email.message import EmailMessage

log = logging.getLogger(__name__)

T = TypeVar("T")

KIND_NAME = "email"
DEADLINE = 30.0
"""Seconds for each step with the server."""
MAIL_MAX = 262_144
"""Bytes of a mail that is read: its words have 200."""
AT_ONCE = 50
"""Mails of one look."""
_LOCAL = ("localhost", "127.0.0.1", "::1")
_ID = r"([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})"
_ADDRESSED = re.compile(rf"\+{_ID}@", re.I)
_REPLIED = re.compile(rf"<{_ID}@", re.I)
_BULK = ("bulk", "junk", "list", "auto_reply")
_QUOTES = re.compile(
    r"^(-{2,} ?(original message|ursprüngliche nachricht|message d'origine)|_{10,}$|-- $"
    r"|(on|am|le|il|el) .{8,}(wrote|schrieb|a écrit|ha scritto|escribió).{0,200}:$"
    r"|.{8,}\b(пише|написав|написала|написав\(ла\)):$|(from|von|de|від) ?: .+@)",
    re.I,
)
"""A line from which on a mail is not its writer's words."""


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
            answer = _read(mail, inward)
            if answer is not None:
                await inward.inbox.take(answer)
            await _in_thread(partial(_flag_seen, connection, mail.uid))
    finally:
        # Its socket is closed without a word to a server that may hang.
        connection.shutdown()


def _read(mail: Fetched, inward: Inward) -> ContactAnswer | None:
    """As `read`. One at which the library's reading fails must not keep back those behind it."""
    try:
        return read(mail.raw, inward.host.own) if mail.raw else None
    except Exception as error:
        inward.note_fault(error, f"a mail that answers nothing now: uid {mail.uid.decode()}")
        return None


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


def read(raw: bytes, own: Own) -> ContactAnswer | None:
    """Return the answer that a mail is; None where it is none, or a machine's."""
    from email import message_from_bytes, policy
    from email.utils import parseaddr

    mail: EmailMessage = message_from_bytes(raw, policy=policy.default)
    sender = parseaddr(_header(mail, "From"))[1]
    # Of an encoded word it may hold anything, also a NUL, which PostgreSQL does not take.
    is_address = bool(sender) and sender.isprintable()
    if _is_automatic(mail) or not is_address or sender == own["mail-from"]:
        return None
    message_id = _answers(mail)
    if message_id is None:
        return None
    words = words_of(_text(mail))
    return ContactAnswer(KIND_NAME, hashlib.sha256(raw).hexdigest(), sender, words, message_id)


def _header(mail: EmailMessage, name: str) -> str:
    """Return all fields of that name; strangers wrote them, and some cannot be read."""
    try:
        return ", ".join(str(each) for each in mail.get_all(name, []))
    except (ValueError, IndexError, AttributeError, TypeError):
        return ""


def _is_automatic(mail: EmailMessage) -> bool:
    """Return whether a machine sent it by itself (RFC 3834, 5; RFC 3464)."""
    submitted = _header(mail, "Auto-Submitted").strip().lower()
    precedence = _header(mail, "Precedence").strip().lower()
    bounced = _header(mail, "Return-Path").strip() == "<>"
    report = mail.get_content_type() == "multipart/report"
    return submitted not in ("", "no") or precedence in _BULK or bounced or report


def _answers(mail: EmailMessage) -> str | None:
    for name in ("To", "Cc", "Delivered-To", "X-Original-To"):
        if match := _ADDRESSED.search(_header(mail, name)):
            return match[1].lower()
    for name in ("In-Reply-To", "References"):
        if ids := _REPLIED.findall(_header(mail, name)):
            return str(ids[-1]).lower()
    return None


def _text(mail: EmailMessage) -> str:
    try:
        part = mail.get_body(("plain", "html"))
        if part is None:
            return ""
        text = str(part.get_content())
    except (KeyError, LookupError, ValueError, AttributeError):
        return ""  # a coding that nobody knows
    if part.get_content_type() != "text/html":
        return text
    reader = _Html()
    with suppress(AssertionError):  # `<![x[`: what stands before it counts
        reader.feed(text)
    return "".join(reader.texts)


class _Html(HTMLParser):
    """Reads the text of a mail in HTML, without what it quotes."""

    _BREAKS = frozenset(("br", "p", "div", "li", "tr"))
    _SKIPPED = frozenset(("blockquote", "style", "script", "head"))

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._skipping = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in self._SKIPPED:
            self._skipping += 1
        elif tag in self._BREAKS:
            self.texts.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._SKIPPED and self._skipping:
            self._skipping -= 1

    def handle_data(self, data: str) -> None:
        if not self._skipping:
            self.texts.append(data)


def words_of(text: str) -> str:
    """Return what stands before the quote and the signature."""
    return "\n".join(_own_lines(text.replace("\r\n", "\n").split("\n"))).strip()


def _own_lines(lines: list[str]) -> Iterator[str]:
    for place, line in enumerate(lines):
        if line.startswith(">") or _QUOTES.match(line):
            return
        if _introduces(lines, place):
            return
        yield line


def _introduces(lines: list[str], place: int) -> bool:
    """Return whether the quote is introduced from that line on: in up to three lines, which a mail
    program has broken one into."""
    for size in range(1, 4):
        block = lines[place : place + size]
        behind = [each for each in lines[place + size : place + size + 2] if each.strip()]
        if all(block) and behind and behind[0].startswith(">") and _QUOTES.match(" ".join(block)):
            return True
    return False
