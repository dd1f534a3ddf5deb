"""`fieldagent hub key`, `user token` and `tracker source`: credentials of the API's callers."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from fieldagent.cli.hub.opened_store import Call, Result, make_transaction
from fieldagent.hub.access import credentials
from fieldagent.hub.access.directory import Row

DAY_S = 86_400.0


@make_transaction
def add_key(call: Call) -> Result:
    """Add an API key, and print it once. If --kind is missing, the key can push all kinds of
    items.
    """
    arguments = call.arguments
    purposes = [name for name in ("read", "acknowledge", "administer") if getattr(arguments, name)]
    id_, key = credentials.add_key(
        *call.here,
        arguments.name,
        scopes=[*(arguments.kind or ()), *purposes],
        per_minute=arguments.per_minute,
        burst=arguments.burst,
        expires=_compute_expiry(arguments, call.now),
        now=call.now,
    )
    return {"id": id_, "apiKey": key}


@make_transaction
def add_token(call: Call) -> Result:
    """Add a token of a member and print it once. The token is valid in all workspaces of the
    member.
    """
    expires = _compute_expiry(call.arguments, call.now)
    name = call.arguments.name
    id_, token = credentials.add_token(call.db, call.member, name, expires=expires, now=call.now)
    return {"id": id_, "token": token}


@make_transaction
def list_credentials(call: Call) -> Sequence[Row]:
    """List keys or tokens (`arguments.what`), without their secrets."""
    return credentials.list_credentials(call.db, call.arguments.what, call.workspace)


@make_transaction
def revoke(call: Call) -> Result:
    """Permanently revoke the key or token (`arguments.what`) with the given number."""
    kind, number = call.arguments.what, call.arguments.id
    credentials.revoke_credential(call.db, kind, call.workspace, number, now=call.now)
    return {"id": number, "revoked": True}


@make_transaction
def set_key_rate(call: Call) -> Result:
    """Set the rate limits of a key. Limits without a new value are not changed."""
    arguments = call.arguments
    rate = {"per_minute": arguments.per_minute, "burst": arguments.burst}
    return credentials.set_rate(*call.here, arguments.id, **rate, now=call.now)


def _compute_expiry(arguments: argparse.Namespace, now: float) -> float | None:
    return None if arguments.days is None else now + arguments.days * DAY_S
