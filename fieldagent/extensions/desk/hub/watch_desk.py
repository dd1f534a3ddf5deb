"""Actions of a dispatcher on the watch: take it, hand it over, end it. All functions raise
Refused.
"""

from __future__ import annotations

from fieldagent.extensions.desk.hub import shifts
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.api.sos_desk import list_dispatchers
from fieldagent.hub.store.contract import Db
from fieldagent.system.sentence import sentence


def take_watch(db: Db, workspace: int, member: int, seconds: float, now: float) -> None:
    """Take the watch for a number of seconds (see `shifts.take_watch`)."""
    _check_can_answer(db, workspace, member)
    shifts.take_watch(db, workspace, member, seconds, now)


def hand_over(
    db: Db, workspace: int, member: int, next_dispatcher: int, note: str, now: float
) -> None:
    """Ask another dispatcher to take the watch (see `shifts.hand_over`)."""
    _check_can_answer(db, workspace, next_dispatcher)
    if member == next_dispatcher:
        raise Refused("you cannot hand over to yourself: end the watch instead")
    if not shifts.hand_over(db, workspace, member, next_dispatcher, note, now):
        raise Refused("only a user on watch can hand it over: take the watch first")


def end_watch(db: Db, workspace: int, member: int, note: str, now: float) -> None:
    """End the watch of a dispatcher (see `shifts.end_watch`)."""
    if not shifts.end_watch(db, workspace, member, note, now):
        raise Refused("this user is not on watch; see `fieldagent hub contact watch show`")


def _check_can_answer(db: Db, workspace: int, member: int) -> None:
    if member not in list_dispatchers(db, workspace):
        raise Refused(
            sentence(
                (
                    "user {member} cannot answer an SOS here: make them a dispatcher with"
                    " `fieldagent hub user role {member} dispatcher`"
                ),
                member=member,
            )
        )
