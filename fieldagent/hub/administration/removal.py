"""Permanent deletion of a device or a user in one call of an administrator."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from fieldagent.hub.access.caller import Caller
from fieldagent.hub.access.subject import Subject
from fieldagent.hub.administration import deletion
from fieldagent.hub.administration.acts import AdministrationContext
from fieldagent.hub.administration.deletion import Pause
from fieldagent.hub.store.contract import Db
from fieldagent.system import waits


async def delete_subject(
    acts: AdministrationContext, caller: Caller, find: Callable[[Db, float], Subject]
) -> None:
    """Delete the subject that `find` returns, in several transactions. If the call is interrupted,
    a repeated call continues the deletion.
    """
    actor = str(caller.member)

    def begin(db: Db, now: float) -> tuple[Subject, bool]:
        subject = find(db, now)
        deletion.plan_deletion(db, subject)
        return subject, deletion.begin_deletion(db, subject, now, actor)

    subject, linked = await acts.carry_out(caller, begin)
    steps, result = deletion.list_steps(subject, linked, acts.clock, actor), None
    with suppress(StopIteration):
        while True:
            step = steps.send(result)
            if isinstance(step, Pause):
                await waits.sleep(step.seconds)
            else:
                result = await acts.store.commit(step)
