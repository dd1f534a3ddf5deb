"""How this kit takes its own incident back, whoever of its people asks for it."""

from __future__ import annotations

from collections.abc import Sequence

from fieldagent.agent.journal import handhelds, incident, outbound
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.journal.records import Accepted
from fieldagent.agent.outbound.cancel import Cancellation, settled
from fieldagent.agent.outbound.intake import Intake
from fieldagent.agent.outbound.standing import standing_of
from fieldagent.package.package import (
    SOS_PRIORITY,
    IncidentWord,
    Message,
    Package,
    Said,
    Status,
)
from fieldagent.wire.incident_proof import prove

ANSWERED_WITHIN = 15.0
"""Seconds that a session, or a modem that was unplugged, keeps whoever ends an SOS waiting: a page
waits for 20 before it says that the agent does not answer."""


def has_own_words(journal: Journal, number: int) -> bool:
    """Return whether somebody without a handheld has said something in that incident of this
    kit's, or may have: then it is not theirs alone who have one."""
    for known in outbound.packages(journal, incident.items(journal, number)).values():
        if not isinstance(known, Accepted):
            return True
        by_handheld = handhelds.is_key(known.idempotency_key or "")
        if isinstance(known.package.item, Message) and not by_handheld:
            return True
    return False


async def call_off(
    journal: Journal,
    cancellation: Cancellation,
    intake: Intake,
    proof_keys: Sequence[bytes],
    number: int,
    *,
    within: float = ANSWERED_WITHIN,
) -> bool:
    """End the open incident, and tell whoever may have got it by the same channels; return whether
    anybody may. Where what of it is in flight turns out `within` so many seconds to have left
    nowhere, the word is taken back. Raises what the journal raises."""
    word = IncidentWord(number, Said.CALLED_OFF)
    said = Package(prove(word, proof_keys[0]) if proof_keys else word, priority=SOS_PRIORITY - 1)
    standing = None
    if cancellation.may_have_left(number):
        # It ends by that word, in one commit: power may fail at any moment, and the hub would ring
        # on for an SOS of which its kit says no more.
        standing = await intake.accept(said)
    in_flight = await cancellation.call_off(number)
    if standing is None:
        if not may_be_known(journal, number):
            return False
        # It was given to a modem meanwhile.
        standing = await intake.accept(said)
    await settled(in_flight, within)
    if may_be_known(journal, number):
        return True
    return (await cancellation.cancel(standing.id)).status is not Status.CANCELED


def may_be_known(journal: Journal, number: int) -> bool:
    """Return whether anybody may have something of that incident of this kit's."""
    return any(
        leg.status in (None, Status.DELIVERED)
        for sequence in incident.items(journal, number)
        for leg in standing_of(journal, sequence).legs.values()
    )
