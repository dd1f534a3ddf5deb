"""Parser for emails to the hub. The parser runs in a separate process, because anyone can send an
email.

The parser of the standard library takes quadratic time for some headers. So this process limits its
own CPU time and memory (`main`). It parses only the few header fields that the hub needs, at most
HEADER_MAX_BYTES bytes. The parser ignores automatic emails (RFC 3834), quotes and signatures.
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from email import message_from_bytes, policy
from email.message import EmailMessage
from email.utils import parseaddr
from html.parser import HTMLParser
from math import ceil
from typing import Any

CPU_MAX_S = 2.0
"""Seconds of CPU time for one email."""
MEMORY_MAX_BYTES = 2**29
"""Largest number of bytes of the process's address space."""
HEADER_MAX_BYTES = 16_384
"""Largest number of bytes of the header fields that are parsed."""
_NEEDED_HEADERS = frozenset(
    (
        *(b"from", b"to", b"cc", b"delivered-to", b"x-original-to", b"return-path", b"subject"),
        *(b"in-reply-to", b"references", b"auto-submitted", b"precedence"),
        *(b"mime-version", b"content-type", b"content-transfer-encoding"),
    )
)
_ID = r"([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})"
_ADDRESSED = re.compile(rf"\+{_ID}@", re.I)
_REPLY_ID = re.compile(rf"<{_ID}@", re.I)
_BULK = ("bulk", "junk", "list", "auto_reply")
_QUOTES = re.compile(
    r"^(-{2,} ?(original message|ursprüngliche nachricht|message d'origine)|_{10,}$"
    r"|(on|am|le|il|el) .{8,}(wrote|schrieb|a écrit|ha scritto|escribió).{0,200}:$"
    r"|.{8,}\b(пише|написав|написала|написав\(ла\)):$|(from|von|de|від) ?: .+@)",
    re.I,
)
"""Pattern of a line after which the text is a quote and not the author's own text."""
_SIGNATURE = "-- "
_APP_SIGNATURE = re.compile(
    r"(sent|gesendet|von|envoyé|enviado|надіслано)\b.{0,30}\b"
    r"(iphone|ipad|android|samsung|galaxy|outlook|yahoo|proton ?mail|gmail|huawei|xiaomi)\b"
    r".{0,40}$",
    re.I,
)
"""Pattern of the line that a phone's mail program adds, such as "Sent from my iPhone". Each byte to
a kit can cost money."""
_REPLY_TO = re.compile(r"^(?:\s*(?:re|aw|antw|sv|rép|rv|tr|wg|fw|fwd|від)\s*:)+", re.I)
"""Prefixes that mail programs put before a subject."""
_FROM_LINE = re.compile(r"(from|von|de|від) ?:", re.I)
_SENT_LINE = re.compile(
    r"(sent|date|gesendet|datum|envoyé( le)?|enviado( el)?|fecha|надіслано|дата) ?:", re.I
)
_ALARM = re.compile(r"[^\W\d][\w ]{1,30} [0-9]{1,18}(:| of | von | de ).")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}")
TITLE_MIN = 5
"""Smallest number of characters of a title from which the parser recognises the hub's text."""


class MailTooLarge(Exception):
    """Error: the header is larger than that of any real mail program."""


def main() -> None:
    """Parse an email from standard input, and write its answer as JSON: the members of a
    `ContactAnswer`, or null. The argument is the hub's own address.
    """
    _limit_resources()
    answer = parse_mail(sys.stdin.buffer.read(), sys.argv[1])
    json.dump(answer, sys.stdout)


def _limit_resources() -> None:
    """Limit the resources of this process. If the operating system does not allow the limits, the
    timer still applies.
    """
    signal.setitimer(signal.ITIMER_PROF, CPU_MAX_S)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CPU, (ceil(CPU_MAX_S), ceil(CPU_MAX_S) + 1))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX_BYTES, MEMORY_MAX_BYTES))
    with suppress(OSError):
        os.nice(10)


def parse_mail(raw: bytes, own_address: str) -> dict[str, Any] | None:
    """Return the sender, the text and the answered message of an email. Return None if the email is
    not an answer, or is automatic. Raises MailTooLarge.
    """
    mail: EmailMessage = message_from_bytes(_remove_other_fields(raw), policy=policy.default)
    sender = parseaddr(_read_header(mail, "From"))[1]
    # An encoded word can contain any character, even NUL, which PostgreSQL does not accept.
    is_address = bool(sender) and sender.isprintable()
    if _is_automatic(mail) or not is_address or sender == own_address:
        return None
    message_id = _find_answered(mail)
    if message_id is None:
        return None
    own_text = find_own_text(_read_text(mail), _read_header(mail, "Subject"))
    return {"sender": sender, "text": own_text, "answers": message_id}


def _remove_other_fields(raw: bytes) -> bytes:
    """Return an email that contains only the header fields that the hub needs, because relays add
    many kilobytes of other fields. Raises MailTooLarge.
    """
    end = re.search(rb"\r?\n\r?\n", raw)
    head, body = (raw[: end.start()], raw[end.start() :]) if end else (raw, b"")
    kept_lines: list[bytes] = []
    is_needed = False
    for line in head.split(b"\n"):
        if line[:1] not in (b" ", b"\t"):
            is_needed = line.partition(b":")[0].strip().lower() in _NEEDED_HEADERS
        if is_needed:
            kept_lines.append(line)
    slim = b"\n".join(kept_lines)
    if len(slim) > HEADER_MAX_BYTES:
        raise MailTooLarge(
            f"the mail's header has {len(slim)} bytes, of which {HEADER_MAX_BYTES} are read"
        )
    return slim.rstrip(b"\r") + body


