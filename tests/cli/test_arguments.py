"""The interpretation of typed command lines: real processes and their output."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from fieldagent.cli.arguments import build_parser
from fieldagent.cli.command_tree import Command, list_commands
from fieldagent.extensions import list_places
from fieldagent.system.extension import import_own
from tests.processes import MODULE, PATIENCE, agent


def fieldagent(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*MODULE, *arguments], capture_output=True, text=True, timeout=PATIENCE, check=False
    )


@pytest.mark.parametrize("words", [[], ["send"], ["send", "message"], ["hub", "user"], ["help"]])
def test_help_command_prints_the_same_as_the_help_option(words: list[str]) -> None:
    asked, flagged = fieldagent("help", *words), fieldagent(*words, "--help")
    assert (asked.returncode, asked.stderr) == (0, "")
    assert asked.stdout == flagged.stdout
    assert asked.stdout.startswith(" ".join(["usage: fieldagent", *words]))


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("sned message hello", "send"),
        ("send mesage hello", "message"),
        ("hub usr add Ada", "user"),
        ("hub user ad Ada", "add"),
        ("push mesage hello", "message"),
        ("help stauts", "status"),
        ("status --jsn", "--json"),
        ("status --prot=9092", "--port"),
        ("queue --channel satelite", "Satellite"),
        ("inbound list --state daed", "dead"),
        ("hub restored", "database restored"),
    ],
)
def test_misspelt_command_is_answered_with_the_nearest_one(typed: str, meant: str) -> None:
    done = fieldagent(*typed.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert f"did you mean '{meant}'?" in done.stderr


@cache
def all_commands() -> dict[tuple[str, ...], Command]:
    return {each.words: each for each in list_commands(build_parser())}


@pytest.mark.parametrize("words", [*filter(None, all_commands())], ids=" ".join)
def test_command_parser_built_alone_equals_that_in_the_full_tree(words: tuple[str, ...]) -> None:
    whole = all_commands()
    alone = {each.words: each for each in list_commands(build_parser(words))}
    assert alone[words] == whole[words]
    called = [each for each in alone if each[: len(words)] == words]
    assert called == [each for each in whole if each[: len(words)] == words]


def leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield the parser of each command that has none below it."""
    below = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    if not below:
        yield parser
    for each in below[:1]:
        for inner in {id(choice): choice for choice in each.choices.values()}.values():
            yield from leaves(inner)


@pytest.mark.parametrize(
    "parser", [*leaves(build_parser())], ids=lambda parser: parser.prog.partition(" ")[2]
)
def test_every_command_has_a_function_and_help_texts(parser: argparse.ArgumentParser) -> None:
    if parser.prog != "fieldagent help":
        assert callable(import_own(parser.get_default("carry_out")))
    help_text = "".join(parser.format_help().split())
    for action in parser._actions:
        assert action.help, action.dest
        shown = "" if action.help == argparse.SUPPRESS else action.help.replace("%%", "%")
        assert "".join(shown.split()) in help_text


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("xyzzy", "unknown value 'xyzzy'; it is one of setup, check, run, send,"),
        ("status --xyzzy", "'--xyzzy' is unknown; see `fieldagent status --help`"),
        ("status now", "'now' is unknown; see `fieldagent status --help`"),
    ],
)
def test_unrecognisable_argument_is_answered_with_the_valid_values(
    typed: str, message: str
) -> None:
    done = fieldagent(*typed.split())
    assert done.returncode == 2
    assert message in done.stderr


def flags(parser: argparse.ArgumentParser) -> list[str]:
    return [
        each.option_strings[-1]
        for each in parser._actions
        if isinstance(each, argparse._StoreTrueAction)
    ]


def needed(parser: argparse.ArgumentParser) -> list[str]:
    """Return the options that may not be left out; each takes a value."""
    return [e.option_strings[-1] for e in parser._actions if e.option_strings and e.required]


