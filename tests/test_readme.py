"""The commands of the README work: they run verbatim and in order next to a demo."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from tests.own_network import own_network
from tests.processes import MODULE, PATIENCE, Running

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
NUMBER = re.compile(r"SOS [0-9]{3}\b")
MOMENT = re.compile(r"(\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d")


def transcripts(text: str) -> list[tuple[str, str]]:
    """Return the commands after a `$`, each with the output below it."""
    entries: list[tuple[str, str]] = []
    for block in re.findall(r"(?:^ {4}.*\n)+", text, re.MULTILINE):
        lines = [line[4:] for line in block.splitlines()]
        while lines:
            line = lines.pop(0)
            if not line.startswith("$ "):
                break
            while line.endswith("\\"):
                line += "\n" + lines.pop(0)
            shown = []
            while lines and not lines[0].startswith("$ "):
                shown.append(lines.pop(0))
            entries.append((line[2:], "\n".join(shown)))
    return entries


def test_readme_examples_work_in_order() -> None:
    examples = transcripts(README)
    assert len(examples) == 6
    path = f"{Path(MODULE[0]).parent}{os.pathsep}{os.environ['PATH']}"
    with own_network() as inside, Running([*inside, *MODULE, "demo"], "Ctrl-C ends the demo"):
        for command, shown in examples:
            done = subprocess.run(
                [*inside, "sh", "-c", command],
                cwd=ROOT,
                env={**os.environ, "PATH": path},
                capture_output=True,
                text=True,
                timeout=PATIENCE,
            )
            assert done.returncode == 0, (command, done.stderr)
            assert remove_variable_parts(done.stdout.strip()) == remove_variable_parts(shown), (
                command
            )


def remove_variable_parts(shown: str) -> str:
    """Return the output without times and without the number of an SOS, which is random."""
    return NUMBER.sub("SOS N", MOMENT.sub("T", shown))


def test_readme_contains_the_two_commands() -> None:
    for command in ("./demo", "./tests/run"):
        assert f"    {command}\n" in README
        assert os.access(ROOT / command, os.X_OK)


def test_readme_stays_short() -> None:
    lines = README.splitlines()
    assert len(lines) <= 120
    assert not [line for line in lines if len(line) > 120]
