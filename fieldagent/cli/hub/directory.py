"""`fieldagent hub init`, `workspace`, `user` and `audit`: workspaces and users, and the
audit log.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from urllib.parse import urlencode

from fieldagent.cli.ask_password import ask_password
from fieldagent.cli.hub.opened_store import (
    Call,
    Result,
    commit_and_print,
    make_transaction,
    run_with_store,
    show,
)
from fieldagent.hub.access import credentials, directory, secret
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.records import audit
from fieldagent.hub.settings import HubSettings
from fieldagent.hub.store.contract import Db, Store
from fieldagent.hub.store.opening import is_postgres
from fieldagent.system import scrypt
from fieldagent.system.exit_codes import OK, USAGE
from fieldagent.system.log_lines import print_failure


def init(arguments: argparse.Namespace) -> int:
    """Create the database and the first workspace, with an integration that may push to it. If an
    administrator is named, add this user too. If --once is set, do nothing if a workspace already
    exists.
    """
    password = secret.make_password() if arguments.administrator else ""
    hashed = scrypt.hash_password(password) if password else None

    def make(db: Db, now: float, console: str) -> int:
        if any(each["name"] != directory.SYNTHETIC for each in directory.list_workspaces(db)):
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
            form = urlencode({"username": email, "password": password})
            text["signIn"] = f"{console}/console#{form}"
        return show(arguments, text)

    def use(settings: HubSettings, store: Store) -> int:
        console = settings.console_address or f"http://127.0.0.1:{settings.port}"
        code = commit_and_print(store, lambda db, now: make(db, now, console))
        if not is_postgres(settings.database):
            print(f"The database is {Path(settings.database).absolute()}.", file=sys.stderr)
        return code

    return run_with_store(arguments, use, upgrade=True, create=True)


@make_transaction
def add_workspace(call: Call) -> Result:
    """Add a workspace and print its number. Raises Refused if another workspace has the name."""
    return {"id": directory.add_workspace(call.db, call.arguments.name, now=call.now)}


@make_transaction
def list_workspaces(call: Call) -> Result:
    """List the workspaces of the hub with their numbers."""
    return directory.list_workspaces(call.db)


def add_user(arguments: argparse.Namespace) -> int:
    """Add a user and print the user's number. Ask for a password before the database is opened."""
    hashed = _ask_for_password() if arguments.password else None

    @make_transaction
    def add(call: Call) -> Result:
        id_ = directory.add_user(
            *call.here,
            arguments.name,
            type_=arguments.type,
            email=arguments.email,
            password=hashed,
            over_satellite=arguments.over_satellite,
            now=call.now,
        )
        return {"id": id_}

    return add(arguments)


@make_transaction
def join_user(call: Call) -> Result:
    """Make a user of another workspace also a member of this workspace. The user is given by
    number. Raises Refused if the number does not exist.
    """
    user, workspace = call.arguments.user, call.workspace
    if not directory.is_known(call.db, user):
        raise Refused(
            f"no user has the number {user}: see `fieldagent hub user list --workspace WORKSPACE`"
        )
    over_satellite = call.arguments.over_satellite
    directory.add_member(call.db, workspace, user, over_satellite=over_satellite, now=call.now)
    return {"id": user, "workspace": workspace}


@make_transaction
def end_membership(call: Call) -> Result:
    """End a membership. Items that the member has sent are kept."""
    directory.remove_member(*call.here, call.member, now=call.now)
    return {"id": call.member, "workspace": call.workspace}


@make_transaction
def set_user_role(call: Call) -> Result:
    """Set the role of a user in the workspace. Raises Refused if the user is not a person and would
    become more than a member.
    """
    directory.set_role(*call.here, call.member, call.arguments.role, now=call.now)
    return {"id": call.member, "role": call.arguments.role}


def _ask_for_password() -> str:
    """Ask for a password, and return its hash. An empty password is refused, because anyone could
    sign in as the user.
    """
    password = ask_password()
    if not password:
        print_failure(
            "nothing was changed, because the password is empty: type one, or pipe it as one line"
        )
        raise SystemExit(USAGE)
    return scrypt.hash_password(password)


def set_user_password(arguments: argparse.Namespace) -> int:
    """Set a user's password. Ask for the password before the database is opened."""
    hashed = _ask_for_password()

    @make_transaction
    def change(call: Call) -> Result:
        directory.set_password(call.db, call.member, hashed, now=call.now)
        return {"id": call.member}

    return change(arguments)


@make_transaction
def list_users(call: Call) -> Result:
    """List the users of a workspace with their roles. The list shows whether a password is set."""
    return directory.list_users(*call.here)


@make_transaction
def show_audit_log(call: Call) -> Result:
    """List the newest entries of the audit log of a workspace. If no workspace is named, list those
    of all workspaces.
    """
    workspace = call.workspace if call.arguments.workspace else None
    return audit.list_latest(call.db, call.arguments.limit, workspace)