def split(parser: argparse.ArgumentParser) -> bool:
    """Return True if it has options and its last argument is optional."""
    arguments = parser._get_positional_actions()
    return bool(flags(parser) and arguments) and arguments[-1].nargs in ("*", "?", "+")


@pytest.mark.parametrize(
    "parser", [*filter(split, leaves(build_parser()))], ids=lambda parser: parser.prog
)
def test_options_may_stand_between_arguments(parser: argparse.ArgumentParser) -> None:
    """Before 3.12, argparse takes all arguments from one place."""
    arguments = parser._get_positional_actions()
    words = [next(iter(each.choices)) if each.choices else "1" for each in arguments]
    options = [w for each in needed(parser) for w in (each, "1")] + flags(parser)[:1]
    whole, rest = parser.parse_known_args([*words, *options])
    assert rest == []
    between = [*words[:-1], *options, words[-1]]
    assert parser.parse_known_args(between) == (whole, [])


@pytest.mark.parametrize(
    "words",
    [
        ["key", "revoke"],
        ["user", "token", "revoke"],
        ["key", "rate"],
        ["webhook", "remove"],
        ["device", "dead-letter", "remove"],
        ["sos", "show"],
        ["sos", "close"],
    ],
)
@pytest.mark.parametrize("number", ["9" * 23, "-1", "x"])
def test_error_for_invalid_row_number_suggests_the_list_command(
    words: list[str], number: str
) -> None:
    done = fieldagent("hub", *words, "--", number)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert f"'{number}' is wrong; use a number that `list` shows" in done.stderr


def test_channel_name_ignores_case_in_commands_but_not_in_the_api(tmp_path: Path) -> None:
    with agent(
        tmp_path,
        {"satellite-port": str(tmp_path / "none")},
    ) as running:
        port = ["--port", str(running.port)]
        sent = fieldagent("send", "message", "hello", "--channel", "sATELLITE", "--no-wait", *port)
        assert sent.returncode == 0, sent.stderr
        for name in ("satellite", "SATELLITE", "Satellite"):
            listed = fieldagent("queue", "--channel", name, *port)
            assert (listed.returncode, listed.stdout.count("Satellite  hello")) == (0, 1)
        assert fieldagent("queue", "--channel", "cellular", *port).stdout == "nothing waits\n"
        assert running.call("GET", "/api/queue?channel=satellite").status == 400
        assert running.call("GET", "/api/queue?channel=Satellite").status == 200
        canceled = fieldagent("cancel", "1", "--channel", "satellite", *port)
        assert (canceled.returncode, canceled.stdout) == (0, "Package 1: Canceled\n")


def test_message_that_reads_like_an_sos_gets_a_hint(tmp_path: Path) -> None:
    with agent(tmp_path, {"satellite-port": str(tmp_path / "none")}) as running:
        port = ["--no-wait", "--port", str(running.port)]
        hint = "If it is an emergency, run `fieldagent sos TEXT`"
        for text, hints in (("S.O.S. leg broken", True), ("СОС", True), ("we come", False)):
            sent = fieldagent("send", "message", text, *port)
            assert (sent.returncode, hint in sent.stderr) == (0, hints)
        urgent = fieldagent("send", "message", "SOS", "--priority", "100", *port)
        assert (urgent.returncode, hint in urgent.stderr) == (0, False)


RUN_FOR_EVER = {"run", "hub run"}
"""These print only the lines of their log and the hook's output."""
TEXTS = {"help", "completion", "manual"}


def without_json() -> set[tuple[str, ...]]:
    """Return the words of each command without the option `--json`."""
    return {
        each.words
        for each in list_commands(build_parser())
        if not each.subcommands and not any("--json" in o.names for o in each.options)
    }


def test_every_command_with_output_has_a_json_option() -> None:
    core = {" ".join(words) for words in without_json() if words[0] not in list_places("commands")}
    assert core == RUN_FOR_EVER | TEXTS


