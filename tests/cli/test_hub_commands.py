"""Each of the hub's commands with missing objects, and with a disk that refuses writes."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import TypeVar

import pytest

from fieldagent.cli.arguments import build_parser, dispatch
from fieldagent.hub.records import sos
from fieldagent.hub.store.contract import Db
from fieldagent.hub.store.opening import open_store
from fieldagent.hub.store.sqlite import SqliteStore
from fieldagent.store.group import StoreFailed
from fieldagent.system.exit_codes import IO_FAILED, REFUSED, UNAVAILABLE
from tests.cli.test_arguments import leaves
from tests.processes import administer

T = TypeVar("T")
NUMBER, NAME = "999999", "nobody"
OTHERS = ("12h", "47.0", "08:00-17:00")
"""Values of arguments that are neither a name nor a number."""
APART = {f"fieldagent hub {name}" for name in ("run", "check", "init", "device make")}
"""Commands that run forever, check the settings, make the workspace, or make many kits."""


def find_accepted_value(action: argparse.Action, like: str) -> list[str]:
    """Return words that this argument accepts, but that name nothing that exists."""
    for word in (*(action.choices or ()), like, NUMBER, *OTHERS):
        with suppress(ValueError, argparse.ArgumentTypeError):
            if callable(action.type):
                action.type(word)
            return [str(word)] * (action.nargs if isinstance(action.nargs, int) else 1)
    raise AssertionError(f"{action.dest} takes none of them: name one in OTHERS")


def make_command_line(parser: argparse.ArgumentParser, like: str) -> list[str]:
    """Return the required words, and others that lead further: a workspace, and a yes."""
    words = parser.prog.split()[1:]
    options = [each for each in parser._actions if each.option_strings]
    groups = (each for each in parser._mutually_exclusive_groups if each.required)
    wanted = [each for each in options if each.required]
    wanted += [
        next(each for each in group._group_actions if each.option_strings) for group in groups
    ]
    for each in parser._get_positional_actions():
        words += find_accepted_value(each, like)
    for each in wanted:
        words += [
            each.option_strings[-1],
            *(find_accepted_value(each, like) if each.nargs != 0 else ()),
        ]
    known = {name for each in options for name in each.option_strings}
    if "--workspace" in known and "--workspace" not in words:
        words += ["--workspace", "1"]
    return words + ["--yes"] * ("--yes" in known)


def list_command_lines() -> Iterator[tuple[str, ...]]:
    for parser in leaves(build_parser(("hub",))):
        if parser.prog.startswith("fieldagent hub ") and parser.prog not in APART:
            yield tuple(make_command_line(parser, NUMBER))
            yield tuple(make_command_line(parser, NAME))


TYPED = sorted({*list_command_lines()})
CHANGING = [words for words in TYPED if not {"backup", "migrate"} & {*words}]
"""Commands with their own transaction. The others copy or open the database."""


@pytest.fixture(scope="module")
def alps(tmp_path_factory: pytest.TempPathFactory) -> str:
    database = str(tmp_path_factory.mktemp("alps") / "hub.sqlite3")
    administer(database, "init", "Alps")
    return database


def run_command(words: Sequence[str], database: str) -> tuple[object, str, str]:
    """Return the exit code, the output, and the error output."""
    output, complained = io.StringIO(), io.StringIO()
    with redirect_stdout(output), redirect_stderr(complained):
        try:
            code: object = dispatch([*words, "--database", database])
        except SystemExit as ended:
            code = ended.code
    return code, output.getvalue(), complained.getvalue()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("user", "add", "M\udcfcller"), "nothing was changed, because an argument is not UTF-8"),
        (
            ("group", "add", "M\udcfcller", "Ada"),
            "nothing was changed, because an argument is not UTF-8",
        ),
        (("database", "backup", "."), ". already exists"),
        (("workspace", "export", "x" * 300), "the export stopped"),
    ],
    ids=lambda words: " ".join(words)[:20],
)
def test_value_that_no_disk_or_database_stores_is_refused(
    words: tuple[str, ...], message: str, alps: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A terminal set to Latin-1 sends such bytes, and Python has a surrogate for each."""
    monkeypatch.chdir(tmp_path)
    code, _, complained = run_command(("hub", *words), alps)
    assert code and message in complained


def test_device_number_takes_precedence_over_an_equal_name(tmp_path: Path) -> None:
    """ "revoke 2" means kit 2, not the first kit, whose name is "2"."""
    database = str(tmp_path / "hub.sqlite3")
    administer(database, "init", "Alps")
    administer(database, "workspace", "add", "1")
    ada = str(administer(database, "user", "add", "Ada", "--workspace", "1")["id"])
    assert [
        each["name"] for each in administer(database, "user", "list", "--workspace", "Alps")
    ] == [
        "push",
        "Ada",
    ]
    for name in ("2", "kit"):
        administer(database, "device", "add", name, "--user", ada, "--workspace", "Alps")
    administer(database, "device", "revoke", "2", "--workspace", "Alps")
    listed = administer(database, "device", "list", "--workspace", "Alps")
    assert [each["name"] for each in listed if each["revoked"] is not None] == ["kit"]


NAMING = (
    "workspace add {}",
    "user add {}",
    "group add {}",
    "device add --user Ada {}",
    "device rename kit {}",
    "key add {}",
    "user token add --user Ada {}",
)


def test_indistinguishable_names_are_refused(tmp_path: Path) -> None:
    refuse_odd_names(str(tmp_path / "hub.sqlite3"), NAMING)


