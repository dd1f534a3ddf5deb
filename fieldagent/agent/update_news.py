"""Checks that this kit still receives news of updates, because a stale mirror or a blocked download
causes no error. The kit fetches the signed text of its program each day, and notifies people if
there was no new text for a long time. An offer of the hub also counts as news. Nothing is
installed.

The text is minisign's trusted comment (`system.signed_release`), which the maker signs again each
month. The text has a few hundred bytes. The program itself is not fetched. For Debian packages, the
date of apt's signed list is used instead.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import trio

from fieldagent.system import waits
from fieldagent.system.elapsed_time import ElapsedTime
from fieldagent.system.folder import replace_file
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.text_files import read_text_file

log = logging.getLogger(__name__)

DAY_S = 86_400.0
FIRST_LOOK_S, NEXT_LOOK_S = 10.0, 3_600.0
"""Seconds from the start to the first check, and from a failed check to the next."""
OFFER_CHECK_INTERVAL_S = 60.0
"""Seconds between two checks for a new offer of the hub."""
SILENCE_S = 60 * DAY_S
"""Seconds without news after which people are notified."""
NEWS_FILE, OFFER_FILE = "update-news.json", "update-address"
"""Files in the agent's state directory: the last news, and the address of the hub's last offer."""
APT_LISTS_FOLDER = Path("/var/lib/apt/lists")
LIST_HEAD_BYTES = 2_000
"""Number of bytes at the start of a list that contain its origin and date."""
SIGNATURE_MAX = 4_096
FETCH_TIMEOUT_S = 60.0


class News(NamedTuple):
    source: str
    """Source of the news: the address of the program, APT or HUB."""
    since: float
    """Unix time of the first check of this source."""
    signed: float = 0.0
    """Unix time of the newest signature from this source. 0 if there was none."""
    offered: float = 0.0
    """Unix time of the hub's offer, if known. 0 if the address is in the settings."""

    def describe_silence(self, now: float, reason: str = "") -> str:
        """Return a notice if there was no news for SILENCE_S before `now` (Unix time), otherwise
        ''. The notice contains `reason`, the reason of the last failure.
        """
        days = int((now - (max(self.signed, self.offered) or self.since)) / DAY_S)
        if days * DAY_S < SILENCE_S:
            return ""
        if self.source in _REMEDY_BY_CAUSE:
            return f"no news of updates for {days} days: {_REMEDY_BY_CAUSE[self.source]}"
        last = "has provided none"
        if self.signed:
            last = f"was last signed on {datetime.fromtimestamp(self.signed, UTC).date()}"
        if self.offered > self.signed:
            last = f"was offered by the hub on {datetime.fromtimestamp(self.offered, UTC).date()}"
        reason = reason or "check that it is served, and signed again each month (build/sign)"
        return f"no news of updates for {days} days: {self.source} {last}: {reason}"


APT, HUB = "apt", "hub"
_REMEDY_BY_CAUSE = {
    APT: "`sudo apt update` fetches apt's lists; does /etc/apt name the repository, and is the"
    " repository maintained?",
    HUB: "the hub has never offered a program: use `fieldagent hub update offer` "
    "there, or set update-address on this kit",
}


class NoNews(Exception):
    """A check found no news. The message contains the reason."""


