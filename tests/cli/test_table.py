"""The form of the tables of commands. The commands themselves are tested in `test_arguments.py`."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

from fieldagent.cli.argument_types import TYPES, port
from fieldagent.cli.command_parser import CommandParser
from fieldagent.cli.table import add_commands, read_argument, read_table


@pytest.mark.parametrize(
    ("line", "names", "options"),
    [
        ("name", ["name"], {}),
        ("name: of a kit, 30 % of it", ["name"], {"help": "of a kit, 30 %% of it"}),
        ("users* USER", ["users"], {"nargs": "*", "metavar": "USER"}),
        ("-v,--verbose: log", ["-v", "--verbose"], {"action": "store_true", "help": "log"}),
        ("--port port=9091", ["--port"], {"type": port, "default": 9091}),
        ("--email EMAIL =", ["--email"], {"metavar": "EMAIL", "default": ""}),
        ("--kit* NAME =[]", ["--kit"], {"action": "append", "metavar": "NAME", "default": []}),
        ("--rule! (on|off)", ["--rule"], {"choices": ("on", "off"), "required": True}),
        ("--read =read", ["--read"], {"action": "store_const", "const": "read"}),
        ("--for 8h >length", ["--for"], {"metavar": "8h", "dest": "length"}),
        ("--take KIT NUMBER", ["--take"], {"metavar": ("KIT", "NUMBER"), "nargs": 2}),
        ("--set* NAME=VALUE", ["--set"], {"action": "append", "metavar": "NAME=VALUE"}),
        ("--at H:M =1:2: now", ["--at"], {"metavar": "H:M", "default": "1:2", "help": "now"}),
        ("--go-on: hidden", ["--go-on"], {"action": "store_true", "help": argparse.SUPPRESS}),
    ],
)
def test_argument_line_is_parsed(line: str, names: list[str], options: dict[str, Any]) -> None:
    assert read_argument(line, TYPES) == (names, options)


def test_environment_variable_provides_a_default(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "--workspace! NAME $FIELDAGENT_TEST"
    assert read_argument(line, TYPES)[1] == {"metavar": "NAME", "required": True}
    monkeypatch.setenv("FIELDAGENT_TEST", "Alps")
    options = {"metavar": "NAME", "required": False, "default": "Alps"}
    assert read_argument(line, TYPES)[1] == options


@pytest.mark.parametrize("line", ["--limit cuont=100", "@lisiting"])
def test_misspelt_type_or_list_name_raises(line: str) -> None:
    commands = read_table(f"list -> some:thing: list them\n  {line}\n@listing\n  --json", "none")
    with pytest.raises(KeyError):
        add_commands(CommandParser(), commands)


def test_option_is_accepted_before_and_after_the_subcommand() -> None:
    text = "send: send it\n  --dry-run\nsend text -> some:thing: send a text\n  --dry-run"
    parser = CommandParser()
    add_commands(parser, read_table(text, "none"))
    for words in (["send", "--dry-run", "text"], ["send", "text", "--dry-run"]):
        assert parser.parse_args(words).dry_run
    assert not parser.parse_args(["send", "text"]).dry_run


def test_commands_without_a_group_are_listed_under_other() -> None:
    text = """sent [Packages] -> some:thing: list them
  = sent, show: list Packages; show one
show -> some:thing: show one
own -> theirs:thing: do what an extension does
unit [hidden] -> some:thing: run for systemd"""
    parser = CommandParser(description="Send messages.")
    add_commands(parser, read_table(text, "none"))
    *_, rows = parser.format_help().split("\n\n")
    assert rows.splitlines() == [
        "Packages  sent, show  list Packages; show one",
        "Other     own         do what an extension does",
    ]


@pytest.mark.parametrize("name", sorted(TYPES))
def test_refused_value_is_reported_with_the_valid_values(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = CommandParser()
    add_commands(parser, read_table(f"run -> some:thing: run it\n  value {name}", "none"))
    if name in ("channel", "path"):
        assert parser.parse_args(["run", "x y"]).value
        return
    with pytest.raises(SystemExit):
        parser.parse_args(["run", "x y"])
    refused = capsys.readouterr().err.splitlines()[-1]
    valid = refused.partition("'x y' is ")[2]
    assert valid.startswith(("not a ", "wrong; use a ", "wrong; use hours such as ")), refused
