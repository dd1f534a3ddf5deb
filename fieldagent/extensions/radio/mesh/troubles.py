"""Counts problems on the air, and reports them to people. The status shows a problem for an hour.
The log shows it once a minute, with the count.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import field
from enum import Enum
from math import inf

from fieldagent.package.writing import format_clock_time
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.rate import EventRate

log = logging.getLogger(__name__)

TROUBLE_SHOWN_S = 3600.0
"""Seconds for which a problem is shown after its last occurrence."""


class Trouble(Enum):
    """A problem on the air. The value contains the name of the status member with the count, and
    the remedy.
    """

    WRONG_KEY = (
        "wrongKeyPackets",
        "tagged with another key than radio-key: give every kit of the group the same one",
    )
    DROPPED_KEY = (
        "droppedKeyPackets",
        "tagged with a radio-key that was replaced: by a stolen kit, or by one that missed the"
        " change (`fieldagent hub device radio-key status`); it is ignored",
    )
    NO_TAG = (
        "untaggedPackets",
        "without a tag, and radio-key is set here: give that kit the same radio-key",
    )
    NO_KEY = (
        "uncheckedPackets",
        "tagged or sealed, but radio-key is not set here, so that group cannot read this kit:"
        " set its radio-key",
    )
    NOT_SEALED = (
        "notSealedPackets",
        "from this group without encryption, but radio-seal is on here: set it on that kit too",
    )
    SEALED = (
        "sealedPackets",
        "sealed by this group, but radio-seal is off here, so anyone can read this kit's"
        " packets: set radio-seal=on here too",
    )
    UNREADABLE = (
        "unreadablePackets",
        "with unreadable content: something else may be on this frequency",
    )
    DUPLICATE_STATION = (
        "twinPackets",
        "from one of two other kits with the same radio-station: give one of the "
        "two another number. Until then this kit cannot distinguish them",
    )
    NAMESAKE = (
        "namesakePackets",
        "from another kit with this kit's radio-station: give one of the two "
        "another number. Until an hour later, this kit confirms nothing that it "
        "hears",
    )

    def __init__(self, member: str, advice: str) -> None:
        self.member = member
        self.advice = advice


@dataclass(slots=True)
class _SeenTrouble:
    seldom: EventRate
    count: int = 0
    at: float = -inf
    detail: str = ""


@dataclass(slots=True)
class AirTroubles:
    """Counts the problems, and logs them. `clock` is elapsed time."""

    clock: Callable[[], float]
    _seen_troubles: dict[Trouble, _SeenTrouble] = field(default_factory=dict)

    def record(self, trouble: Trouble, detail: str = "") -> None:
        seen_trouble = self._seen_troubles.setdefault(trouble, _SeenTrouble(EventRate(self.clock)))
        seen_trouble.count, seen_trouble.at, seen_trouble.detail = (
            seen_trouble.count + 1,
            self.clock(),
            detail,
        )
        if count := seen_trouble.seldom.count_event():
            log.warning("%s", describe_trouble(trouble, count, detail))

    def is_recent(self, trouble: Trouble) -> bool:
        """Return True if the problem occurred within `TROUBLE_SHOWN_S`."""
        return (
            trouble in self._seen_troubles
            and self.clock() - self._seen_troubles[trouble].at < TROUBLE_SHOWN_S
        )

    def get_counts(self) -> dict[str, int]:
        """Return the number of occurrences since the agent started, by status member."""
        return {
            each.member: self._seen_troubles[each].count if each in self._seen_troubles else 0
            for each in Trouble
        }

    def list_notices(self, date: Callable[[float], float]) -> list[str]:
        """Return the notices for people about recent problems. `date` converts elapsed time to Unix
        time.
        """
        return [
            f"{describe_trouble(trouble, seen_trouble.count, seen_trouble.detail)} (last"
            f" {format_clock_time(date(seen_trouble.at))})"
            for trouble, seen_trouble in self._seen_troubles.items()
            if self.is_recent(trouble)
        ]


def describe_trouble(trouble: Trouble, count: int, detail: str = "") -> str:
    """Return a sentence with the number of affected packets and the remedy."""
    remark = f" ({detail})" if detail else ""
    packets = "a packet was" if count == 1 else f"{count} packets were"
    return f"{packets} heard on the air{remark} {trouble.advice}"
