"""Reads the state of a Package from the journal, and the stages that it is known to have reached,
in the words that every screen shows.

    on this kit          it is on this kit's disk
    left by Satellite    a gateway has it; this does not show that the hub has it
    left by X's satellite  the gateway of another kit has it
    heard by X           another kit has it
    at the hub           the hub has it
    on X's kit, with X's programs, on X's radio
    read by X            a person has confirmed it
    handed over to …     a mail or SMS service has it; this does not show that a person has it
    X cannot be reached: why
    given up: why        all channels have given it up
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from fieldagent.agent.journal import directory, on_air, outbound
from fieldagent.agent.journal.history import add_names
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.journal.records import DamagedPackage, PackageFacts, StoredPackage
from fieldagent.package.delivery import STAGE_ORDER, ChannelDelivery, Stage, describe_stage
from fieldagent.package.package import Channel, Status
from fieldagent.package.payload import Identity
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.wording import sentence


class UnknownPackage(Exception):
    """No Package in the journal has this id or sequence."""


class PackageState(NamedTuple):
    """State of a Package: its status (None while it waits), and its state on each channel."""

    id: int
    sequence: int
    status: Status | None
    deliveries: Mapping[Channel, ChannelDelivery]
    accepted: float
    """Unix time when the Package was accepted."""


def find_package_state(journal: Journal, id_: int) -> PackageState:
    """Return the state of the newest Package with the id `id_`. Raises UnknownPackage if no Package
    in the journal has this id.
    """
    package = outbound.find_by_id(journal, id_)
    if package is None:
        raise UnknownPackage(
            sentence(
                "no Package has the id {id}; the agent deletes ended Packages after a while", id=id_
            )
        )
    return get_package_state(journal, package.sequence)


def get_package_state(journal: Journal, sequence: int) -> PackageState:
    """Return the state of a Package. Raises UnknownPackage if the Package is no longer in the
    journal.
    """
    package = outbound.find_by_sequence(journal, sequence)
    if package is None:
        raise UnknownPackage("the Package ended and is no longer kept")
    deliveries = outbound.read_deliveries(journal, sequence)
    return PackageState(
        package.id, sequence, package.status, deliveries, journal.clock.date(package.accepted)
    )


class Step(NamedTuple):
    at: float
    """Unix time of the step."""
    stage: str
    """Name of the stage: `kept`, `left`, `heard`, `hub`, `ended`, or the name of a `Stage` in lower
    case."""
    who: str
    """Person or kit that has the Package at this step. Empty if there is none or it is unknown."""
    text: str
    """Text of the step for people, in English."""
    detail: str = ""
    """A detail in addition to `who`: the name of a person or service, or a reason."""


HUB = "the hub"
STEP_ORDER = (
    "kept",
    "left",
    "heard",
    "hub",
    *(stage.name.lower() for stage in STAGE_ORDER),
    "ended",
)


def list_reached(journal: Journal, stored_package: PackageFacts) -> list[Step]:
    """Return the known steps, from the lowest stage to the highest."""
    date = journal.clock.date
    steps = [Step(date(stored_package.accepted), "kept", "", "on this kit")]
    for channel, delivery in outbound.read_deliveries(journal, stored_package.sequence).items():
        if delivery.status is Status.DELIVERED and channel is not Channel.RADIO:
            at = date(outbound.read_end(journal, stored_package.sequence, channel))
            at_hub = channel is Channel.CELLULAR
            text = f"at {HUB}" if at_hub else f"left by {channel}"
            steps.append(Step(at, "hub" if at_hub else "left", "", text))
    for receipt in outbound.list_receipts(journal, stored_package.sequence):
        steps.append(_make_receipt_step(receipt.by, receipt.at, is_station=receipt.kind == "agent"))
    if (relayed := on_air.find_relay_time(journal, stored_package.sequence)) is not None:
        steps.append(Step(date(relayed), "hub", "", f"at {HUB}, reported by a neighbour"))
    for at, text in on_air.list_left_nearby(journal, stored_package.sequence):
        steps.append(Step(date(at), "left", "", add_names(journal, text)))
    steps += list_reached_beyond(journal, [stored_package])[stored_package.sequence]
    if (
        stored_package.status in (Status.ERROR, Status.CANCELED, Status.COLLAPSED)
        and stored_package.ended
    ):
        steps.append(
            Step(date(stored_package.ended), "ended", "", _describe_end(journal, stored_package))
        )
    return sorted(steps, key=lambda step: (STEP_ORDER.index(step.stage), step.at))


def list_reached_beyond(
    journal: Journal, packages: Sequence[PackageFacts | StoredPackage]
) -> dict[int, list[Step]]:
    """Return, for each Package, the steps after its arrival at the hub or at a kit, from the lowest
    stage to the highest.
    """
    steps_by_sequence: dict[int, list[Step]] = {}
    stages = outbound.list_reached(journal, [each.sequence for each in packages])
    for package in packages:
        steps = steps_by_sequence.setdefault(package.sequence, [])
        for each in sorted(
            stages[package.sequence], key=lambda each: STAGE_ORDER.index(each.stage)
        ):
            is_kit = each.by != outbound.THE_HUB
            receiver_text = (
                _describe_kit(each.by) if is_kit else _describe_addressee(journal, package)
            )
            step_text = describe_stage(each.stage, receiver_text or "the addressee", each.text)
            steps.append(
                Step(each.at, each.stage.name.lower(), receiver_text, step_text, each.text)
            )
    return steps_by_sequence


def _describe_addressee(journal: Journal, stored_package: PackageFacts | StoredPackage) -> str:
    """Return a description of the addressee, or '' if the addressee is unknown."""
    with suppress(DamagedPackage):
        accepted = outbound.read_kept_package(journal, stored_package.sequence)
        if accepted is not None and accepted.package.to is not None:
            return directory.describe_addressee(journal, accepted.package.to)
    return ""


def _make_receipt_step(receiver: Identity, at: float, *, is_station: bool) -> Step:
    if not is_station:
        return Step(at, "hub", "", f"at {HUB}")
    receiver_name = _find_name(receiver)
    if receiver.type == "Device":
        return Step(at, "heard", receiver_name, f"heard by {receiver_name}")
    return Step(
        at, Stage.STORED.name.lower(), receiver_name, describe_stage(Stage.STORED, receiver_name)
    )


def _find_name(person: Identity) -> str:
    return person.name or f"{'kit' if person.type == 'Device' else 'user'} {person.id}"


def _describe_kit(person: Identity) -> str:
    """Return the receiver's name. For a station without a known name, return `station` and its
    number.
    """
    unnamed = person.type == "Device" and not person.name
    return f"station {person.id}" if unnamed else _find_name(person)


def _describe_end(journal: Journal, stored_package: PackageFacts) -> str:
    if stored_package.status is not Status.ERROR:
        return str(stored_package.status).lower()
    reasons = {
        delivery.reason
        for delivery in outbound.read_deliveries(journal, stored_package.sequence).values()
        if delivery.reason
    }
    return f"given up: {', '.join(sorted(reasons)) or 'no channel'}"
