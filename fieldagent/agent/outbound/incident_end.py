"""How this kit takes its own incident back, whoever of its people asks for it."""

from __future__ import annotations

from collections.abc import Sequence

from fieldagent.agent.journal import handhelds, incident, outbound
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.journal.records import Accepted
from fieldagent.agent.outbound.cancel import Cancellation
from fieldagent.agent.outbound.intake import Intake
from fieldagent.agent.outbound.standing import standing_of
from fieldagent.package.delivery import legs_json
from fieldagent.package.package import SOS_PRIORITY, IncidentWord, Message, Package, Said
from fieldagent.wire.incident_proof import prove


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
) -> bool:
    """End the open incident, and tell whoever may have got it by the same channels; return whether
    anybody may. Raises what the journal raises."""
    ended = await cancellation.call_off(number)
    legs = [legs_json(standing_of(journal, each.sequence).legs) for each in ended]
    told = any(leg["status"] in (None, "Delivered") for each in legs for leg in each.values())
    if told:
        word = IncidentWord(number, Said.CALLED_OFF)
        said = prove(word, proof_keys[0]) if proof_keys else word
        await intake.accept(Package(said, priority=SOS_PRIORITY - 1))
    return told
