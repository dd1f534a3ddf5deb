"""`fieldagent hub key` and `token`: credentials of the API's callers."""

from __future__ import annotations

import argparse

from fieldagent.cli.hub.opened_store import once, show, show_list
from fieldagent.hub.access import credentials, directory
from fieldagent.hub.store.contract import Db

DAY = 86_400.0


def key_add(arguments: argparse.Namespace) -> int:
    """Add an API key and print it, only this time. Without --kind it can push all kinds."""
    purposes = [name for name in ("read", "acknowledge", "administer") if getattr(arguments, name)]

    def add(db: Db, now: float) -> int:
        id_, key = credentials.add_key(
            db,
            directory.workspace_of(db, arguments.workspace),
            arguments.name,
            scopes=[*(arguments.kind or ()), *purposes],
            per_minute=arguments.per_minute,
            burst=arguments.burst,
            expires=_expiry(arguments, now),
            now=now,
        )
        return show(arguments, {"id": id_, "apiKey": key}, secret_names=("apiKey",))

    return once(arguments, add)


def token_add(arguments: argparse.Namespace) -> int:
    """Add a token of a member and print it, only this time. It is valid for the member in all of
    their workspaces.
    """

    def add(db: Db, now: float) -> int:
        workspace = directory.workspace_of(db, arguments.workspace)
        member = directory.member_of(db, workspace, arguments.user)
        id_, token = credentials.add_token(
            db, member, arguments.name, expires=_expiry(arguments, now), now=now
        )
        return show(arguments, {"id": id_, "token": token}, secret_names=("token",))

    return once(arguments, add)


def credential_list(arguments: argparse.Namespace) -> int:
    """List keys or tokens (`arguments.what`), without their secrets."""
    return once(
        arguments,
        lambda db, now: show_list(
            arguments,
            credentials.listing(
                db, arguments.what, directory.workspace_of(db, arguments.workspace)
            ),
        ),
    )


def revoke(arguments: argparse.Namespace) -> int:
    """Revoke a key or token (`arguments.what`) permanently, by its number."""

    def withdraw(db: Db, now: float) -> int:
        workspace = directory.workspace_of(db, arguments.workspace)
        credentials.revoke(db, arguments.what, workspace, arguments.id, now=now)
        return show(arguments, {"id": arguments.id, "revoked": True})

    return once(arguments, withdraw)


def key_rate(arguments: argparse.Namespace) -> int:
    """Set the rate limit of a key. A limit that is not named stays."""

    def change(db: Db, now: float) -> int:
        workspace = directory.workspace_of(db, arguments.workspace)
        rate = {"per_minute": arguments.per_minute, "burst": arguments.burst}
        return show(arguments, credentials.set_rate(db, workspace, arguments.id, **rate, now=now))

    return once(arguments, change)


def _expiry(arguments: argparse.Namespace, now: float) -> float | None:
    return None if arguments.days is None else now + arguments.days * DAY
