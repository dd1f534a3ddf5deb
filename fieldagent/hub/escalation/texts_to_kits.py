"""Texts by mail or SMS to a kit: the name of their author, and their limits."""

from __future__ import annotations

from fieldagent.hub.access import directory
from fieldagent.hub.escalation.language import translate
from fieldagent.hub.field import cost
from fieldagent.hub.records.ledger import Posting
from fieldagent.hub.store.contract import Db
from fieldagent.package.package import Message
from fieldagent.page.language import ENGLISH

SATELLITE_BYTES = 200
"""Largest text in UTF-8 bytes for a kit without an IP link, so that it fits one satellite message.
"""
LINKED_BYTES = 2_000
"""Largest text in UTF-8 bytes for a linked kit."""
REPLIES_MAX = 12
"""Largest number of replies to one address per hour, which stops two machines from answering each
other."""


def add_voice(db: Db, workspace: int, name: str, now: float) -> int:
    """Add a member in whose name a kit sees a person's texts. The member cannot sign in."""
    return directory.add_user(db, workspace, make_voice_name(name), type_="Integration", now=now)


def make_voice_name(name: str) -> str:
    """Return the name, cut to the length of a member's name."""
    return name.encode()[: directory.NAME_BYTES_MAX].decode("utf-8", "ignore")


def find_excess(db: Db, posting: Posting, kit: int, now: float, language: str = ENGLISH) -> str:
    """Return the reason why a text cannot go to that device now, including by how much it is too
    long, or an empty string.
    """
    assert isinstance(posting.item, Message)
    size = len(posting.item.content.encode())
    for device in cost.list_costs(db, posting, now):
        over = device["satellite"]
        if device["id"] != kit:
            continue
        limit = LINKED_BYTES if device["linked"] or over is None else SATELLITE_BYTES
        if size > limit:
            text = "too long by {n} bytes of {size}. Write less."
            return translate(language, text, n=size - limit, size=size)
        left = None if device["linked"] or over is None else over["creditsLeft"]
        if left is not None and over["credits"] > left:
            text = "it costs {n} satellite credits, but only {left} are left today."
            return translate(language, text, n=over["credits"], left=left)
    return ""
