"""`fieldagent hub init`, `workspace`, `user` and `audit`: who there is, and who did what."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from fieldagent.cli.ask_password import ask_password
from fieldagent.cli.hub.opened_store import committed, once, show, show_list, with_store
from fieldagent.hub.access import credentials, directory
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.records import audit
from fieldagent.hub.settings import HubSettings
from fieldagent.hub.store.contract import Db, Store
from fieldagent.hub.store.opening import is_postgres
from fieldagent.system import scrypt
from fieldagent.system.exit_codes import USAGE
from fieldagent.system.log_lines import complain


def init(given: argparse.Namespace) -> int:
    """Make the database, and the first workspace with an integration that may push to it."""

    def make(db: Db, now: float) -> int:
        if any(each["name"] != directory.SYNTHETIC for each in directory.workspaces(db)):
            raise Refused("there are workspaces already; `fieldagent hub workspace add` adds one")
        workspace = directory.add_workspace(db, given.name, now=now)
        member = directory.add_user(db, workspace, "push", type_="Integration", now=now)
        _, key = credentials.add_key(db, workspace, "push", now=now)
        _, token = credentials.add_token(db, member, "push", now=now)
        text = {"workspaceId": workspace, "sourceUserId": member, "apiKey": key, "token": token}
        return show(given, text, secret_names=("apiKey", "token"))

    def use(settings: HubSettings, store: Store) -> int:
        code = committed(store, make)
        if not is_postgres(settings.database):
            print(f"The database is {Path(settings.database).absolute()}.", file=sys.stderr)
        return code

    return with_store(given, use, upgrade=True)


def workspace_add(given: argparse.Namespace) -> int:
    """Add a workspace and print its number. Refused where another has the name."""
    return once(
        given,
        lambda db, now: show(given, {"id": directory.add_workspace(db, given.name, now=now)}),
    )


def workspace_list(given: argparse.Namespace) -> int:
    """List all workspaces of the hub."""
    return once(given, lambda db, now: show_list(given, directory.workspaces(db)))


def user_add(given: argparse.Namespace) -> int:
    """Add a user and print their number; a password is asked for, before the database is opened."""
    hashed = _new_password() if given.password else None

    def add(db: Db, now: float) -> int:
        id_ = directory.add_user(
            db,
            directory.workspace_of(db, given.workspace),
            given.name,
            type_=given.type,
            email=given.email,
            password=hashed,
            over_satellite=given.over_satellite,
            now=now,
        )
        return show(given, {"id": id_})

    return once(given, add)


def user_join(given: argparse.Namespace) -> int:
    """Make a user of another workspace a member of this one, too; they are named by their
    number. Refused where nobody has it."""

    def join(db: Db, now: float) -> int:
        workspace = directory.workspace_of(db, given.workspace)
        if not directory.is_known(db, given.user):
            raise Refused(
                f"no user has the number {given.user}: `fieldagent hub user list --workspace` with"
                " the workspace that they are in shows it"
            )
        directory.join(db, workspace, given.user, over_satellite=given.over_satellite, now=now)
        return show(given, {"id": given.user, "workspace": workspace})

    return once(given, join)


def user_leave(given: argparse.Namespace) -> int:
    """End a membership; what they sent stays."""

    def leave(db: Db, now: float) -> int:
        workspace = directory.workspace_of(db, given.workspace)
        member = directory.member_of(db, workspace, given.user)
        directory.leave(db, workspace, member, now=now)
        return show(given, {"id": member, "workspace": workspace})

    return once(given, leave)


def user_role(given: argparse.Namespace) -> int:
    """Set the role of a user in the workspace. Refused where one who is no person would be more
    than a member."""

    def change(db: Db, now: float) -> int:
        workspace = directory.workspace_of(db, given.workspace)
        member = directory.member_of(db, workspace, given.user)
        directory.set_role(db, workspace, member, given.role, now=now)
        return show(given, {"id": member, "role": given.role})

    return once(given, change)


def _new_password() -> str:
    """Ask for one, and return its hash. With an empty one everybody would be that user."""
    password = ask_password()
    if not password:
        complain("no password was given, and nothing was changed: type one, or pipe a line of it")
        raise SystemExit(USAGE)
    return scrypt.hash_password(password)


def user_password(given: argparse.Namespace) -> int:
    """Set a user's password, which is asked for before the database is opened."""
    hashed = _new_password()

    def change(db: Db, now: float) -> int:
        workspace = directory.workspace_of(db, given.workspace)
        member = directory.member_of(db, workspace, given.user)
        directory.set_password(db, member, hashed, now=now)
        return show(given, {"id": member})

    return once(given, change)


def user_list(given: argparse.Namespace) -> int:
    """List the users of a workspace, each with their role, and whether a password is set."""
    return once(
        given,
        lambda db, now: show_list(
            given, directory.users(db, directory.workspace_of(db, given.workspace))
        ),
    )


def audit_list(given: argparse.Namespace) -> int:
    """List the newest lines of the audit, without a workspace those of all."""

    def look(db: Db, now: float) -> int:
        workspace = directory.workspace_of(db, given.workspace) if given.workspace else None
        return show_list(given, audit.latest(db, given.limit, workspace))

    return once(given, look)
