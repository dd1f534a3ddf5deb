"""How words that came by mail or SMS go down to a kit: by whose name, and whether they may."""

from __future__ import annotations

from fieldagent.hub.access import directory
from fieldagent.hub.escalation.language import say
from fieldagent.hub.field import cost
from fieldagent.hub.records.ledger import Posting
from fieldagent.hub.store.contract import Db
from fieldagent.package.package import Message
from fieldagent.page.language import ENGLISH

SATELLITE_BYTES = 200
"""UTF-8 bytes of words that a kit without an IP link is sent: they fit one satellite message."""
LINKED_BYTES = 2_000
"""The same of a kit that is linked."""
REPLIES_MAX = 12
"""Replies to one address in an hour: two machines that answer each other stop then."""


def add_voice(db: Db, workspace: int, name: str, now: float) -> int:
    """Add the member by whose name a kit is shown what somebody writes to it, without a way to
    sign in."""
    return directory.add_user(db, workspace, voice_name(name), type_="Integration", now=now)


def voice_name(name: str) -> str:
    """Return as much of it as a member's name takes."""
    return name.encode()[: directory.NAME_BYTES_MAX].decode("utf-8", "ignore")


def too_much(db: Db, posting: Posting, kit: int, now: float, language: str = ENGLISH) -> str:
    """Return why its words cannot go to that device now, by how much, or nothing."""
    assert isinstance(posting.item, Message)
    size = len(posting.item.content.encode())
    for device in cost.costs(db, posting, now):
        over = device["satellite"]
        if device["id"] != kit:
            continue
        limit = LINKED_BYTES if device["linked"] or over is None else SATELLITE_BYTES
        if size > limit:
            text = "too long by {n} bytes of {size}. Write less."
            return say(language, text, n=size - limit, size=size)
        left = None if device["linked"] or over is None else over["creditsLeft"]
        if left is not None and over["credits"] > left:
            text = "it takes {n} satellite credits, and today {left} are left."
            return say(language, text, n=over["credits"], left=left)
    return ""
