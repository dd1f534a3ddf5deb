"""The search for an interval: a path that cuts idle links, a kit, and a simulated clock."""

from __future__ import annotations

from math import inf

import pytest

from fieldagent.wire.keepalive import LONGEST, Keepalive

DAY = 86_400.0


class Path:
    """A path that forgets a link after `limit` idle seconds. If `tells` is set, it ends the
    connection.
    """

    def __init__(self, keepalive: Keepalive, limit: float = inf, *, tells: bool = True) -> None:
        self.keepalive, self.limit, self.tells = keepalive, limit, tells
        self.now = 1000.0
        self.links = 0
        self.tests = 0

    def link(self) -> None:
        self.links += 1
        self.keepalive.record_reached(self.now)
        self.keepalive.begin(self.now)

    def live(self, seconds: float) -> None:
        until = self.now + seconds
        if not self.links:
            self.link()
        while self.now < until:
            wait = self.keepalive.compute_due_time() - self.now
            if wait >= self.limit and self.tells:
                self.now += self.limit
                self.break_off()
                continue
            self.now += min(wait, seconds)
            if wait > seconds:
                return
            self.tests += 1
            self.keepalive.record_sent(self.now, needs_answer=True)
            if wait >= self.limit:
                self.now += 30
                self.break_off()
            else:
                self.keepalive.record_received(self.now)
                self.keepalive.record_acknowledged(self.now)

    def break_off(self, *, explained: bool = False, reachable: bool = True) -> None:
        self.keepalive.end(self.now, is_explained=explained)
        if not reachable:
            self.keepalive.record_missed()
        self.now += 2
        self.link()


@pytest.mark.parametrize(
    ("limit", "tells", "interval", "links"),
    [
        (inf, True, LONGEST, 1),
        (10_000, True, LONGEST, 1),
        (240, True, 180, 3),  # a balancer in a cloud
        (60, True, 45, 3),  # nginx
        (50, True, 37.5, 3),  # HAProxy's example
        (30, True, 22.5, 3),
        (240, False, 225, 4),  # a cellular network
        (60, False, 50.625, 4),
    ],
)
def test_keepalive_finds_the_interval_that_the_path_allows(
    limit: float, tells: bool, interval: float, links: int
) -> None:
    path = Path(Keepalive(None), limit, tells=tells)
    path.live(DAY / 2)
    assert path.keepalive.interval == interval
    assert path.links == links
    cut = path.keepalive.cut
    assert (cut is None) == (limit > LONGEST)
    assert cut is None or cut.exact is tells


def test_keepalive_starts_short_and_promises_the_longest_interval() -> None:
    keepalive = Keepalive(None)
    assert (keepalive.interval, keepalive.promise) == (45, 300)


@pytest.mark.parametrize("interval", [0, 5, 300, 86_400])
def test_configured_interval_does_not_change(interval: float) -> None:
    keepalive = Keepalive(interval)
    path = Path(keepalive, 60)
    path.live(DAY)
    assert keepalive.interval == (interval or inf)
    assert keepalive.promise == interval
    assert (path.links == 1) == (interval == 5)


def test_too_long_configured_interval_is_reported() -> None:
    path = Path(Keepalive(300), 60)
    path.live(DAY)
    said = (
        "something in the network cuts idle links after 60 s: remove cellular-ping, or set it to 45"
    )
    assert path.keepalive.describe_path() == said


def test_measured_idle_limit_is_reported() -> None:
    path = Path(Keepalive(None), 60)
    assert path.keepalive.describe_path() == ""
    path.live(3600)
    said = "something in the network cuts idle links after 60 s: tested every 45 s"
    assert path.keepalive.describe_path() == said
    silent = Path(Keepalive(None), 60, tells=False)
    silent.live(3600)
    assert "cuts idle links within 68 s" in silent.keepalive.describe_path()


def test_longer_interval_is_tried_once_a_day() -> None:
    """A wrong limit is removed, and a correct one costs one link per day."""
    path = Path(Keepalive(None), 60)
    path.live(3600)
    before = path.links
    path.live(10 * DAY)
    assert 9 <= path.links - before <= 11
    assert path.keepalive.interval == 45
    path.limit = inf
    path.live(2 * DAY)
    assert path.keepalive.interval == LONGEST
    assert path.keepalive.describe_path() == ""


def test_interval_shrinks_after_the_path_becomes_worse() -> None:
    path = Path(Keepalive(None))
    path.live(DAY)
    path.limit = 60
    path.live(3600)
    assert path.keepalive.interval == 45
    path.limit = 20
    path.live(3600)
    assert path.keepalive.interval == 15


@pytest.mark.parametrize("how", ["explained", "unreachable", "unequal", "busy", "answered"])
def test_unrelated_disconnects_do_not_shrink_the_interval(how: str) -> None:
    """The disconnects are a stopping hub, lost coverage, and breaks at various times and during a
    test.
    """
    path = Path(Keepalive(None))
    path.live(DAY)
    for number in range(20):
        path.now += 100 if how != "unequal" else 20 + 11 * number
        if how == "busy":
            path.keepalive.record_sent(path.now, needs_answer=True)
            path.keepalive.record_received(path.now)
            path.keepalive.record_acknowledged(path.now)
            path.now += 1
        path.break_off(explained=how == "explained", reachable=how != "unreachable")
        if how == "answered":
            path.live(400)
    assert path.keepalive.cut is None
    assert path.keepalive.interval == LONGEST


def test_poor_coverage_does_not_shrink_the_interval_too_far() -> None:
    """At each check the tests are lost, and the hub is in range immediately afterwards."""
    keepalive = Keepalive(None)
    path = Path(keepalive, 0, tells=False)
    for _ in range(500):
        path.live(1)
    assert keepalive.interval >= 30


def test_missing_hello_is_not_treated_as_an_idle_cut() -> None:
    path = Path(Keepalive(None))
    path.live(3600)
    path.break_off(explained=True)
    for _ in range(5):
        path.keepalive.end(path.now, is_explained=True)
        path.now += 100
        path.keepalive.end(path.now, is_explained=False)
        path.keepalive.record_reached(path.now)
    assert path.keepalive.cut is None
