"""Names and email addresses of users. Kits address users by these names."""

from __future__ import annotations

import re

from fieldagent.hub.store.contract import Db
from fieldagent.system.wording import sentence

NAME_CHARACTERS_MAX = 80
"""Maximum number of characters of a name. A name or email address that kits get has at most as many
bytes."""


def find_name_fault(db: Db, workspace: int, name: str) -> str:
    """Return the error text if an enabled user of the workspace has the name, ignoring upper and
    lower case. Otherwise return an empty string.
    """
    rows = db.execute(
        "SELECT member.id, member.name FROM member JOIN membership ON membership.member = member.id"
        " WHERE workspace = ? AND type = 'User' AND disabled IS NULL"
        " AND (name = ? OR lower(name) = lower(?)) ORDER BY member.id LIMIT 1",
        *(workspace, name, name),
    )
    for id_, known_name in rows:
        return sentence(
            "user {id} of this workspace is called {name}, too: add, for example, the family name",
            id=id_,
            name=known_name,
        )
    return ""


def find_form_fault(name: str, email: str) -> str:
    """Return the reason why no user can have this name or this email address. The reason is empty
    if a user can have both. `email` is empty for a user without an address.
    """
    if max(len(name.encode()), len(email.encode())) > NAME_CHARACTERS_MAX:
        return sentence(
            "name and email can have {most} bytes each, because they are sent to kits",
            most=NAME_CHARACTERS_MAX,
        )
    if email and not re.fullmatch(r"[^@\s]+@[^@\s]+", email):
        return sentence(
            "email must be an address such as ada@example.org, not {email}", email=email
        )
    return ""
