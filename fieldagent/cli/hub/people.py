"""`fieldagent hub group`, `hub user radio` and `hub user positions`: manages groups of addressees,
and the handhelds and positions of users.
"""

from __future__ import annotations

from fieldagent.cli.hub.opened_store import Call, Result, make_transaction
from fieldagent.hub.access import people
from fieldagent.hub.access.directory import find_member


@make_transaction
def add_group(call: Call) -> Result:
    """Add a group with its first members, and print its number."""
    arguments = call.arguments
    group = people.add_group(
        *call.here, arguments.name, over_satellite=arguments.over_satellite, now=call.now
    )
    if join := _find_members(call):
        people.change_group(*call.here, group, join=join, now=call.now)
    return {"id": group}


@make_transaction
def join_group(call: Call) -> Result:
    """Add users to a group. Earlier members stay in the group."""
    group = _find_group(call)
    people.change_group(*call.here, group, join=_find_members(call), now=call.now)
    return {"id": group}


@make_transaction
def leave_group(call: Call) -> Result:
    """Remove users from a group. A user who is not in the group is ignored."""
    group = _find_group(call)
    people.change_group(*call.here, group, leave=_find_members(call), now=call.now)
    return {"id": group}


@make_transaction
def set_group_satellite(call: Call) -> Result:
    """Set whether items from kits also reach a group over satellite."""
    group, rule = _find_group(call), call.arguments.rule == "on"
    people.change_group(*call.here, group, over_satellite=rule, now=call.now)
    return {"id": group}


@make_transaction
def remove_group(call: Call) -> Result:
    """Remove a group. Items that were sent to the group are kept."""
    group = _find_group(call)
    people.remove_group(*call.here, group, now=call.now)
    return {"id": group}


def _find_group(call: Call) -> int:
    return people.find_group(*call.here, call.arguments.name)


def _find_members(call: Call) -> frozenset[int]:
    return frozenset(find_member(*call.here, each) for each in call.arguments.users)


@make_transaction
def list_groups(call: Call) -> Result:
    """List the groups of a workspace with the names of their members."""
    return [
        {**row, "members": ", ".join(each["name"] for each in row["members"])}
        for row in people.list_groups(*call.here)
    ]


@make_transaction
def set_user_radios(call: Call) -> Result:
    """Set the handhelds of a user, by their handles. They replace the user's earlier handhelds.
    Raises Refused if a handheld belongs to another user.
    """
    people.set_radios(*call.here, call.member, call.arguments.radios, now=call.now)
    return {"id": call.member, "radios": call.arguments.radios}


@make_transaction
def set_user_positions(call: Call) -> Result:
    """Set whether a user's kits get all positions of other kits, or only the newest position of
    each sender.
    """
    rule = call.arguments.rule
    people.set_position_filter(*call.here, call.member, all_positions=rule == "all", now=call.now)
    return {"id": call.member, "positions": rule}
