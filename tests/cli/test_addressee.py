"""A recipient that is misspelt is refused before anything is sent, or reported by exit code."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fieldagent.cli.kit import addressee

PEOPLE = [
    {"kind": "user", "name": "Ben", "to": 2},
    {"kind": "user", "name": "Ada", "to": 1},
    {"kind": "group", "name": "rescue", "to": -1},
]


def answering(monkeypatch: pytest.MonkeyPatch, **bodies: Any) -> list[str]:
    asked: list[str] = []

    def call(port: int, method: str, path: str) -> Any:
        asked.append(path)
        return SimpleNamespace(body=bodies["people" if path == "/api/people" else "package"])

    monkeypatch.setattr(addressee, "call", call)
    return asked


@pytest.mark.parametrize(
    ("named", "complete", "says"),
    [
        ("Ben", True, ""),
        ("ben", True, ""),
        ("user:Ben", True, ""),
        ("rescue", True, ""),
        (None, True, ""),
        (2, True, ""),
        ("+41791234567", True, ""),
        ("dora@example.org", True, ""),
        ("Benn", False, ""),
        ("Benn", True, "no such person: 'Benn'; nearest: Ben"),
        ("group:resuce", True, "no such person: 'resuce'; nearest: rescue"),
        ("user:rescue", True, "no such person: 'rescue'. Nothing was sent"),
        ("Xaver", True, "no such person: 'Xaver'. Nothing was sent"),
    ],
)
def test_a_misspelt_recipient_is_named_with_the_nearest(
    monkeypatch: pytest.MonkeyPatch, named: str | int | None, complete: bool, says: str
) -> None:
    answering(monkeypatch, people={"people": PEOPLE, "complete": complete})
    fault = addressee.fault_of(9091, named)
    assert fault.startswith(says) and bool(fault) is bool(says)


def test_the_hubs_word_that_nobody_is_called_that_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    step = {"stage": "nobody", "text": "Benn cannot be reached: nobody is called that"}
    answering(monkeypatch, package={"reached": [step]})
    assert addressee.unreached(9091, {"id": 1}) == step["text"]
    answering(monkeypatch, package={"reached": [{"stage": "stored", "text": "on Ben's kit"}]})
    assert addressee.unreached(9091, {"id": 1}) == ""
