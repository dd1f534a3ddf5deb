"""Quiet hours: local times between which alarms of the hub do not notify contacts.

An SOS or an overdue check-in never waits. When the quiet hours end, a contact gets all waiting
alarms in one message. A contact's own quiet hours take precedence over those of its workspace.
Webhooks, the desk and the log get every alarm immediately.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.wording import sentence

NO_QUIET_HOURS = "none"
"""Value for a contact that has no quiet hours. A contact with an empty value has the quiet hours of
its workspace."""
URGENT_KINDS = ("sos", "overdue")
"""Kinds of incidents that never wait for the end of quiet hours."""
HOURS = re.compile(
    r"([01][0-9]|2[0-3]):([0-5][0-9])-([01][0-9]|2[0-3]):([0-5][0-9]) ([A-Za-z][\w+/-]{0,63})",
    re.ASCII,
)
"""Format of quiet hours, for example `22:00-06:00 Europe/Zurich`."""


class WrongHours(ValueError):
    """Error: the quiet hours are invalid. The text contains the error and the fix."""


class QuietHours(NamedTuple):
    """Quiet hours between two minutes of the local day. If the end is earlier than the beginning,
    the hours span midnight.
    """

    begins: int
    ends: int
    zone: ZoneInfo

    def end(self, now: float) -> float | None:
        """Return the Unix time when the current quiet hours end, or None if `now` is outside the
        quiet hours.
        """
        if not self._is_within(now):
            return None
        local = datetime.fromtimestamp(now, self.zone)
        hour, minute = divmod(self.ends, 60)
        end = local.replace(hour=hour, minute=minute, second=0, microsecond=0)
        # A local time exists twice when clocks go back. When clocks go forward, a skipped local
        # time maps to an hour before and an hour after it. Each of these times may still be within
        # the quiet hours.
        ends = (
            (end + timedelta(days=days)).replace(fold=fold).timestamp()
            for days in (0, 1, 2)
            for fold in (0, 1)
        )
        return min(each for each in ends if each > now and not self._is_within(each))

    def _is_within(self, moment: float) -> bool:
        local = datetime.fromtimestamp(moment, self.zone)
        return is_among(self.begins, self.ends, local.hour * 60 + local.minute)


def parse_hours(text: str) -> QuietHours:
    """Parse quiet hours such as `22:00-06:00 Europe/Zurich`. Raises WrongHours if the form is
    wrong, the hours have no length, or the time zone is unknown.
    """
    match = HOURS.fullmatch(text)
    if match is None:
        raise WrongHours(
            sentence(
                "{text} is not quiet hours: use the form 22:00-06:00 and a zone", text=repr(text)
            )
        )
    starts, ends = (int(match[at]) * 60 + int(match[at + 1]) for at in (1, 3))
    if starts == ends:
        raise WrongHours(
            "the quiet hours begin and end at the same time: no one would ever be notified"
        )
    try:
        return QuietHours(starts, ends, ZoneInfo(match[5]))
    except (KeyError, ValueError, OSError):
        raise WrongHours(
            sentence(
                "this machine does not know the time zone {found}: use a name such as"
                " Europe/Zurich or UTC; Debian's package tzdata installs them",
                found=repr(match[5]),
            )
        ) from None


def find_quiet_end(
    contact_hours: str, workspace_hours: str, kind: str, due_at: float
) -> float | None:
    """Return the Unix time when the quiet hours of a contact end, or None if an incident of this
    kind does not wait. The incident is due at `due_at`. `contact_hours` and `workspace_hours` are
    the hours of the contact and of its workspace. If this machine does not know the time zone, the
    incident does not wait.
    """
    hours = contact_hours or workspace_hours
    if kind in URGENT_KINDS or hours in ("", NO_QUIET_HOURS):
        return None
    try:
        return parse_hours(hours).end(due_at)
    except WrongHours:
        return None


def is_among(begins: int, ends: int, minute: float) -> bool:
    """Return True if `minute` is at or after `begins` and before `ends`, all in minutes of the day.
    If `begins` equals `ends`, the hours are the whole day.
    """
    if begins < ends:
        return begins <= minute < ends
    return minute >= begins or minute < ends
