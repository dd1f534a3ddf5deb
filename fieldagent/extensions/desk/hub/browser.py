"""Contact kind for a dispatcher's browser, which shows a web push notification even if the console
is closed. The contact's address is the JSON of the push subscription.
"""

from __future__ import annotations

import re

from fieldagent.hub.contact.contract import ContactHost, ContactKind, Notice, Send
from fieldagent.hub.records.alarm import PUSH
from fieldagent.hub.records.stored_entry import DAMAGED_ROW, load_stored_object
from fieldagent.system.wording import sentence
from fieldagent.webhook.delivery import HandoverOutcome, HandoverResult

NO_PUSH = sentence(
    "web push needs the package cryptography on the hub: apt install python3-cryptography"
)

NO_SUBJECT = sentence(
    "a push service needs an address of the hub's operator: set console-address or mail-from in"
    " the hub's settings"
)
_LOCAL = re.compile(r"https://(localhost|127\.|\[::1\])")


def find_subject(desk: str, mail_from: str | None) -> str:
    """Return the address at which push services can reach the hub's operator (RFC 8292, section
    2.1), or an empty text if none is configured. Apple's service refuses an address on this
    machine.
    """
    if desk.startswith("https://") and not _LOCAL.match(desk):
        return desk
    return f"mailto:{mail_from}" if mail_from else ""


def _make_sender(host: ContactHost) -> Send:
    subject = find_subject(host.desk, host.own["mail-from"])

    async def send(address: str, notice: Notice) -> HandoverResult:
        if not subject:
            return HandoverResult(HandoverOutcome.FAILED, NO_SUBJECT)
        try:
            from fieldagent.extensions.desk.hub import web_push
        except ImportError:
            return HandoverResult(HandoverOutcome.FAILED, NO_PUSH)
        return await web_push.send(
            address,
            notice,
            key=await host.store.commit(web_push.read_hub_key),
            subject=subject,
            clock=host.clock,
            open_stream=host.open_stream,
        )

    return send


def find_endpoint(address: str) -> str:
    """Return the push endpoint of a browser, or an empty text if its subscription is damaged."""
    endpoint = load_stored_object(address, "the address of a browser").get("endpoint")
    return endpoint if isinstance(endpoint, str) else ""


def _get_host(address: str) -> str:
    """Return only the host of the endpoint, because the rest is a secret of the browser."""
    endpoint = find_endpoint(address)
    if not endpoint:
        return DAMAGED_ROW
    scheme, _, rest = endpoint.partition("://")
    return f"{scheme}://{rest.partition('/')[0].rpartition('@')[2]}"


KIND = ContactKind(
    PUSH, "by web push", "the push service", sender=_make_sender, shown=_get_host, signs_in=True
)