class UpdateNews:
    """Watches for news of updates. `address` is the program's address; if it is None, the address
    of the hub's last offer is used. `keys` is the file with the trusted minisign keys. `has_hub` is
    True if the kit has an IP link to a hub, over which offers may arrive.
    """

    def __init__(
        self,
        address: str | None,
        keys: Path,
        state_directory: Path,
        clock: ElapsedTime,
        *,
        has_hub: bool,
    ) -> None:
        self._address, self._keys, self._folder = address, keys, state_directory
        self._clock = clock
        self._has_hub = has_hub
        self._news = _read_stored_news(state_directory / NEWS_FILE)
        self._no_news_reason = ""
        """Reason why the last check found no news."""

    def list_notices(self) -> list[str]:
        """Return a list with a notice if there was no news of updates for SILENCE_S. Otherwise,
        return an empty list.
        """
        now = self._get_trusted_time()
        notice = (
            ""
            if now is None or self._news is None
            else self._news.describe_silence(now, self._no_news_reason)
        )
        return [notice] if notice else []

    async def run_update_checks(self) -> None:
        """Check for news of updates each day. After a failure, check each hour. After a new offer
        of the hub, check within about OFFER_CHECK_INTERVAL_S seconds. Log a warning if there was no
        news for SILENCE_S. Never returns.
        """
        await waits.sleep(FIRST_LOOK_S)
        while True:
            offered_address = self._find_offered_address()
            next_check_at = trio.current_time() + await self._check_for_updates(offered_address)
            for notice in self.list_notices():
                log.warning("%s", notice)
            while (
                self._find_offered_address() == offered_address
                and trio.current_time() < next_check_at
            ):
                await trio.sleep_until(waits.compute_nearest_beat(OFFER_CHECK_INTERVAL_S))

    async def _check_for_updates(self, offered_address: str) -> float:
        """Check for news, store it, and return the seconds until the next check."""
        source, now = (
            self._address or offered_address or self._find_other_address(),
            self._get_trusted_time(),
        )
        if not source or now is None:
            return NEXT_LOOK_S
        pause, signed = DAY_S, 0.0
        self._no_news_reason = ""
        try:
            signed = await self._read_signature_time(source)
        except NoNews as why:
            log.debug("no news of updates from %s: %s", source, why)
            self._no_news_reason = str(why)
            pause = NEXT_LOOK_S
        before = self._news
        if before is None or before.source != source:
            before = News(source, now, offered=now if source == offered_address else 0.0)
        # Treat a signing date in the future as now. Otherwise a later file would seem older.
        news = before._replace(signed=max(before.signed, min(signed, now)))
        if news != self._news:
            self._news = news
            await trio.to_thread.run_sync(partial(_store_news, self._folder / NEWS_FILE, news))
        return pause

    def _get_trusted_time(self) -> float | None:
        """Return the Unix time, or None if there is no trusted source of the time."""
        return self._clock.date(self._clock.now()) if self._clock.source() else None

    def _find_offered_address(self) -> str:
        """Return the address of the hub's last offer, or '' if there is none."""
        try:
            return (self._folder / OFFER_FILE).read_text()
        except (OSError, UnicodeDecodeError):
            return ""

    def _find_other_address(self) -> str:
        if any(_read_list_dates(APT_LISTS_FOLDER)):
            return APT
        return HUB if self._has_hub else ""

    async def _read_signature_time(self, source: str) -> float:
        """Return the Unix time when the text at `source` was signed. Raises NoNews."""
        if source == APT:
            return max(_read_list_dates(APT_LISTS_FOLDER), default=0.0)
        if source == HUB:
            return 0.0
        # Import these modules here, so that a kit without such an address saves the memory.
        from fieldagent.http.client import RequestFailed, request
        from fieldagent.system.minisign import (
            NotSigned,
            parse_keys,
            parse_signature,
            verify_comment,
        )
        from fieldagent.system.signed_release import check_release

        try:
            keys = parse_keys(read_text_file(self._keys))
            reply = await request(
                "GET", f"{source}.minisig", deadline=FETCH_TIMEOUT_S, max_body=SIGNATURE_MAX
            )
            if reply.status != 200:
                raise NoNews(f"{source}.minisig is answered with {reply.status}")
            signature = parse_signature(reply.body.decode())
            comment = await trio.to_thread.run_sync(verify_comment, signature, keys)
            signed = check_release(comment, self._get_trusted_time() or 0.0).signed
        except (RequestFailed, NotSigned, OSError, UnicodeDecodeError) as wrong:
            raise NoNews(str(wrong)) from None
        return datetime(signed.year, signed.month, signed.day, tzinfo=UTC).timestamp()


def store_offer_address(state_directory: Path, url: str) -> None:
    """Store the address of the hub's offer. Raises OSError."""
    replace_file(state_directory / OFFER_FILE, url.encode())


def _store_news(path: Path, news: News) -> None:
    try:
        replace_file(path, json.dumps(news._asdict()).encode())
    except OSError as error:
        log.warning("the news of updates cannot be stored: %s", error)


def _read_stored_news(path: Path) -> News | None:
    """Return the stored news, or None if it is missing or unreadable."""
    try:
        document = json.loads(path.read_bytes())
        since, signed, offered_at = (
            float(document[each]) for each in ("since", "signed", "offered")
        )
        return News(str(document["source"]), since, signed, offered_at)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _read_list_dates(folder: Path) -> Iterator[float]:
    """Yield the dates, in Unix time, of apt's lists of fieldagent's repositories
    (`build/repository`). apt has verified these lists.
    """
    for path in (*folder.glob("*InRelease"), *folder.glob("*_Release")):
        try:
            with path.open(encoding="utf-8", errors="replace") as file:
                head = file.read(LIST_HEAD_BYTES).splitlines()
            if "Origin: fieldagent" in head:
                # Import this module here, so that a kit without such a list saves the memory.
                from email.utils import parsedate_to_datetime

                date = next(line for line in head if line.startswith("Date:"))
                yield parsedate_to_datetime(date.removeprefix("Date:").strip()).timestamp()
        except (OSError, StopIteration, ValueError):
            continue
