"""Contact kind for email, which is sent by SMTP submission (RFC 6409) to the configured relay.
Replies arrive by IMAP.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from fieldagent.extensions.desk.hub import imap
from fieldagent.extensions.desk.hub.language import translate
from fieldagent.hub.contact.contract import ContactKind, Notice, Own
from fieldagent.system.properties import (
    Key,
    WrongProperty,
    make_choice_reader,
    make_integer_reader,
    read_absolute_path,
    read_text,
)
from fieldagent.system.text_files import read_first_line
from fieldagent.system.wording import describe_reason, sentence
from fieldagent.webhook.delivery import HandoverOutcome, HandoverResult

if TYPE_CHECKING:
    from email.message import EmailMessage

DEADLINE_S = 30.0
"""Seconds within which the relay must accept one email."""
MAIL = re.compile(r"[!#-'*+./0-9=?A-Z^_`a-z{|}~-]+@[A-Za-z0-9.-]+")
"""Email address (RFC 5321, section 4.1.2), without quoted parts."""
NO_RELAY = "no mail relay: set smtp-host in the hub's settings"


async def send(settings: Own, address: str, notice: Notice) -> HandoverResult:
    """Send an email to the relay. Success does not mean that a person has read the email."""
    if settings["smtp-host"] is None:
        return HandoverResult(HandoverOutcome.FAILED, NO_RELAY)
    # smtplib blocks, so it runs in a thread. After the deadline, the hub no longer waits for the
    # thread.
    with trio.move_on_after(DEADLINE_S):
        return await trio.to_thread.run_sync(
            partial(_send, settings, address, notice), abandon_on_cancel=True
        )
    relay = settings["smtp-host"]
    reason = f"the mail relay {relay} did not accept the mail within {DEADLINE_S:g} s"
    return HandoverResult(HandoverOutcome.FAILED, reason)


def _send(settings: Own, address: str, notice: Notice) -> HandoverResult:
    import smtplib  # Import smtplib only here, because mail is rare and the module takes 2 MB.
    import ssl

    host, port = settings["smtp-host"] or "", settings["smtp-port"]
    try:
        trust = ssl.create_default_context()
        if settings["smtp-tls"] == "tls":
            relay: smtplib.SMTP = smtplib.SMTP_SSL(host, port, timeout=DEADLINE_S, context=trust)
        else:
            relay = smtplib.SMTP(host, port, timeout=DEADLINE_S)
        with relay:
            if settings["smtp-tls"] == "starttls":
                relay.starttls(context=trust)
            if settings["smtp-user"] is not None:
                relay.login(settings["smtp-user"], _read_password(settings["smtp-password-file"]))
            relay.send_message(_make_mail(settings, address, notice))
    except smtplib.SMTPRecipientsRefused as error:
        code, text = next(iter(error.recipients.values()))
        return _make_refused(host, code, text, "correct the contact's address")
    except smtplib.SMTPResponseException as error:
        return _make_refused(
            host, error.smtp_code, error.smtp_error, "correct smtp-… in the settings"
        )
    except (OSError, smtplib.SMTPException) as error:
        return HandoverResult(
            HandoverOutcome.FAILED, f"the mail relay {host}: {describe_reason(error)}"
        )
    return HandoverResult(HandoverOutcome.HANDED)


def _make_refused(host: str, code: int, text: bytes | str, remedy: str) -> HandoverResult:
    error_text = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    reason = f"the mail relay {host} answered {code} {error_text[:200]}"
    return HandoverResult(HandoverOutcome.FAILED, f"{reason}; {remedy}" if code >= 500 else reason)


def _read_password(path: Path | None) -> str:
    """Return the first line of the file, which is the password, or '' if `path` is None. Raises
    OSError.
    """
    return "" if path is None else read_first_line(path)


def _make_mail(settings: Own, address: str, notice: Notice) -> EmailMessage:
    """Return the email (RFC 5322). It is marked so that machines do not reply to it (RFC 3834). The
    hub recognises a person's reply by the reply's address or its header In-Reply-To.
    """
    from email.message import EmailMessage
    from email.utils import formatdate

    sender, mail = settings["mail-from"] or "", EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = sender, address, notice.subject
    mail["Message-ID"] = f"<{notice.message_id}@{sender.rpartition('@')[2]}>"
    mail["Date"] = formatdate()
    mail["Auto-Submitted"] = "auto-generated"
    mail["Importance"] = "high"
    # Requests to webhooks have the same headers. Mail programs can sort emails by them.
    if notice.alarm:
        mail["fieldagent-alarm"] = notice.alarm
    elif notice.sos:
        mail["fieldagent-sos"] = "1"
    answers = ""
    if (notice.sos or notice.answers) and settings["imap-host"] is not None:
        mail["Reply-To"] = imap.make_reply_address(
            settings["imap-address"] or sender, notice.message_id
        )
        answers = f"\n{_describe_answer_ways(notice.language)}\n" if notice.link else ""
    mail.set_content(notice.text + answers)
    mail["Content-Language"] = notice.language
    return mail


def _describe_answer_ways(language: str) -> str:
    instructions = (
        "Or reply to this mail: start with OK to take over. Any other short text goes to the kit."
    )
    return translate(language, instructions)


def check_mail_address(value: str) -> str:
    """Return `value` unchanged if it is an email address. Raises WrongProperty otherwise."""
    if not MAIL.fullmatch(value):
        raise WrongProperty(
            sentence(
                "must be an e-mail address such as sos@example.org, not {value}", value=repr(value)
            )
        )
    return value


def _find_faults(settings: Own) -> list[str]:
    faults = imap.find_faults(settings)
    if settings["smtp-tls"] == "none" and settings["smtp-user"]:
        faults.append(
            "smtp-tls=none would send the password readable: set starttls or tls, or remove"
            " smtp-user"
        )
    return faults


KEYS = (
    Key(
        "smtp-host",
        read_text,
        None,
        "mail relay for e-mail to contacts: smtp.example.org",
    ),
    Key("smtp-port", make_integer_reader(1, 65535, "port"), 587, "port of the mail relay (587)"),
    Key(
        "smtp-tls",
        make_choice_reader("starttls", "tls", "none"),
        "starttls",
        "starttls, tls (TLS from the first byte, port 465), or none, for a relay on this"
        " machine (starttls)",
    ),
    Key("smtp-user", read_text, None, "account at the relay"),
    Key(
        "smtp-password-file",
        read_absolute_path,
        None,
        "file with the password of that account in its first line",
    ),
    Key("mail-from", check_mail_address, None, "sender address of the hub's mail: sos@example.org"),
    Key("imap-host", read_text, None, "IMAP server for answers to the hub's mail"),
    Key("imap-port", make_integer_reader(1, 65535, "port"), 993, "port of the IMAP server (993)"),
    Key(
        "imap-tls",
        make_choice_reader("tls", "starttls", "none"),
        "tls",
        "tls (TLS from the first byte), starttls (port 143), or none, for a server on this"
        " machine (tls)",
    ),
    Key("imap-user", read_text, None, "account at the IMAP server"),
    Key(
        "imap-password-file",
        read_absolute_path,
        None,
        "file with the password of that account in its first line",
    ),
    Key("imap-folder", read_text, "INBOX", "folder with the answers (INBOX)"),
    Key(
        "imap-seconds",
        make_integer_reader(5, 3_600, "seconds"),
        30,
        "seconds between two checks (30)",
    ),
    Key(
        "imap-address",
        check_mail_address,
        None,
        "address for answers, to which +TOKEN before the @ is added; your mail server must put"
        " all of these in one folder (mail-from)",
    ),
)


KIND = ContactKind(
    "email",
    "by e-mail",
    "the mail relay",
    sender=lambda host: partial(send, host.own),
    shown=str,
    form="an e-mail address",
    is_one=lambda address: MAIL.fullmatch(address) is not None,
    keys=KEYS,
    examples={
        "smtp-host": "smtp.example.org",
        "smtp-user": "sos@example.org",
        "smtp-password-file": "/etc/fieldagent/smtp-password",
        "mail-from": "sos@example.org",
        "imap-host": "imap.example.org",
        "imap-user": "sos@example.org",
        "imap-password-file": "/etc/fieldagent/imap-password",
        "imap-address": "sos@example.org",
    },
    together=(
        ("smtp-host", "mail-from"),
        ("smtp-user", "smtp-password-file"),
        ("imap-user", "imap-password-file"),
    ),
    faults=_find_faults,
    missing=lambda own: NO_RELAY if own["smtp-host"] is None else "",
    is_answered=lambda host: host.own["imap-host"] is not None,
    listen=imap.listen,
)
