"""Finds the parts of incomplete messages that the kit should give up. A modem's store is small.
Such parts could fill it, so that it receives no more messages. Pure functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

from fieldagent.extensions.sms.agent.arrivals import StoreContent, WaitingParts
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire.sms_pdu import StatusReport

PARTS_KEPT_S = 86_400.0
"""Seconds for which incomplete parts remain in the modem. They are measured with the kit's own
clock from the first read after a start, or with the network's times in the messages."""


class GivenUpParts(NamedTuple):
    parts: WaitingParts
    reason: str
    """Text for the log. Empty if the reason was logged before and the modem has not deleted the
    parts yet."""


class PartsKept:
    """Waiting parts in the store, with the times since when they have been waiting. The number of
    places in the store limits their number.
    """

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._logged_names: set[str] = set()
        self._network_time = -inf

    def list_expired(self, contents: StoreContent, now: float) -> list[GivenUpParts]:
        """Return the parts that have waited too long at the time `now`, on any monotonic clock."""
        self._network_time = max(self._network_time, *_list_times(contents), -inf)
        self._since = {each.name: self._since.get(each.name, now) for each in contents.waiting}
        self._logged_names &= self._since.keys()
        old = [each for each in contents.waiting if self._is_old(each, now)]
        return [self._drop_parts(each, "the others never arrived") for each in old]

    def find_oldest(self, waiting: Sequence[WaitingParts]) -> GivenUpParts:
        """Return the parts that should be given up first if the store is full. The parts must have
        been passed to `list_expired` before.
        """
        first = min(waiting, key=lambda each: (self._since[each.name], each.at))
        return self._drop_parts(first, "and the modem's store is filled")

    def _is_old(self, parts: WaitingParts, now: float) -> bool:
        waited = max(now - self._since[parts.name], self._network_time - parts.at)
        return waited >= PARTS_KEPT_S

    def _drop_parts(self, parts: WaitingParts, reason: str) -> GivenUpParts:
        if parts.name in self._logged_names:
            return GivenUpParts(parts, "")
        self._logged_names.add(parts.name)
        return GivenUpParts(
            parts, f"an SMS of {parts.number} is deleted: {parts.count_text}, {reason}"
        )


def _list_times(contents: StoreContent) -> Iterable[float]:
    """Yield the Unix time of each message in the store, as the network reported it."""
    for each in contents.waiting:
        yield each.at
    for _, message in contents.whole:
        if message is not None:
            yield message.ended if isinstance(message, StatusReport) else message.at