def test_decimal_comma_is_read_unless_ambiguous(tmp_path: Path) -> None:
    with agent(tmp_path, {"satellite-port": str(tmp_path / "nobody")}) as kit:
        local = ("--port", str(kit.port))
        where = ("send", "location", "-33,9", "-8,5417", "--no-wait", *local)
        done = fieldagent(*where, "--altitude", "2450,5")
        assert (done.returncode, done.stderr) == (0, "")
        (sent,) = kit.call("GET", "/api/packages").body["packages"]
        assert sent["position"] == [-33.9, -8.5417]
        done = fieldagent(*where, "--altitude", "2,450")
        assert (done.returncode, done.stdout) == (2, "")
        assert "'2,450' is not a number such as 2450.5 or 2450,5" in done.stderr
        done = fieldagent("sos", "--yes", "--no-wait", "--position", "-33,9", "-8,5", *local)
        assert (done.returncode, done.stderr) == (0, "")


def test_position_is_read_as_mgrs_utm_or_national_grid(tmp_path: Path) -> None:
    with agent(tmp_path, {"satellite-port": str(tmp_path / "nobody")}) as kit:
        local = ("--port", str(kit.port))

        def send(*words: str) -> subprocess.CompletedProcess[str]:
            return fieldagent("send", *words, "--no-wait", *local)

        hut = [47.375554, 8.541092]
        for place in (
            ("32T MT 65356 47001",),
            ("32t", "MT", "65356", "47001"),
            ("32TMT6535647001",),
        ):
            assert send("location", *place).returncode == 0
        assert send("location", "32T", "465356", "5247001").returncode == 0
        assert send("waypoint", "32T", "MT", "65356", "47001", "Hut").returncode == 0
        assert send("location", "BAS", "88946", "91876").returncode == 0
        positions = [each["position"] for each in kit.call("GET", "/api/packages").body["packages"]]
        assert positions.pop(0) == pytest.approx([-85.5, 10.25], abs=1e-4)
        assert positions == [pytest.approx(hut, abs=1e-5)] * 5
        # The letter of a hemisphere is not a band.
        assert send("location", "33S", "151E").returncode == 0
        done = send("location", "32T", "MI", "65356", "47001")
        assert (done.returncode, done.stdout) == (2, "")
        assert "'32T MI 65356 47001' is not a UTM or MGRS position: use 32T 465" in done.stderr
        assert "'47.3' is only a latitude: add the longitude" in send("location", "47.3").stderr
        assert "'500' is not part of a position" in send("location", "1", "2", "500").stderr
        assert "'hut' is not a position; use LATITUDE" in send("location", "hut").stderr
        sos = ("sos", "--yes", "--no-wait", *local, "--position")
        assert fieldagent(*sos, "32T", "MI", "65356", "47001").returncode == 2
        assert kit.call("GET", "/api/sos").body["incident"] is None
        assert fieldagent(*sos, "32T", "MT", "65356", "47001", "a", "broken", "leg").returncode == 0
        raised = [e for e in kit.call("GET", "/api/packages").body["packages"] if e["sos"]]
        assert {each["text"] for each in raised} == {"a broken leg", None}
        (where,) = [each["position"] for each in raised if each["position"]]
        assert where == pytest.approx(hut, abs=1e-5)
        done = fieldagent(*sos, "99", "8")
        unread = "the SOS is sent, but a part cannot be read: /position/latitude must be from -90"
        assert done.returncode == 0 and unread in done.stderr
        done = fieldagent("sos", "leg", "--yes", *local, "--position", "47", "8", "arm")
        assert (done.returncode, "'arm' is not part of a position" in done.stderr) == (
            2,
            True,
        )


def test_http_only_command_starts_without_importing_trio() -> None:
    code = (
        "import sys, fieldagent.__main__ as m; sys.argv = ['fieldagent', 'status', '--port', '1'];"
        "code = m.main(); assert code == 69, code;"
        "bad = {'trio', 'h11', 'serial', 'cbor2', 'sqlite3'} & sys.modules.keys();"
        "assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
