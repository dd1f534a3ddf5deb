"""The hub reports a recipient that it does not know, and `send` shows the report."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fieldagent.cli.kit import send


def stub_agent_answers(monkeypatch: pytest.MonkeyPatch, **bodies: Any) -> list[str]:
    asked: list[str] = []

    def call(port: int, method: str, path: str) -> Any:
        asked.append(path)
        return SimpleNamespace(body=bodies["package"])

    monkeypatch.setattr(send, "call", call)
    return asked


def test_send_shows_the_hubs_report_of_an_unknown_addressee(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    step = {"stage": "nobody", "text": "Benn cannot be reached: nobody is called that"}
    stub_agent_answers(monkeypatch, package={"reached": [step]})
    assert send.find_unreached_reason(9091, {"id": 1}) == step["text"]
    stub_agent_answers(
        monkeypatch, package={"reached": [{"stage": "stored", "text": "on Ben's kit"}]}
    )
    assert send.find_unreached_reason(9091, {"id": 1}) == ""
