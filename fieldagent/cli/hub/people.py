"""`fieldagent hub group`, `hub user radio` and `hub user positions`: groups as addressees, and the
radios and positions of users.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from fieldagent.cli.hub.opened_store import once, show, show_list
from fieldagent.hub.access import people
from fieldagent.hub.access.directory import member_of, workspace_of
from fieldagent.hub.store.contract import Db


def group_add(arguments: argparse.Namespace) -> int:
    """Add a group with its first members, and print its number."""

    def add(db: Db, now: float) -> int:
        workspace = workspace_of(db, arguments.workspace)
        rule = arguments.over_satellite
        group = people.add_group(db, workspace, arguments.name, over_satellite=rule, now=now)
        join = _members(db, workspace, arguments.users)
        if join:
            people.change_group(db, workspace, group, join=join, now=now)
        return show(arguments, {"id": group})

    return once(arguments, add)


def group_join(arguments: argparse.Namespace) -> int:
    """Add users to a group. Existing members stay."""
    return _change(
        arguments,
        lambda db, workspace, group, now: people.change_group(
            db, workspace, group, join=_members(db, workspace, arguments.users), now=now
        ),
    )


def group_leave(arguments: argparse.Namespace) -> int:
    """Remove users from a group. A user who is not in it is ignored."""
    return _change(
        arguments,
        lambda db, workspace, group, now: people.change_group(
            db, workspace, group, leave=_members(db, workspace, arguments.users), now=now
        ),
    )


def group_satellite(arguments: argparse.Namespace) -> int:
    """Set if items from kits to a group are also sent over satellite."""
    rule = arguments.rule == "on"
    return _change(
        arguments,
        lambda db, workspace, group, now: people.change_group(
            db, workspace, group, over_satellite=rule, now=now
        ),
    )


def group_remove(arguments: argparse.Namespace) -> int:
    """Remove a group. Items that were sent to it stay."""
    return _change(
        arguments,
        lambda db, workspace, group, now: people.remove_group(db, workspace, group, now=now),
    )


def _change(arguments: argparse.Namespace, act: Callable[[Db, int, int, float], None]) -> int:
    def change(db: Db, now: float) -> int:
        workspace = workspace_of(db, arguments.workspace)
        group = people.group_named(db, workspace, arguments.name)
        act(db, workspace, group, now)
        return show(arguments, {"id": group})

    return once(arguments, change)


def _members(db: Db, workspace: int, named: list[str]) -> frozenset[int]:
    return frozenset(member_of(db, workspace, each) for each in named)


def group_list(arguments: argparse.Namespace) -> int:
    """List the groups of a workspace with the names of their members."""

    def look(db: Db, now: float) -> int:
        rows = people.groups(db, workspace_of(db, arguments.workspace))
        return show_list(
            arguments,
            [
                {**row, "members": ", ".join(each["name"] for each in row["members"])}
                for row in rows
            ],
        )

    return once(arguments, look)


def user_radio(arguments: argparse.Namespace) -> int:
    """Set the radios of a user by their handles, instead of earlier ones. Refused if a radio
    belongs to another user.
    """

    def change(db: Db, now: float) -> int:
        workspace = workspace_of(db, arguments.workspace)
        member = member_of(db, workspace, arguments.user)
        people.set_radios(db, workspace, member, arguments.radios, now=now)
        return show(arguments, {"id": member, "radios": arguments.radios})

    return once(arguments, change)


def user_positions(arguments: argparse.Namespace) -> int:
    """Set whether a user's kits get all positions of other kits, or the newest of each sender."""

    def change(db: Db, now: float) -> int:
        workspace = workspace_of(db, arguments.workspace)
        member = member_of(db, workspace, arguments.user)
        people.set_positions(db, workspace, member, every=arguments.rule == "all", now=now)
        return show(arguments, {"id": member, "positions": arguments.rule})

    return once(arguments, change)
