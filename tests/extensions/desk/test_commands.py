"""Commands and exports of contacts and of the watch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_arguments import fieldagent
from tests.cli.test_hub_commands import refuse_odd_names, run_command
from tests.processes import administer


def test_indistinguishable_contact_names_are_refused(tmp_path: Path) -> None:
    refuse_odd_names(str(tmp_path / "hub.sqlite3"), ("contact add {} a@example.org",))


@pytest.mark.parametrize(
    ("settings", "fault"),
    [("", "nothing was added: "), ("smtp-host=relay.example.org\nmail-from=hub@example.org\n", "")],
)
def test_contact_is_refused_without_a_service_to_reach_them(
    tmp_path: Path, settings: str, fault: str
) -> None:
    database, config = str(tmp_path / "hub.sqlite3"), tmp_path / "hub.properties"
    administer(database, "init", "Alps")
    config.write_text(settings)
    address = "a@example.org" if settings else "+41790000000"
    words = ("hub", "contact", "add", "Duty", address, "--config", str(config))
    code, _, complained = run_command(words, database)
    assert (code != 0) is bool(fault) and fault in complained
    assert len(administer(database, "contact", "list")) == (not fault)


def test_contact_without_settings_file_is_added_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    database = str(tmp_path / "hub.sqlite3")
    administer(database, "init", "Alps")
    words = ("hub", "contact", "add", "Duty", "a@example.org")
    code, _, complained = run_command(words, database)
    assert code == 0 and "unknown whether this contact can be reached" in complained
    assert "set smtp-host" in complained


def test_empty_watch_is_described_in_a_sentence(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    administer(database, "init", "Alps")
    code, output, _ = run_command(("hub", "contact", "watch", "show"), database)
    assert code == 0
    assert output == "hours: none: no watch is required\nno one is on watch\n"


def test_command_without_its_noun_is_answered_with_the_whole_one() -> None:
    done = fieldagent("hub", "chain", "test")
    assert (done.returncode, done.stdout) == (2, "")
    assert "did you mean 'contact chain'?" in done.stderr
