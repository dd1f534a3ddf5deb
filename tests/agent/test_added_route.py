"""The steps of docs/how-to/add-a-route.md, applied to a copy of the source."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import offline
from tests.processes import PATIENCE, agent

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how-to/add-a-route.md").read_text()
STEP = re.compile(
    r"(?:`(\w+\.py)` in )?`(fieldagent/[\w./]+)`|```(python|diff)\n(.*?)```", re.DOTALL
)
"""A path, of a folder if a new module is named before it; or the language and text of a block."""
COMMAND = [sys.executable, "-P", "-m", "fieldagent"]
"""`-P` excludes the current folder, whose source has no such route."""


def apply_page(tree: Path) -> None:
    """Write the modules and add the lines that the page shows. The last path before a block is that
    of its file.
    """
    file = tree
    for name, path, language, block in STEP.findall(PAGE):
        if path:
            file = tree / path / name if name else tree / path
        elif language == "python":
            assert not file.exists()
            file.write_text(block)
        else:
            lines = block.splitlines(keepends=True)
            before = "".join(line[1:] for line in lines if line[0] == " ")
            after = "".join(line[1:] for line in lines)
            source = file.read_text()
            assert source.count(before) == 1, f"{file}: {before}"
            file.write_text(source.replace(before, after))


@pytest.mark.full
def test_route_added_by_guide_has_description_and_command(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    skipped = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "fieldagent", tree / "fieldagent", ignore=skipped)
    apply_page(tree)
    path = offline.path(str(tree))
    with agent(tmp_path, command=COMMAND, PYTHONPATH=path) as kit:
        answer = kit.call("GET", "/api/channels")
        assert (answer.status, answer.body) == (200, {"channels": ["Satellite"]})
        assert kit.call("GET", "/api/channels?x=1").status == 400
        described = kit.call("GET", "/openapi.json").body["paths"]["/api/channels"]["get"]
        assert described["operationId"] == "channelNames"
        for option, expected in ((), "Satellite"), (("--json",), json.dumps(answer.body)):
            done = subprocess.run(
                [*COMMAND, "channels", "--port", str(kit.port), *option],
                env={**os.environ, "PYTHONPATH": offline.path(str(tree))},
                capture_output=True,
                text=True,
                timeout=PATIENCE,
            )
            assert (done.returncode, done.stdout.strip()) == (0, expected), done.stderr
