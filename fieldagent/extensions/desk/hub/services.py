"""Contact kind for about a hundred telephone and pager services, through the library `apprise`
(extra `apprise`).
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import trio

from fieldagent.hub.contact.contract import ContactKind, Notice
from fieldagent.system.wording import sentence
from fieldagent.webhook.delivery import HandoverOutcome, HandoverResult

DEADLINE_S = 30.0
"""Seconds within which the service must accept one message."""
MISSING = sentence("apprise is not installed on the hub: apt install apprise")


def find_fault(address: str) -> str:
    """Return the reason why apprise cannot use this address, or an empty string."""
    try:
        import apprise
    except ImportError:
        return MISSING
    if apprise.Apprise().add(address):
        return ""
    return sentence(
        "apprise does not know this form of address; see https://appriseit.com/services/"
    )


async def send(address: str, notice: Notice) -> HandoverResult:
    """Send a notice to the service. Success does not mean that a person has read the notice."""
    with trio.move_on_after(DEADLINE_S):
        return await trio.to_thread.run_sync(
            partial(_send, address, notice), abandon_on_cancel=True
        )
    return HandoverResult(HandoverOutcome.FAILED, f"no answer of the service in {DEADLINE_S:g} s")


def _send(address: str, notice: Notice) -> HandoverResult:
    if fault := find_fault(address):
        return HandoverResult(HandoverOutcome.FAILED, fault)
    import apprise

    service = apprise.Apprise()
    service.add(address)
    capture: Any = apprise.LogCapture
    with capture(level=logging.WARNING) as output:
        is_taken = bool(service.notify(title=notice.subject, body=notice.text))
    if is_taken:
        return HandoverResult(HandoverOutcome.HANDED)
    # The log lines of apprise contain the service and the status, but no secret of the address.
    lines = [line.partition(" - ")[2] or line for line in output.getvalue().splitlines()]
    reason = lines[-1] if lines else "the service did not accept the message"
    return HandoverResult(HandoverOutcome.FAILED, reason[:300])


def _get_service(address: str) -> str:
    """Return only the name of the service, because the rest of the address contains passwords."""
    return f"{address.partition('://')[0]}://…"


KIND = ContactKind(
    "apprise",
    "by apprise",
    "the service",
    sender=lambda host: send,
    shown=_get_service,
    form="a URL of apprise",
    is_one=lambda address: "://" in address,
    fault_of=find_fault,
    at_the_machine=sentence(
        "is not accepted here, because apprise connects to any address: add it on the hub's"
        " machine with `fieldagent hub contact add`"
    ),
)
