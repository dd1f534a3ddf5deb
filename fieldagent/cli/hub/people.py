"""`fieldagent hub group`, `hub user radio` and `hub user positions`: groups as addressees, and the
radios and positions of users.
"""

from __future__ import annotations

from fieldagent.cli.hub.opened_store import Call, Result, transaction
from fieldagent.hub.access import people
from fieldagent.hub.access.directory import member_of


@transaction
def group_add(call: Call) -> Result:
    """Add a group with its first members, and print its number."""
    asked = call.arguments
    group = people.add_group(
        *call.here, asked.name, over_satellite=asked.over_satellite, now=call.now
    )
    if join := _members(call):
        people.change_group(*call.here, group, join=join, now=call.now)
    return {"id": group}


@transaction
def group_join(call: Call) -> Result:
    """Add users to a group. Existing members stay."""
    group = _group(call)
    people.change_group(*call.here, group, join=_members(call), now=call.now)
    return {"id": group}


@transaction
def group_leave(call: Call) -> Result:
    """Remove users from a group. A user who is not in it is ignored."""
    group = _group(call)
    people.change_group(*call.here, group, leave=_members(call), now=call.now)
    return {"id": group}


@transaction
def group_satellite(call: Call) -> Result:
    """Set if items from kits to a group are also sent over satellite."""
    group, rule = _group(call), call.arguments.rule == "on"
    people.change_group(*call.here, group, over_satellite=rule, now=call.now)
    return {"id": group}


@transaction
def group_remove(call: Call) -> Result:
    """Remove a group. Items that were sent to it stay."""
    group = _group(call)
    people.remove_group(*call.here, group, now=call.now)
    return {"id": group}


def _group(call: Call) -> int:
    return people.group_named(*call.here, call.arguments.name)


def _members(call: Call) -> frozenset[int]:
    return frozenset(member_of(*call.here, each) for each in call.arguments.users)


@transaction
def group_list(call: Call) -> Result:
    """List the groups of a workspace with the names of their members."""
    return [
        {**row, "members": ", ".join(each["name"] for each in row["members"])}
        for row in people.groups(*call.here)
    ]


@transaction
def user_radio(call: Call) -> Result:
    """Set the radios of a user by their handles, instead of earlier ones. Refused if a radio
    belongs to another user.
    """
    people.set_radios(*call.here, call.member, call.arguments.radios, now=call.now)
    return {"id": call.member, "radios": call.arguments.radios}


@transaction
def user_positions(call: Call) -> Result:
    """Set whether a user's kits get all positions of other kits, or the newest of each sender."""
    rule = call.arguments.rule
    people.set_positions(*call.here, call.member, every=rule == "all", now=call.now)
    return {"id": call.member, "positions": rule}
