"""Reads the state of a Package from the journal."""

from __future__ import annotations

from collections.abc import Mapping

from fieldagent.agent.journal import outbound
from fieldagent.agent.journal.journal import Journal
from fieldagent.package.delivery import ChannelDelivery
from fieldagent.package.package import Channel, Status
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.sentence import sentence


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
