"""Cancels this kit's own incident, if one of its users requests this."""

from __future__ import annotations

from collections.abc import Sequence

from fieldagent.agent.journal import handhelds, incident, outbound
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.journal.records import StoredPackage
from fieldagent.agent.outbound.cancel import Cancellation, wait_until_settled
from fieldagent.agent.outbound.intake import Intake
from fieldagent.agent.outbound.standing import get_package_state
from fieldagent.package.package import (
    SOS_PRIORITY,
    IncidentState,
    IncidentUpdate,
    Message,
    Package,
    Status,
)
from fieldagent.wire.incident_proof import prove

ANSWER_DELAY_MAX_S = 15.0
"""Longest time in seconds for which the response to a cancellation waits for the end of a session,
or for an unplugged modem. After 20 s, the page reports that the agent does not respond."""


def may_include_user_messages(journal: Journal, incident_number: int) -> bool:
    """Return True if a person without a handheld may have sent a message in this kit's incident
    `incident_number`. Then people with handhelds are not allowed to cancel the incident alone.
    """
    for package in outbound.read_packages(
        journal, incident.list_items(journal, incident_number)
    ).values():
        if not isinstance(package, StoredPackage):
            return True
        by_handheld = handhelds.is_idempotency_key(package.idempotency_key or "")
        if isinstance(package.package.item, Message) and not by_handheld:
            return True
    return False


async def call_off(
    journal: Journal,
    cancellation: Cancellation,
    intake: Intake,
    proof_keys: Sequence[bytes],
    incident_number: int,
    *,
    limit_s: float = ANSWER_DELAY_MAX_S,
) -> bool:
    """End the open incident `incident_number`, and notify its possible receivers over the same
    channels. Return True if someone may have received the incident. If all items in flight end
    within `limit_s` seconds and none has left, withdraw the cancellation message. Raises the
    journal's errors.
    """
    update = IncidentUpdate(incident_number, IncidentState.CALLED_OFF)
    package = Package(
        prove(update, proof_keys[0]) if proof_keys else update, priority=SOS_PRIORITY - 1
    )
    package_state = None
    if cancellation.can_have_left(incident_number):
        # One commit stores the message and ends the incident. With two commits, a power failure
        # between them could leave the hub's alarm on although the kit no longer repeats the SOS.
        package_state = await intake.accept(package)
    in_flight = await cancellation.call_off(incident_number)
    if package_state is None:
        if not can_be_known(journal, incident_number):
            return False
        # A modem has started to send an item since the check above, so the hub may get to know the
        # incident.
        package_state = await intake.accept(package)
    await wait_until_settled(in_flight, limit_s)
    if can_be_known(journal, incident_number):
        return True
    return (await cancellation.cancel(package_state.id)).status is not Status.CANCELED


def can_be_known(journal: Journal, incident_number: int) -> bool:
    """Return True if someone may have received an item of this kit's incident `incident_number`."""
    return any(
        delivery.status in (None, Status.DELIVERED)
        for sequence in incident.list_items(journal, incident_number)
        for delivery in get_package_state(journal, sequence).deliveries.values()
    )
