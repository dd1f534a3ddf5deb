"""`/api/track`: a day's track of this kit with its gaps, and the tracker's interval.
`/api/positions`: positions for a map or for saving.

`fieldagent track` posts the positions and reports its interval. A person can choose the interval on
the kit's page. The chosen interval survives a restart.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import trio

from fieldagent.agent.assembly import Parts
from fieldagent.agent.journal.listing import list_newest_positions
from fieldagent.agent.outbound.cost import compute_costs
from fieldagent.agent.refusals import convert_refusals
from fieldagent.http.guard import get_required_body
from fieldagent.http.message import Request, Response, make_json_response
from fieldagent.http.problem import Problem
from fieldagent.http.query import read_integer, read_one_of, refuse_others
from fieldagent.http.routes import Route
from fieldagent.package import tracks
from fieldagent.package.package import Channel, Location, Package
from fieldagent.package.strict_json import load_document
from fieldagent.package.tracks import PlacedPoint
from fieldagent.system.folder import replace_file
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.wording import sentence

log = logging.getLogger(__name__)


CHOSEN_INTERVAL_FILE = "track-interval"
"""File in the state directory that contains the chosen interval, in whole seconds."""
SHORTEST, LONGEST = 60, 86_400
"""Limits of the chosen interval between two positions at rest, in seconds."""
DEFAULT_INTERVAL_S = 1800.0
"""Interval in seconds that is assumed until a tracker reports its own."""
GAP_INTERVALS = 2.0
"""Number of intervals without a position after which the track has a gap."""


class TrackerPace(NamedTuple):
    """A tracker's report about its intervals and its next position."""

    interval: float
    """Present number of seconds between two positions while the kit is at rest."""
    moving_interval: float
    satellite_factor: float
    """Factor by which the interval is longer while only satellite is available."""
    batch: int | None
    """Seconds for which positions wait to share a message."""
    costly: bool
    """True while only satellite is available, so that `satellite_factor` applies."""
    moving: bool
    due_at: float | None
    """Latest Unix time of the next position. None before the first position."""
    reported_at: float
    """Unix time of this report."""


class Tracking:
    def __init__(self, state_directory: Path) -> None:
        self._place = state_directory / CHOSEN_INTERVAL_FILE
        self.tracker: TrackerPace | None = None
        self.chosen = _read_stored_interval(self._place)

    def choose(self, interval: int | None) -> None:
        """Store the chosen interval in seconds, and use it when it is on disk. None means that the
        tracker uses its own options. Raises OSError.
        """
        if interval is None:
            self._place.unlink(missing_ok=True)
        else:
            replace_file(self._place, b"%d\n" % interval)
        self.chosen = interval

    def pause(self) -> float:
        """Return the seconds without a position after which the track has a gap."""
        pace = self.tracker
        if pace is None:
            return GAP_INTERVALS * (self.chosen or DEFAULT_INTERVAL_S)
        return GAP_INTERVALS * pace.interval * (pace.satellite_factor if pace.costly else 1.0)

    def get_status(self) -> dict[str, float | None]:
        """Return the chosen interval and the interval in use, in seconds. Also return the Unix
        times of the next position and of the report. Unknown values are None.
        """
        pace = self.tracker
        return {
            "chosenInterval": self.chosen,
            "interval": None if pace is None else pace.interval,
            "due": None if pace is None else pace.due_at,
            "reportedAt": None if pace is None else pace.reported_at,
        }


