"""A mail relay for tests, made with aiosmtpd. It records mails and answers with the codes that the
test sets.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any

import pytest

from tests.processes import free_port, until


class Relay:
    def __init__(self) -> None:
        self.port = 0
        self.answers: list[str] = []
        """Answers to the next mails in order. Afterwards it accepts them."""
        self.taken: list[EmailMessage] = []
        self.logins: list[tuple[str, str]] = []

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802
        if self.answers:
            return self.answers.pop(0)
        self.taken.append(message_from_bytes(envelope.content, policy=policy.default))
        return "250 taken"

    def authenticate(
        self, server: Any, session: Any, envelope: Any, how: str, credentials: Any
    ) -> Any:
        from aiosmtpd.smtp import AuthResult

        self.logins.append((credentials.login.decode(), credentials.password.decode()))
        return AuthResult(success=True)

    def mail(self, number: int = 1) -> EmailMessage:
        """Wait until `number` mails have arrived, and return the last of them."""
        until(lambda: len(self.taken) >= number)
        return self.taken[number - 1]

    @property
    def settings(self) -> dict[str, str]:
        return {
            "smtp-host": "127.0.0.1",
            "smtp-port": str(self.port),
            "smtp-tls": "none",
            "mail-from": "sos@example.org",
        }


@contextmanager
def mail_relay(tls: ssl.SSLContext | None = None) -> Iterator[Relay]:
    """Yield a relay. With `tls`, it requires STARTTLS and a password."""
    controller = pytest.importorskip("aiosmtpd.controller", reason="needs extra `test`")
    relay = Relay()
    relay.port = free_port()
    how: dict[str, Any] = {}
    if tls is not None:
        how = {
            "tls_context": tls,
            "require_starttls": True,
            "auth_required": True,
            "authenticator": relay.authenticate,
        }
    running = controller.Controller(relay, hostname="127.0.0.1", port=relay.port, **how)
    running.start()
    try:
        yield relay
    finally:
        running.stop()
