"""Texts that people send to a kit by email or SMS: the name of their author, and their limits."""

from __future__ import annotations

from fieldagent.hub.access import directory
from fieldagent.hub.access.user_names import NAME_CHARACTERS_MAX
from fieldagent.hub.field import cost
from fieldagent.hub.records.ledger import Posting
from fieldagent.hub.store.contract import Db
from fieldagent.package.package import Message
from fieldagent.system.wording import sentence

SATELLITE_BYTES = 200
"""Largest size of a text in UTF-8 bytes for a kit without an IP link. Such a text fits into one
satellite message."""
LINKED_BYTES = 2_000
"""Largest size of a text in UTF-8 bytes for a linked kit."""
REPLIES_MAX = 12
"""Largest number of replies to one address per hour. The limit stops two machines that reply to
each other."""


def add_text_author(db: Db, workspace: int, name: str, now: float) -> int:
    """Add a member that kits show as the author of a person's texts. The member cannot sign in."""
    return directory.add_user(db, workspace, make_author_name(name), type_="Integration", now=now)


def make_author_name(name: str) -> str:
    """Return the name of the member that kits show as the author of a person's texts: `name`,
    shortened if it is too long for a member.
    """
    return name[:NAME_CHARACTERS_MAX]


def find_excess(db: Db, posting: Posting, kit: int, now: float) -> str:
    """Return the reason why a text cannot be sent to a device now, or an empty string. If the text
    is too long, the reason contains the excess length.
    """
    assert isinstance(posting.item, Message)
    size = len(posting.item.content.encode())
    for device in cost.list_costs(db, posting, now):
        over_satellite = device["satellite"]
        if device["id"] != kit:
            continue
        limit = LINKED_BYTES if device["linked"] or over_satellite is None else SATELLITE_BYTES
        if size > limit:
            return sentence(
                "too long by {n} bytes of {size}. Write less.", n=size - limit, size=size
            )
        credits_left = (
            None if device["linked"] or over_satellite is None else over_satellite["creditsLeft"]
        )
        if credits_left is not None and over_satellite["credits"] > credits_left:
            return sentence(
                "it costs {n} satellite credits, but only {left} are left today.",
                n=over_satellite["credits"],
                left=credits_left,
            )
    return ""
