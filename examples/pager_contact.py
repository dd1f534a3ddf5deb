"""A kind of contact for pagers: each notice becomes a file, which the program of a POCSAG
transmitter sends. The example of docs/how-to/add-an-operator.md.

Python must find this module. In `hub.properties`:

    contacts=pager_contact:KIND
    pager-folder=/srv/pager
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import trio

from fieldagent.hub.contact.contract import ContactHost, ContactKind, Notice, Own, Send
from fieldagent.system.folder import replace_file
from fieldagent.system.properties import Key, read_absolute_path
from fieldagent.system.wording import describe_reason
from fieldagent.webhook.delivery import HandoverOutcome, HandoverResult

ADDRESS = re.compile("pager:[0-9]{1,7}")
TEXT_MAX = 240
"""Characters that a pager shows."""


def missing(own: Own) -> str:
    """Return the reason, with the fix, why pagers cannot be notified. Return an empty string if
    they can.
    """
    return "" if own["pager-folder"] else "no transmitter: set pager-folder in the hub's settings"


def sender(host: ContactHost) -> Send:
    """Return a function that writes a notice as a file for the transmitter."""

    async def send(address: str, notice: Notice) -> HandoverResult:
        if fault := missing(host.own):
            return HandoverResult(HandoverOutcome.FAILED, fault)
        folder: Path = host.own["pager-folder"]
        number = address.removeprefix("pager:")
        body = json.dumps({"pager": int(number), "text": notice.text[:TEXT_MAX]}).encode()
        # A repeat of the same notice replaces its file.
        file = folder / f"{number}-{notice.message_id}.json"
        try:
            await trio.to_thread.run_sync(replace_file, file, body)
        except OSError as error:
            return HandoverResult(HandoverOutcome.FAILED, f"pager-folder: {describe_reason(error)}")
        return HandoverResult(HandoverOutcome.HANDED)

    return send


KIND = ContactKind(
    "pager",
    "by pager",
    "the pager transmitter",
    sender=sender,
    shown=lambda address: address,
    form="the number of a pager, such as pager:1234567",
    is_one=lambda address: ADDRESS.fullmatch(address) is not None,
    keys=(Key("pager-folder", read_absolute_path, None, "folder of the notices for pagers"),),
    examples={"pager-folder": "/srv/pager"},
    missing=missing,
)
