"""`fieldagent hub init`, `workspace`, `user` and `audit`: workspaces and users, and the
audit log.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from urllib.parse import urlencode

from fieldagent.cli.ask_password import ask_password
from fieldagent.cli.hub.opened_store import committed, once, show, show_list, with_store
from fieldagent.hub.access import credentials, directory, secret
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.records import audit
from fieldagent.hub.settings import HubSettings
from fieldagent.hub.store.contract import Db, Store
from fieldagent.hub.store.opening import is_postgres
from fieldagent.system import scrypt
from fieldagent.system.exit_codes import OK, USAGE
from fieldagent.system.log_lines import complain


def init(arguments: argparse.Namespace) -> int:
    """Make the database, and the first workspace with an integration that may push to it, and with
    an administrator if one is named. With --once do nothing if a workspace exists.
    """
    password = secret.new_password() if arguments.administrator else ""
    hashed = scrypt.hash_password(password) if password else None

    def make(db: Db, now: float, console: str) -> int:
        if any(each["name"] != directory.SYNTHETIC for each in directory.workspaces(db)):
            if arguments.once:
                return OK
            raise Refused(
                "a workspace already exists; add another with `fieldagent hub workspace add`"
            )
        workspace = directory.add_workspace(db, arguments.name, now=now)
        member = directory.add_user(db, workspace, "push", type_="Integration", now=now)
        _, key = credentials.add_key(db, workspace, "push", now=now)
        _, token = credentials.add_token(db, member, "push", now=now)
        text = {"workspaceId": workspace, "sourceUserId": member, "apiKey": key, "token": token}
        if email := arguments.administrator:
            until = now + directory.ONE_TIME_LIFETIME_S
            first = directory.add_user(
                db, workspace, email, email=email, password=hashed, until=until, now=now
            )
            directory.set_role(db, workspace, first, "administrator", now=now)
            named = urlencode({"username": email, "password": password})
            text["signIn"] = f"{console}/console#{named}"
        return show(arguments, text, secret_names=("apiKey", "token"))

    def use(settings: HubSettings, store: Store) -> int:
        console = settings.console_address or f"http://127.0.0.1:{settings.port}"
        code = committed(store, lambda db, now: make(db, now, console))
        if not is_postgres(settings.database):
            print(f"The database is {Path(settings.database).absolute()}.", file=sys.stderr)
        return code

    return with_store(arguments, use, upgrade=True, create=True)


def workspace_add(arguments: argparse.Namespace) -> int:
    """Add a workspace and print its number. Refused if another one has the name."""
    return once(
        arguments,
        lambda db, now: show(
            arguments, {"id": directory.add_workspace(db, arguments.name, now=now)}
        ),
    )


def workspace_list(arguments: argparse.Namespace) -> int:
    """List all workspaces of the hub."""
    return once(arguments, lambda db, now: show_list(arguments, directory.workspaces(db)))


def user_add(arguments: argparse.Namespace) -> int:
    """Add a user and print their number. Asks for a password before the database is opened."""
    hashed = _new_password() if arguments.password else None

    def add(db: Db, now: float) -> int:
        id_ = directory.add_user(
            db,
            directory.workspace_of(db, arguments.workspace),
            arguments.name,
            type_=arguments.type,
            email=arguments.email,
            password=hashed,
            over_satellite=arguments.over_satellite,
            now=now,
        )
        return show(arguments, {"id": id_})

    return once(arguments, add)


def user_join(arguments: argparse.Namespace) -> int:
    """Add a user of another workspace, by their number, as a member of this one, too. Refused if
    the number does not exist.
    """

    def join(db: Db, now: float) -> int:
        workspace = directory.workspace_of(db, arguments.workspace)
        if not directory.is_known(db, arguments.user):
            raise Refused(
                f"no user has the number {arguments.user}: see `fieldagent hub user list"
                " --workspace WORKSPACE`"
            )
        directory.join(
            db, workspace, arguments.user, over_satellite=arguments.over_satellite, now=now
        )
        return show(arguments, {"id": arguments.user, "workspace": workspace})

    return once(arguments, join)


def user_leave(arguments: argparse.Namespace) -> int:
    """End a membership. Items that the member sent stay."""

    def leave(db: Db, now: float) -> int:
        workspace = directory.workspace_of(db, arguments.workspace)
        member = directory.member_of(db, workspace, arguments.user)
        directory.leave(db, workspace, member, now=now)
        return show(arguments, {"id": member, "workspace": workspace})

    return once(arguments, leave)


def user_role(arguments: argparse.Namespace) -> int:
    """Set the role of a user in the workspace. Refused if a user that is not a person would become
    more than a member.
    """

    def change(db: Db, now: float) -> int:
        workspace = directory.workspace_of(db, arguments.workspace)
        member = directory.member_of(db, workspace, arguments.user)
        directory.set_role(db, workspace, member, arguments.role, now=now)
        return show(arguments, {"id": member, "role": arguments.role})

    return once(arguments, change)


def _new_password() -> str:
    """Ask for a password, and return its hash. With an empty password, anyone could sign in as the
    user.
    """
    password = ask_password()
    if not password:
        complain(
            "nothing was changed, because the password is empty: type one, or pipe it as one line"
        )
        raise SystemExit(USAGE)
    return scrypt.hash_password(password)


def user_password(arguments: argparse.Namespace) -> int:
    """Set a user's password. Asks for it before the database is opened."""
    hashed = _new_password()

    def change(db: Db, now: float) -> int:
        workspace = directory.workspace_of(db, arguments.workspace)
        member = directory.member_of(db, workspace, arguments.user)
        directory.set_password(db, member, hashed, now=now)
        return show(arguments, {"id": member})

    return once(arguments, change)


def user_list(arguments: argparse.Namespace) -> int:
    """List the users of a workspace with their role, and if a password is set."""
    return once(
        arguments,
        lambda db, now: show_list(
            arguments, directory.users(db, directory.workspace_of(db, arguments.workspace))
        ),
    )


def audit_list(arguments: argparse.Namespace) -> int:
    """List the newest lines of the audit log, without a workspace those of all."""

    def look(db: Db, now: float) -> int:
        workspace = directory.workspace_of(db, arguments.workspace) if arguments.workspace else None
        return show_list(arguments, audit.latest(db, arguments.limit, workspace))

    return once(arguments, look)
