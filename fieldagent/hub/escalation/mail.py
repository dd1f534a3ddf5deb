"""E-mail by SMTP submission (RFC 6409) to the relay that the settings name."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from fieldagent.hub.escalation.contract import ContactKind
from fieldagent.hub.escalation.notice import Notice
from fieldagent.hub.settings import MAIL, HubSettings
from fieldagent.system.wording import reason_of
from fieldagent.webhook.delivery import HandoverOutcome, HandoverResult

if TYPE_CHECKING:
    from email.message import EmailMessage

DEADLINE = 30.0
"""Seconds for one mail."""
NO_RELAY = "set smtp-host in the hub's settings: mail has no relay to go by"


async def send(settings: HubSettings, address: str, notice: Notice) -> HandoverResult:
    """Hand it to the relay. That it took it says nothing of who has read it."""
    if settings.smtp_host is None:
        return HandoverResult(HandoverOutcome.FAILED, NO_RELAY)
    # smtplib blocks, so it has a thread; one that hangs is left behind at the deadline.
    with trio.move_on_after(DEADLINE):
        return await trio.to_thread.run_sync(
            partial(_send, settings, address, notice), abandon_on_cancel=True
        )
    reason = f"the mail relay {settings.smtp_host} did not take it within {DEADLINE:g} s"
    return HandoverResult(HandoverOutcome.FAILED, reason)


def _send(settings: HubSettings, address: str, notice: Notice) -> HandoverResult:
    import smtplib  # mail goes out now and then: it takes 2 MB
    import ssl

    host, port = settings.smtp_host or "", settings.smtp_port
    try:
        trust = ssl.create_default_context()
        if settings.smtp_tls == "tls":
            relay: smtplib.SMTP = smtplib.SMTP_SSL(host, port, timeout=DEADLINE, context=trust)
        else:
            relay = smtplib.SMTP(host, port, timeout=DEADLINE)
        with relay:
            if settings.smtp_tls == "starttls":
                relay.starttls(context=trust)
            if settings.smtp_user is not None:
                relay.login(settings.smtp_user, password_in(settings.smtp_password_file))
            relay.send_message(_written(settings.mail_from or "", address, notice))
    except smtplib.SMTPRecipientsRefused as error:
        code, text = next(iter(error.recipients.values()))
        return _refused(host, code, text, "correct the contact's address")
    except smtplib.SMTPResponseException as error:
        return _refused(host, error.smtp_code, error.smtp_error, "correct smtp-… in the settings")
    except (OSError, smtplib.SMTPException) as error:
        return HandoverResult(HandoverOutcome.FAILED, f"the mail relay {host}: {reason_of(error)}")
    return HandoverResult(HandoverOutcome.HANDED)


def _refused(host: str, code: int, text: bytes | str, remedy: str) -> HandoverResult:
    said = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    reason = f"the mail relay {host} answered {code} {said[:200]}"
    return HandoverResult(HandoverOutcome.FAILED, f"{reason}; {remedy}" if code >= 500 else reason)


def password_in(path: Path | None) -> str:
    """Return the first line of the file. Raises OSError."""
    return "" if path is None else path.read_text().partition("\n")[0]


def _written(sender: str, address: str, notice: Notice) -> EmailMessage:
    """RFC 5322; RFC 3834 tells machines not to answer it."""
    from email.message import EmailMessage
    from email.utils import formatdate

    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = sender, address, notice.subject
    mail["Message-ID"] = f"<{notice.message_id}@{sender.rpartition('@')[2].rstrip('>')}>"
    mail["Date"] = formatdate()
    mail["Auto-Submitted"] = "auto-generated"
    mail["Importance"] = "high"
    mail.set_content(notice.text)
    return mail


KIND = ContactKind(
    "email",
    "by e-mail",
    "the mail relay",
    sender=lambda host: partial(send, host.settings),
    shown=str,
    form="an e-mail address",
    is_one=lambda address: MAIL.fullmatch(address) is not None,
)