def refuse_odd_names(database: str, naming: Sequence[str]) -> None:
    """Check that each of these commands refuses indistinguishable names."""
    administer(database, "init", "Alps")
    administer(database, "user", "add", "Ada")
    administer(database, "device", "add", "kit", "--user", "Ada")
    for words in naming:
        for name in (" ", "a bell\x07", "x" * 81):
            arguments = [name if each == "{}" else each for each in words.split()]
            code, output, complained = run_command(["hub", *arguments], database)
            assert code == REFUSED and not output, (words, name, complained)
            assert "name must have 1 to 80 " in complained or "name and email can" in complained


ODD = ("9" * 30, "1e300", "nan", "-1")
"""Numbers that no row, day or clock can have."""


def test_impossible_row_numbers_are_refused_by_all_commands() -> None:
    taken = []
    for parser in leaves(build_parser(("hub",))):
        for action in parser._actions:
            if action.type is Path or not callable(action.type):
                continue
            for word in ODD:
                with suppress(ValueError, argparse.ArgumentTypeError):
                    action.type(word)
                    taken.append((parser.prog, action.dest, word))
    assert taken == []


@pytest.mark.parametrize("words", CHANGING, ids=" ".join)
def test_failed_commit_prints_no_success(
    words: tuple[str, ...], alps: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A printed key that is later unknown is worse than no key."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO("correct horse\n"))
    once = SqliteStore.run_once

    def in_vain(store: SqliteStore, operation: Callable[[Db], T]) -> T:
        def fail_at_the_end(db: Db) -> T:
            operation(db)
            raise StoreFailed("the disk cannot store data")

        return once(store, fail_at_the_end)

    monkeypatch.setattr(SqliteStore, "run_once", in_vain)
    code, output, complained = run_command(words, alps)
    assert output == ""
    assert "Save these values" not in complained
    assert code == IO_FAILED or code in (2, REFUSED)


@pytest.mark.parametrize("words", [each for each in TYPED if "migrate" not in each], ids=" ".join)
def test_no_command_creates_a_database_at_a_misspelt_path(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO("correct horse\n"))
    code, output, _ = run_command(words, str(tmp_path / "wrong.sqlite3"))
    assert code and not output
    assert not [*tmp_path.glob("wrong.sqlite3*")]


def test_user_needs_an_email_address_in_the_usual_form(alps: str) -> None:
    for email, is_good in {
        "nonsense": False,
        "a b@example.org": False,
        "eva@example.org": True,
    }.items():
        code, _, complained = run_command(
            ("hub", "user", "add", "Eva", "--email", email, "--workspace", "1"), alps
        )
        assert (code == 0) is is_good, complained
        assert is_good or f"such as ada@example.org, not {email}" in complained


def test_missing_database_is_reported_with_its_path(tmp_path: Path) -> None:
    missing = str(tmp_path / "wrong" / "hub.sqlite3")
    code, _, complained = run_command(("hub", "user", "list"), missing)
    assert code == UNAVAILABLE
    assert f"there is no database at {missing}: check --database" in complained


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("Ada",), REFUSED),
        (("ada",), REFUSED),
        (("Ada", "--workspace", "Andes"), 0),
        (("Ada", "--type", "Integration"), 0),
    ],
)
def test_second_user_with_the_same_name_in_a_workspace_is_refused(
    tmp_path: Path, words: tuple[str, ...], code: int
) -> None:
    """A kit addresses users by name."""
    database = str(tmp_path / "hub.sqlite3")
    administer(database, "init", "Alps")
    administer(database, "workspace", "add", "Andes")
    known = administer(database, "user", "add", "Ada", "--workspace", "Alps")["id"]
    workspace = () if "--workspace" in words else ("--workspace", "Alps")
    got, _, complained = run_command(("hub", "user", "add", *words, *workspace), database)
    assert got == code
    assert (f"user {known} of this workspace is called Ada, too" in complained) is bool(code)


def test_failed_webhook_registration_prints_no_secret(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    administer(database, "init", "Alps")
    code, output, complained = run_command(
        ("hub", "webhook", "add", "http://127.0.0.1:1/"), database
    )
    assert code == REFUSED and "nothing was added" in complained
    assert "whsec_" not in output + complained


@pytest.mark.parametrize("kind", ["overdue", "fence", "operator", "watch"])
def test_alarms_are_not_listed_or_handled_as_sos(tmp_path: Path, kind: str) -> None:
    database = str(tmp_path / "hub.sqlite3")
    administer(database, "init", "Alps")
    administer(database, "user", "add", "Olga")
    administer(database, "user", "role", "Olga", "dispatcher")
    administer(database, "device", "add", "kit", "--user", "Olga")
    with closing(open_store(database)) as store:
        store.run_once(lambda db: sos.raise_incident(db, 1, 1, None, 1e9, kind=kind))
    assert administer(database, "sos", "list") == []
    assert [each["kind"] for each in administer(database, "alarm", "list")] == [kind]
    for deed in (("show", "1"), ("acknowledge", "1"), ("close", "1", "mistake")):
        code, _, complained = run_command(("hub", "sos", *deed), database)
        assert code == REFUSED and "no SOS 1 is in that workspace" in complained
    code, output, _ = run_command(("hub", "alarm", "close", "1", "false alarm"), database)
    assert code == 0 and "SOS" not in output
    assert administer(database, "alarm", "show", "1")["state"] == "closed"
    assert administer(database, "audit")[0]["action"] == "alarm close"
