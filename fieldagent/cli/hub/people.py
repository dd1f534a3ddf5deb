"""`fieldagent hub group` and `hub user radio`: whom a kit's Package may be for, and who people are
on the air."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from fieldagent.cli.hub.opened_store import once, show, show_list
from fieldagent.hub.access import people
from fieldagent.hub.access.directory import member_of, workspace_of
from fieldagent.hub.store.contract import Db


def group_add(given: argparse.Namespace) -> int:
    """Add a group with its first members, and print its number."""

    def add(db: Db, now: float) -> int:
        workspace = workspace_of(db, given.workspace)
        rule = given.over_satellite
        group = people.add_group(db, workspace, given.name, over_satellite=rule, now=now)
        join = _members(db, workspace, given.users)
        if join:
            people.change_group(db, workspace, group, join=join, now=now)
        return show(given, {"id": group})

    return once(given, add)


def group_join(given: argparse.Namespace) -> int:
    """Let users join a group; who is in it already stays."""
    return _change(
        given,
        lambda db, workspace, group, now: people.change_group(
            db, workspace, group, join=_members(db, workspace, given.users), now=now
        ),
    )


def group_leave(given: argparse.Namespace) -> int:
    """Let users leave a group; who is not in it changes nothing."""
    return _change(
        given,
        lambda db, workspace, group, now: people.change_group(
            db, workspace, group, leave=_members(db, workspace, given.users), now=now
        ),
    )


def group_satellite(given: argparse.Namespace) -> int:
    """Set whether what kits send to a group goes to it over satellite too."""
    rule = given.rule == "on"
    return _change(
        given,
        lambda db, workspace, group, now: people.change_group(
            db, workspace, group, over_satellite=rule, now=now
        ),
    )


def group_remove(given: argparse.Namespace) -> int:
    """Remove a group; what was sent to it stays."""
    return _change(
        given,
        lambda db, workspace, group, now: people.remove_group(db, workspace, group, now=now),
    )


def _change(given: argparse.Namespace, act: Callable[[Db, int, int, float], None]) -> int:
    def change(db: Db, now: float) -> int:
        workspace = workspace_of(db, given.workspace)
        group = people.group_named(db, workspace, given.name)
        act(db, workspace, group, now)
        return show(given, {"id": group})

    return once(given, change)


def _members(db: Db, workspace: int, named: list[str]) -> frozenset[int]:
    return frozenset(member_of(db, workspace, each) for each in named)


def group_list(given: argparse.Namespace) -> int:
    """List the groups of a workspace with the names of their members."""

    def look(db: Db, now: float) -> int:
        rows = people.groups(db, workspace_of(db, given.workspace))
        return show_list(
            given,
            [
                {**row, "members": ", ".join(each["name"] for each in row["members"])}
                for row in rows
            ],
        )

    return once(given, look)


def user_radio(given: argparse.Namespace) -> int:
    """Set the radios of a user by their handles; those of before are theirs no more. Refused where
    one is another's."""

    def change(db: Db, now: float) -> int:
        workspace = workspace_of(db, given.workspace)
        member = member_of(db, workspace, given.user)
        people.set_radios(db, workspace, member, given.radios, now=now)
        return show(given, {"id": member, "radios": given.radios})

    return once(given, change)