def _read_header(mail: EmailMessage, name: str) -> str:
    """Return all header fields with the name `name`, joined, or an empty text if they cannot be
    parsed.
    """
    try:
        return ", ".join(str(each) for each in mail.get_all(name, []))
    except (ValueError, IndexError, AttributeError, TypeError):
        return ""


def _is_automatic(mail: EmailMessage) -> bool:
    """Return True if a machine sent the email automatically (RFC 3834, section 5, and RFC 3464)."""
    submitted = _read_header(mail, "Auto-Submitted").strip().lower()
    precedence = _read_header(mail, "Precedence").strip().lower()
    bounced = _read_header(mail, "Return-Path").strip() == "<>"
    report = mail.get_content_type() == "multipart/report"
    return submitted not in ("", "no") or precedence in _BULK or bounced or report


def _find_answered(mail: EmailMessage) -> str | None:
    for name in ("To", "Cc", "Delivered-To", "X-Original-To"):
        if match := _ADDRESSED.search(_read_header(mail, name)):
            return match[1].lower()
    for name in ("In-Reply-To", "References"):
        if ids := _REPLY_ID.findall(_read_header(mail, name)):
            return str(ids[-1]).lower()
    return None


def _read_text(mail: EmailMessage) -> str:
    try:
        part = mail.get_body(("plain", "html"))
        if part is None:
            return ""
        text = str(part.get_content())
    except (KeyError, LookupError, ValueError, AttributeError):
        return ""  # The charset is unknown.
    if part.get_content_type() != "text/html":
        return text
    reader = _Html()
    # A text such as `<![x[` makes the parser raise an error. Keep the text before it.
    with suppress(AssertionError):
        reader.feed(text)
    return "".join(reader.texts)


class _Html(HTMLParser):
    """Extracts the text of an HTML email, without quotes."""

    _BREAKS = frozenset(("br", "p", "div", "li", "tr"))
    _SKIPPED = frozenset(("blockquote", "style", "script", "head"))

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._skipping = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in self._SKIPPED:
            self._skipping += 1
            self.texts.append("\n>\n" if tag == "blockquote" else "")
        elif tag in self._BREAKS:
            self.texts.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._SKIPPED and self._skipping:
            self._skipping -= 1
            self.texts.append("\n")

    def handle_data(self, data: str) -> None:
        if not self._skipping:
            self.texts.append(data)


def find_own_text(text: str, subject: str = "") -> str:
    """Return the author's own text: the text above the quote and the signature. If that is empty,
    return the text below the quote. `subject` is the subject of the email and names the alarm.
    """
    lines = text.replace("\r\n", "\n").split("\n")
    lines = [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]
    title = _REPLY_TO.sub("", subject).strip()
    end = _find_end_of_own_text(lines, title)
    own_text = "\n".join(lines[:end]).strip()
    if own_text:
        return own_text
    quoted = (
        line_number for line_number in range(end, len(lines)) if _is_quoted(lines[line_number])
    )
    below = [line for line in lines[next(quoted, len(lines)) :] if not _is_quoted(line)]
    return "\n".join(below[: _find_end_of_own_text(below, title)]).strip()


def _find_end_of_own_text(lines: Sequence[str], title: str) -> int:
    """Return the index of the first line that the author of the mail did not write, such as a
    quotation.
    """
    for line_number, line in enumerate(lines):
        plain = line.strip("* \t")
        if _is_quoted(line) or line == _SIGNATURE or _QUOTES.match(plain):
            return line_number
        if _APP_SIGNATURE.match(plain):
            return line_number
        if _is_introduction(lines, line_number) or _is_header(lines, line_number):
            return line_number
        if _is_of_the_hub(lines, line_number, title):
            return line_number
    return len(lines)


def _is_quoted(line: str) -> bool:
    return line.lstrip().startswith(">")


def _is_header(lines: Sequence[str], place: int) -> bool:
    """Return True if a quote begins at line `place`. Such a quote begins with the sender and date
    of the quoted email.
    """
    if not _FROM_LINE.match(lines[place].strip("* \t")):
        return False
    return any(_SENT_LINE.match(line.strip("* \t")) for line in lines[place + 1 : place + 4])


def _is_of_the_hub(lines: Sequence[str], place: int, title: str) -> bool:
    """Return True if the hub's text begins at line `place`. The hub's text begins with the title of
    its email, or with a line such as `SOS 2 of kit-ada` before a line with a time.
    """
    line = lines[place].strip()
    if len(title) >= TITLE_MIN and line.startswith(title):
        return True
    next_lines = [each for each in lines[place + 1 : place + 4] if each.strip()]
    return bool(_ALARM.match(line) and next_lines and _TIME.search(next_lines[0]))


def _is_introduction(lines: Sequence[str], place: int) -> bool:
    """Return True if the line introduces a quote. Mail programs may break such a line into up to
    three lines.
    """
    for size in range(1, 4):
        block = lines[place : place + size]
        next_lines = [each for each in lines[place + size : place + size + 2] if each.strip()]
        if (
            all(block)
            and next_lines
            and _is_quoted(next_lines[0])
            and _QUOTES.match(" ".join(block))
        ):
            return True
    return False
