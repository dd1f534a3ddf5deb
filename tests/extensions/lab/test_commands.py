"""The arguments of the laboratory's commands."""

from __future__ import annotations

from fieldagent.extensions.lab import EXTENSION
from tests.cli.test_arguments import fieldagent, without_json

RUN_FOR_EVER = {"demo", "simulate satellite", "simulate gsm", "simulate node"}
"""These print only lines about their simulation."""


def test_every_finite_command_prints_json() -> None:
    own = {" ".join(words) for words in without_json() if words[0] in EXTENSION.commands}
    assert own == RUN_FOR_EVER


def test_misspelt_command_gets_a_suggestion() -> None:
    assert "did you mean 'satellite'?" in fieldagent("simulate", "satelite").stderr
