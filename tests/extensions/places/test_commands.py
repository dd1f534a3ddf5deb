"""Commands and exports of fences, routes and trackers."""

from __future__ import annotations

from pathlib import Path

from tests.cli.test_hub_commands import refuse_odd_names
from tests.hub.test_console import settle_in
from tests.hub.test_export import export, rows
from tests.processes import administer

NAMING = (
    "tracker source add {}",
    "tracker add --user Ada --id 12345678 {}",
    "fence add --circle 46,8,200 {}",
    "route add --kit kit --to 45.9,7.6,300 --by 2099-01-01T00:00Z --name {}",
)


def test_indistinguishable_fence_route_and_tracker_names_are_refused(tmp_path: Path) -> None:
    refuse_odd_names(str(tmp_path / "hub.sqlite3"), NAMING)


def test_workspace_export_contains_fences_and_routes(database: str, tmp_path: Path) -> None:
    settle_in(database)
    administer(database, "fence", "add", "Hut", "--circle", "45.9,7.6,500")
    place = ("--to", "45.9,7.6,300", "--by", "2099-01-01T00:00Z", "--name", "Pass")
    administer(database, "route", "add", "--kit", "kit-ada", *place)
    target = tmp_path / "alps"
    done = export(database, "workspace", "export", target)
    assert done.returncode == 0, done.stderr
    assert [each["name"] for each in rows(target, "fences")] == ["Hut"]
    assert [(each["name"], each["state"]) for each in rows(target, "routes")] == [
        ("Pass", "under way")
    ]
