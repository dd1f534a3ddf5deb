"""The completion of each shell, tested in the shell itself, and the manual page, formatted by
groff.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from fieldagent.cli.arguments import build_parser
from fieldagent.cli.command_tree import list_commands as all_commands
from tests.machine import unavailable
from tests.processes import MODULE, PATIENCE

BASH = """
source {script}
COMP_WORDS=({line})
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_fieldagent
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
ZSH = """
compdef() {{ }}
compadd() {{ [[ $1 == -- ]] && shift; print -l -- "${{(@M)@:#${{words[CURRENT]}}*}}" }}
_files() {{ }}
source {script}
words=({line})
CURRENT=$#words
_fieldagent
"""
FISH = """
source {script}
complete -C "{plain}"
"""

SHELLS = {
    "bash": (BASH, ["bash", "-c"]),
    "zsh": (ZSH, ["zsh", "-fc"]),
    "fish": (FISH, ["fish", "-c"]),
}


def run_fieldagent(*arguments: str) -> str:
    return subprocess.run(
        [*MODULE, *arguments], capture_output=True, text=True, timeout=PATIENCE, check=True
    ).stdout


def suggest_completions(shell: str, folder: Path, line: str) -> set[str]:
    """Return the shell's suggestions for the last word of the line."""
    if shutil.which(shell) is None:
        unavailable(f"apt-get install {shell}")
    script = folder / "script"
    script.write_text(run_fieldagent("completion", shell))
    program, command = SHELLS[shell]
    quoted = line if not line.endswith(" ") else f"{line}''"
    done = subprocess.run(
        [*command, program.format(script=script, line=quoted, plain=line)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder)},
        check=True,
    )
    assert done.stderr == ""
    return {word.partition("\t")[0] for word in done.stdout.split("\n") if word}


@pytest.mark.parametrize(
    "shell",
    [each if each == "bash" else pytest.param(each, marks=pytest.mark.full) for each in SHELLS],
)
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("fieldagent se", {"send", "sent", "settings", "setup"}),
        ("fieldagent send ", {"message", "location", "waypoint", "data", "picture"}),
        ("fieldagent hub user jo", {"join"}),
        ("fieldagent help inbound ", {"list", "read", "replay"}),
        ("fieldagent push me", {"message"}),
        ("fieldagent send --dry-run me", {"message"}),
        ("fieldagent queue --channel ", {"Satellite", "Radio", "Cellular"}),
        ("fieldagent status --js", {"--json"}),
        ("fieldagent hub device add kit --cred", {"--credits-per-day"}),
        ("fieldagent completion f", {"fish"}),
    ],
)
def test_shell_completes_commands_options_and_values(
    tmp_path: Path, shell: str, line: str, expected: set[str]
) -> None:
    assert {
        word
        for word in suggest_completions(shell, tmp_path, line)
        if word[:1] != "-" or "--" in line
    } == (expected)


def list_help_commands(help_text: str) -> set[str]:
    """Return the subcommands in a --help text. In groups a row begins with the title or a blank,
    and may have several names.
    """
    rows = re.findall(
        r"^(?:[A-Z]\w+| {4,8}) {2,}((?:[\w-]+, )*[\w-]+) {2,}", help_text, re.MULTILINE
    )
    in_rows = {name for row in rows for name in row.split(", ")}
    return in_rows or set(re.findall(r"^  (?:  )?(\w[\w-]*)  ", help_text, re.MULTILINE))


OF_UNITS = {"clock", "provision", "reboot"}
"""Commands that only systemd units call as root."""


def test_bash_offers_every_command_of_the_help(tmp_path: Path) -> None:
    tree = [*all_commands(build_parser())]
    for words in ("", "hub ", "hub webhook ", "push ", "simulate "):
        commands = list_help_commands(run_fieldagent("help", *words.split()))
        assert commands
        offers = {
            word
            for word in suggest_completions("bash", tmp_path, f"fieldagent {words}")
            if word[0] != "-"
        }
        assert offers == commands
        assert not commands & OF_UNITS
        everything = {
            each.words[-1] for each in tree if [*each.words[:-1]] == words.split() and each.words
        }
        assert everything - OF_UNITS == commands


@pytest.mark.parametrize("words", [[], ["hub"]])
def test_list_of_commands_fits_on_a_screen(words: list[str]) -> None:
    lines = run_fieldagent(*words, "--help").splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80


def test_manual_page_contains_every_command_and_passes_groff() -> None:
    page = run_fieldagent("manual")
    headings = {heading.replace("\\-", "-") for heading in re.findall(r"^\.SS (.*)$", page, re.M)}
    for words in ("", "hub ", "hub webhook ", "push ", "send "):
        commands = list_help_commands(run_fieldagent("help", *words.split()))
        assert {f"fieldagent {words}{name}" for name in commands} <= headings
    assert {f"fieldagent {name}" for name in OF_UNITS} <= headings
    assert "66 no such settings file" in page
    if shutil.which("groff") is None:
        unavailable("apt-get install groff-base")
    done = subprocess.run(
        ["groff", "-man", "-ww", "-Tutf8", "-P-c"],
        input=page,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert done.stderr == ""
    assert re.search(r"^ +--until-seen$", re.sub(".\b", "", done.stdout), re.MULTILINE)
    assert "EXIT STATUS" in re.sub(".\b", "", done.stdout)
