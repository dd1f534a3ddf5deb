"""Names of users. Kits address users by these names."""

from __future__ import annotations

from fieldagent.hub.store.contract import Db
from fieldagent.system.sentence import sentence


def find_name_fault(db: Db, workspace: int, name: str) -> str:
    """Return a refusal if an enabled user of the workspace has the name, ignoring upper and lower
    case. Otherwise return an empty string.
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
