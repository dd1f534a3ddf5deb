"""`fieldagent hub key` and `token`: what callers of the API prove themselves with."""

from __future__ import annotations

import argparse

from fieldagent.cli.hub.opened_store import once, show, show_list
from fieldagent.hub.access import credentials, directory
from fieldagent.hub.store.contract import Db

DAY = 86_400.0


def key_add(given: argparse.Namespace) -> int:
    """Add an API key and print it, the only time; without --kind it pushes all kinds."""
    purposes = [name for name in ("read", "acknowledge", "administer") if getattr(given, name)]

    def add(db: Db, now: float) -> int:
        id_, key = credentials.add_key(
            db,
            directory.workspace_of(db, given.workspace),
            given.name,
            scopes=[*(given.kind or ()), *purposes],
            per_minute=given.per_minute,
            burst=given.burst,
            expires=_expiry(given, now),
            now=now,
        )
        return show(given, {"id": id_, "apiKey": key}, secret_names=("apiKey",))

    return once(given, add)


def token_add(given: argparse.Namespace) -> int:
    """Add a token of a member and print it, the only time. It speaks for them in each of their
    workspaces."""

    def add(db: Db, now: float) -> int:
        workspace = directory.workspace_of(db, given.workspace)
        member = directory.member_of(db, workspace, given.user)
        id_, token = credentials.add_token(
            db, member, given.name, expires=_expiry(given, now), now=now
        )
        return show(given, {"id": id_, "token": token}, secret_names=("token",))

    return once(given, add)


def credential_list(given: argparse.Namespace) -> int:
    """List keys or tokens (`given.what`); none is shown itself."""
    return once(
        given,
        lambda db, now: show_list(
            given,
            credentials.listing(db, given.what, directory.workspace_of(db, given.workspace)),
        ),
    )


def revoke(given: argparse.Namespace) -> int:
    """Revoke a key or token (`given.what`) by its number, for good."""

    def withdraw(db: Db, now: float) -> int:
        workspace = directory.workspace_of(db, given.workspace)
        credentials.revoke(db, given.what, workspace, given.id, now=now)
        return show(given, {"id": given.id, "revoked": True})

    return once(given, withdraw)


def key_rate(given: argparse.Namespace) -> int:
    """Set how often a key may call; what is not named stays as it is."""

    def change(db: Db, now: float) -> int:
        workspace = directory.workspace_of(db, given.workspace)
        rate = {"per_minute": given.per_minute, "burst": given.burst}
        return show(given, credentials.set_rate(db, workspace, given.id, **rate, now=now))

    return once(given, change)


def _expiry(given: argparse.Namespace, now: float) -> float | None:
    return None if given.days is None else now + given.days * DAY
