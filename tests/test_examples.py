"""The examples work: hooks run with a real agent and sky, and systemd reads the drop-in."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.machine import tool
from tests.processes import PATIENCE, Running, agent, free_port, hub, sky, until

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"


def test_shell_hook_writes_received_messages(tmp_path: Path) -> None:
    file = tmp_path / "messages"
    hook = {"inbound-hook": f"{EXAMPLES}/hook.sh {file}"}
    with sky(tmp_path) as above, agent(tmp_path, hook) as kit:
        above.type("mt Storm at noon")
        kit.expect(f"written to {file}")
    assert file.read_text() == "Base camp: Storm at noon\n"


def test_shell_hook_requests_a_retry_after_a_failed_write(tmp_path: Path) -> None:
    hook = [EXAMPLES / "hook.sh", tmp_path / "missing" / "messages"]
    done = subprocess.run(hook, input="{}", text=True, capture_output=True, timeout=PATIENCE)
    assert done.returncode == 75


def test_python_hook_answers_a_message(tmp_path: Path) -> None:
    port = str(free_port())
    hook = {"inbound-hook": f"{sys.executable} {EXAMPLES}/hook.py --port {port}", "api-port": port}
    with sky(tmp_path) as above, agent(tmp_path, hook) as kit:
        above.type("mt where?")
        kit.expect("Package 1 answers")
        above.expect("At the hut, 46.5 N 7.25 E")


def test_python_hook_requests_a_retry_without_an_agent() -> None:
    payload = '{"payloads": [{"events": [{"type": "Message", "content": "where?"}]}]}'
    hook = [sys.executable, str(EXAMPLES / "hook.py"), "--port", str(free_port())]
    done = subprocess.run(hook, input=payload, text=True, capture_output=True, timeout=PATIENCE)
    assert done.returncode == 75
    assert "cannot be reached" in done.stdout


def test_position_example_posts_a_position(tmp_path: Path) -> None:
    with sky(tmp_path), agent(tmp_path) as kit:
        command = [str(EXAMPLES / "position.py"), "47.3769", "8.5417", str(kit.port)]
        done = subprocess.run([sys.executable, *command], capture_output=True, text=True)
        assert done.stdout == "Delivered\n", done.stderr
        until(lambda: kit.call("GET", "/api/queue").body["queued"] == 0)


def test_systemd_accepts_the_drop_in(tmp_path: Path) -> None:
    shutil.copy(ROOT / "systemd/fieldagent.service", tmp_path)
    shutil.copytree(EXAMPLES / "fieldagent.service.d", tmp_path / "fieldagent.service.d")
    unit = tmp_path / "fieldagent.service"
    # The unit's program is not installed here.
    text = unit.read_text().replace("/usr/bin/python3", sys.executable)
    unit.write_text(text)
    analyze = tool("systemd-analyze", "systemd")
    done = subprocess.run([analyze, "verify", "--man=no", unit], capture_output=True, text=True)
    assert "hooks.conf" not in done.stderr, done.stderr
    broken = tmp_path / "fieldagent.service.d/hooks.conf"
    broken.write_text("[Service]\nReadWritePath=/srv/messages\n")
    done = subprocess.run([analyze, "verify", "--man=no", unit], capture_output=True, text=True)
    assert "hooks.conf" in done.stderr, "the drop-in is looked at"


def test_prometheus_scrapes_an_agent_and_a_hub(tmp_path: Path) -> None:
    admin, own = free_port(), f"127.0.0.1:{free_port()}"
    program = tool("prometheus", "prometheus")
    settings = {"database": str(tmp_path / "hub.sqlite3"), "admin-listen": f"127.0.0.1:{admin}"}
    with ExitStack() as stack:
        stack.enter_context(hub(tmp_path, settings))
        kit = stack.enter_context(agent(tmp_path))
        config = (EXAMPLES / "prometheus.yml").read_text()
        for name in ("alerts.yml", "hub-alerts.yml"):
            config = config.replace(f"- {name}", f"- {EXAMPLES / name}")
        config = config.replace(":9091", f":{kit.port}").replace(":9444", f":{admin}")
        (tmp_path / "prometheus.yml").write_text(f"global: {{scrape_interval: 1s}}\n{config}")
        flags = (f"--config.file={tmp_path}/prometheus.yml", f"--web.listen-address={own}")
        command = [program, *flags, f"--storage.tsdb.path={tmp_path}/data"]
        stack.enter_context(Running(command, "ready to receive"))

        def found(path: str) -> Any:
            with urllib.request.urlopen(f"http://{own}/api/v1/{path}", timeout=PATIENCE) as answer:
                return json.load(answer)["data"]

        def health() -> dict[str, str]:
            targets = found("targets")["activeTargets"]
            return {each["labels"]["job"]: each["health"] for each in targets}

        until(lambda: health() == {"fieldagent": "up", "fieldagent-hub": "up"})
        for metric in ("fieldagent_queued_packages", "fieldagent_hub_sos_open"):
            assert found(f"query?query={metric}")["result"], metric
        assert len(found("rules")["groups"]) == 2
