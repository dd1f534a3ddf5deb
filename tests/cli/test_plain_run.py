"""The fast reader of arguments gives the same result as argparse, and units use its form."""

from __future__ import annotations

import shlex
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from fieldagent.cli.arguments import build_parser
from fieldagent.cli.kit.plain_run import parse_plain_run

ROOT = Path(__file__).parents[2]
WORDS = st.sampled_from(
    [
        "run",
        "hub",
        "help",
        "--config",
        "--conf",
        "-v",
        "--",
        "-",
        "",
        "-x",
        "a b",
        "/etc/a.properties",
    ]
)


@given(st.lists(WORDS, max_size=4).map(lambda words: ["run", *words]))
def test_fast_reader_agrees_with_argparse_or_declines(words: list[str]) -> None:
    plain = parse_plain_run(words)
    if plain is not None:
        read = vars(build_parser(["run"]).parse_args(words))
        assert plain._asdict() == {name: read[name] for name in plain._fields}
        assert read["carry_out"] == "fieldagent.cli.kit.run:run"


def test_fast_reader_accepts_the_command_of_the_unit() -> None:
    unit = (ROOT / "systemd/fieldagent.service").read_text()
    (command,) = (line for line in unit.splitlines() if line.startswith("ExecStart="))
    plain = parse_plain_run(shlex.split(command)[1:])
    assert plain is not None
    assert plain.config == Path("/etc/fieldagent/agent.properties")


def test_fast_reader_declines_other_commands_and_errors() -> None:
    for words in ([], ["help"], ["hub", "run"], ["run", "--config"], ["run", "--config", "-v"]):
        assert parse_plain_run(words) is None