def _read_stored_interval(place: Path) -> int | None:
    try:
        interval = int(place.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        log.warning("%s cannot be read, so the tracker's own interval is used: %s", place, error)
        return None
    return interval if SHORTEST <= interval <= LONGEST else None


DEFAULT_COUNT, NEWEST_MAX = 500, 5_000


async def answer_positions(parts: Parts, request: Request) -> Response:
    """Return the newest positions of this kit and of others as a file in `?format=`. `?of=own` or
    `?of=others` selects one of the two lists. `?limit=` is the maximum number in each list.
    """
    refuse_others(request, ("format", "limit", "of"))
    format_name = read_one_of(request, "format", tuple(tracks.CONTENT_TYPES)) or "geojson"
    owner = read_one_of(request, "of", ("own", "others"))
    limit = read_integer(request, "limit", DEFAULT_COUNT, range(1, NEWEST_MAX + 1))
    own, others = await list_newest_positions(parts.journal, limit)
    entries = [*(own if owner != "others" else ()), *(others if owner != "own" else ())]
    saved = ("Content-Disposition", f'attachment; filename="fieldagent.{format_name}"')
    if format_name in tracks.DOCUMENTS:
        body = tracks.DOCUMENTS[format_name](entries).encode("utf-8", "replace")
        return Response(200, body, tracks.CONTENT_TYPES[format_name], (saved,))
    response = make_json_response(tracks.make_geojson(entries), headers=(saved,))
    return response._replace(content_type=tracks.CONTENT_TYPES[format_name])


DAY_S = 86_400
SEARCHED_POSITIONS_MAX = 5_000
"""Maximum number of this kit's newest positions that are searched for a day's positions."""


def make_routes(parts: Parts, tracking: Tracking) -> list[Route]:
    """Return the routes of `/api/track`. `tracking` contains the interval that the tracker
    reported, and the interval that a person chose.
    """
    return [
        Route("GET", "/api/track", partial(_answer_day, parts, tracking)),
        Route("GET", "/api/track/cost", partial(_answer_cost, parts, tracking)),
        Route("POST", "/api/track/interval", partial(_choose_interval, tracking)),
        Route("DELETE", "/api/track/interval", partial(_clear_interval, tracking)),
        Route("POST", "/api/track/tracker", partial(_accept_report, parts, tracking)),
    ]


async def _answer_day(parts: Parts, tracking: Tracking, request: Request) -> Response:
    refuse_others(request, ("day",))
    clock = parts.journal.clock
    now = datetime.fromtimestamp(clock.date(clock.now()), UTC)
    day_start = _find_day_start(dict(request.query).get("day"), now)
    own, _ = await list_newest_positions(parts.journal, SEARCHED_POSITIONS_MAX)
    track = sorted((each for each in own if isinstance(each.place, Location)), key=_read_moment)
    pause = tracking.pause()
    end = day_start + timedelta(days=1)
    pace = tracking.tracker
    return make_json_response(
        {
            "day": f"{day_start:%Y-%m-%d}",
            "days": sorted({f"{each.moment:%Y-%m-%d}" for each in track}),
            "pause": pause,
            "positions": [
                {
                    "at": each.moment.timestamp(),
                    "latitude": each.place.latitude,
                    "longitude": each.place.longitude,
                }
                for each in track
                if day_start <= each.moment < end
            ],
            "gaps": [
                {"from": first, "until": last}
                for first, last in _find_gaps(track, pause, now)
                if first < end.timestamp() and (last or now.timestamp()) > day_start.timestamp()
            ],
            "chosenInterval": tracking.chosen,
            "tracker": None if pace is None else _encode_pace(pace),
        }
    )


def _find_day_start(day: str | None, now: datetime) -> datetime:
    """Return the start of `day` (YYYY-MM-DD), or of today if `day` is None. Raises Problem if `day`
    is not a date.
    """
    if day is None:
        return now.replace(hour=0, minute=0, second=0, microsecond=0)
    try:
        if re.fullmatch(r"\d{4}-\d\d-\d\d", day, re.ASCII) and not day.startswith("9999"):
            return datetime.fromisoformat(day).replace(tzinfo=UTC)
    except ValueError:
        pass
    raise Problem(400, detail="?day= is a day such as 2026-03-01, of UTC")


def _read_moment(point: PlacedPoint) -> datetime:
    return point.moment


def _find_gaps(
    track: list[PlacedPoint], pause: float, now: datetime
) -> Iterator[tuple[float, float | None]]:
    """Yield the start and end of each period without a position, in Unix time. The end is None if
    the period continues.
    """
    moments = [each.moment.timestamp() for each in track]
    yield from ((before, after) for before, after in pairwise(moments) if after - before > pause)
    if moments and now.timestamp() - moments[-1] > pause:
        yield moments[-1], None


def _encode_pace(pace: TrackerPace) -> dict[str, Any]:
    return {
        "interval": pace.interval,
        "movingInterval": pace.moving_interval,
        "satelliteFactor": pace.satellite_factor,
        "batch": pace.batch,
        "costly": pace.costly,
        "moving": pace.moving,
        "due": pace.due_at,
        "reportedAt": pace.reported_at,
    }


async def _answer_cost(parts: Parts, tracking: Tracking, request: Request) -> Response:
    """Return the cost of a day of tracking on each channel, for a kit at rest and for a kit that
    moves all day.
    """
    refuse_others(request, ("interval",))
    interval = read_integer(request, "interval", 0, range(SHORTEST, LONGEST + 1))
    if not interval:
        raise Problem(
            400,
            detail=sentence(
                "?interval= is needed: seconds, {least} to {most}",
                least=SHORTEST,
                most=LONGEST,
            ),
        )
    pace = tracking.tracker
    if pace is None:
        raise Problem(
            409, detail="no tracker has reported its interval yet: check that fieldagent-track runs"
        )
    clock = parts.journal.clock
    now = clock.date(clock.now())
    # Use a typical position, because the cost hardly depends on the place.
    typical = Location(47.376888, 8.541694, None, 408.0, 1.4, 270.0)
    estimates = compute_costs(Package(typical), parts.outboxes, now)
    # Keep the ratio between the tracker's intervals in motion and at rest.
    moving = interval * pace.moving_interval / pace.interval

    def compute_daily_cost(channel: Channel, pause: float) -> dict[str, Any]:
        cost = estimates[channel]
        reports_per_day = -(
            -DAY_S // (pause * (pace.satellite_factor if channel == Channel.SATELLITE else 1))
        )
        credits_per_day = int(cost.credits * reports_per_day)
        price = parts.price
        return {
            "positions": int(reports_per_day),
            "bytes": int(cost.bytes * reports_per_day),
            "credits": credits_per_day,
            "money": price.format_amount(credits_per_day)
            if price is not None and credits_per_day
            else None,
        }

    day = {
        channel: {
            "rest": compute_daily_cost(channel, interval),
            "motion": compute_daily_cost(channel, moving),
        }
        for channel in estimates
    }
    return make_json_response({"interval": interval, "channels": day})


async def _choose_interval(tracking: Tracking, request: Request) -> Response:
    body = _read_object(request)
    faults = [
        ("is not a known member; known is interval", f"/{name[:80]}")
        for name in body
        if name != "interval"
    ]
    interval: Any = body.get("interval")
    if not _is_positive(interval) or interval % 1 or not SHORTEST <= interval <= LONGEST:
        faults.append(
            (
                sentence("must be whole seconds, {least} to {most}", least=SHORTEST, most=LONGEST),
                "/interval",
            )
        )
    if faults:
        raise Problem(422, detail="nothing was changed", errors=faults)
    interval = int(interval)
    await _store_interval(tracking, interval)
    return make_json_response({"chosenInterval": interval})


async def _clear_interval(tracking: Tracking, request: Request) -> Response:
    await _store_interval(tracking, None)
    return make_json_response({"chosenInterval": None})


async def _store_interval(tracking: Tracking, interval: int | None) -> None:
    try:
        await trio.to_thread.run_sync(tracking.choose, interval)
    except OSError as error:
        detail = sentence(
            "nothing was changed: the disk cannot store it ({strerror})", strerror=error.strerror
        )
        raise Problem(507, detail=detail) from None


async def _accept_report(parts: Parts, tracking: Tracking, request: Request) -> Response:
    """Accept a tracker's report about itself, and return the chosen interval."""
    body = _read_object(request)
    faults = [
        (sentence("must be {words}", words=expected), f"/{name}")
        for name, (fits, expected) in MEMBERS.items()
        if not fits(body.get(name))
    ]
    if faults:
        raise Problem(422, detail="this is not a tracker's report", errors=faults)
    clock = parts.journal.clock
    tracking.tracker = TrackerPace(
        float(body["interval"]),
        float(body["movingInterval"]),
        float(body["satelliteFactor"]),
        body.get("batch"),
        body["costly"],
        body["moving"],
        body.get("due"),
        clock.date(clock.now()),
    )
    return make_json_response({"chosenInterval": tracking.chosen})


def _is_positive(value: Any) -> bool:
    """Return True if `value` is a number from 0.001 to below 1e10, and not a bool. With a smaller
    interval, the number of positions a day would be too large.
    """
    return isinstance(value, int | float) and not isinstance(value, bool) and 0.001 <= value < 1e10


def _is_positive_or_none(value: object) -> bool:
    return value is None or _is_positive(value)


def _is_true_or_false(value: object) -> bool:
    return isinstance(value, bool)


MEMBERS = {
    **dict.fromkeys(
        ("interval", "movingInterval", "satelliteFactor"), (_is_positive, "0.001 or more")
    ),
    **dict.fromkeys(("batch", "due"), (_is_positive_or_none, "0.001 or more, or null")),
    **dict.fromkeys(("costly", "moving"), (_is_true_or_false, "true or false")),
}


def _read_object(request: Request) -> dict[str, Any]:
    """Return the JSON object in the request's body. Raises Problem if the body is not a JSON
    object.
    """
    with convert_refusals():
        document = load_document(get_required_body(request))
    if not isinstance(document, dict):
        raise Problem(422, detail="must be an object", errors=[("must be an object", "")])
    return document
