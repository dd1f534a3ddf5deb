"""The output of `fieldagent satellite`, and prices of credits, from real processes."""

from __future__ import annotations

import subprocess
from pathlib import Path

from fieldagent.wire import trace
from tests.processes import MODULE, Agent, agent, sky


def run_fieldagent(kit: Agent, *words: str) -> subprocess.CompletedProcess[str]:
    command = [*MODULE, *words, "--port", str(kit.port)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_trace_contains_message_payloads_only_with_the_option(tmp_path: Path) -> None:
    with sky(tmp_path, latency=0), agent(tmp_path) as kit:
        assert kit.post("meet at the third pine").body["status"] == "Delivered"
        done = run_fieldagent(kit, "satellite", "trace")
        assert done.returncode == 0, done.stderr
        records = trace.parse_trace(done.stdout)
        assert any(each.data.startswith(b"AT+SBDWB=") for each in records)
        assert "pine" not in done.stdout
        whole = run_fieldagent(kit, "satellite", "trace", "--payloads").stdout
        assert len(trace.parse_trace(whole)) >= len(records)
        bodies = [each.data for each in trace.parse_trace(whole) if each.direction == trace.SENT]
        assert any(not body.startswith(b"AT") and any(body[:-2]) for body in bodies)
        none = run_fieldagent(kit, "satellite", "trace", "--channel", "radio")
        assert none.returncode != 0
        assert "Radio is not configured" in none.stderr


def test_credits_are_shown_as_money_if_a_price_is_set(tmp_path: Path) -> None:
    with (
        sky(tmp_path, latency=0),
        agent(tmp_path, {"satellite-credit-price": "0.125 EUR"}) as kit,
    ):
        dry = run_fieldagent(kit, "send", "message", "hello", "--dry-run").stdout
        assert dry.rstrip().endswith("1 credit: 0.13 EUR")
        assert kit.post("hello").body["status"] == "Delivered"
        assert ", 1 credit: 0.13 EUR" in run_fieldagent(kit, "status").stdout
        assert "1 credit, 0.13 EUR" in run_fieldagent(kit, "sent").stdout


def test_no_money_is_shown_without_a_price(tmp_path: Path) -> None:
    with sky(tmp_path, latency=0), agent(tmp_path) as kit:
        assert kit.post("hello").body["status"] == "Delivered"
        assert "EUR" not in run_fieldagent(kit, "status").stdout
        status = kit.call("GET", "/api/status").body
        assert "moneyToday" not in status["channels"]["Satellite"]
