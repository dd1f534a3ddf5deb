"""The third-party kind of contact of docs/how-to/add-an-operator.md."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from fieldagent.system.exit_codes import OK, REFUSED
from tests import offline
from tests.hub.test_journey import folder
from tests.processes import MODULE, PATIENCE, administer

EXAMPLE = Path(__file__).parents[3] / "examples/pager_contact.py"
PAGE = EXAMPLE.parents[1] / "docs/how-to/add-an-operator.md"
SECTION = PAGE.read_text().partition("## Add a kind of contact")[2]


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL))
def test_how_to_page_quotes_the_example_code(block: str) -> None:
    assert block in EXAMPLE.read_text()


@pytest.mark.full
def test_third_party_contact_is_added_and_notified(tmp_path: Path) -> None:
    """The command shows the reason if the contact's folder is missing or not set."""
    pagers, database = folder(tmp_path / "pagers"), str(tmp_path / "hub.sqlite3")
    administer(database, "init", "Alps")
    settings = tmp_path / "hub.properties"
    lines = f"database={database}\ncontacts=pager_contact:KIND\n"
    settings.write_text(f"{lines}pager-folder={pagers}\n")

    def run(*words: str) -> tuple[int, str]:
        done = subprocess.run(
            [*MODULE, "hub", "contact", *words, "--config", str(settings)],
            env={**os.environ, "PYTHONPATH": offline.path(str(EXAMPLE.parent))},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        return done.returncode, done.stderr

    assert run("add", "Duty", "pager:1234567")[0] == OK
    code, why = run("add", "Duty", "pager:x")
    assert code == REFUSED
    assert "the number of a pager, such as pager:1234567" in why
    assert run("test", "1")[0] == OK
    (file,) = pagers.iterdir()
    notice = json.loads(file.read_text())
    assert notice["pager"] == 1234567
    assert "There is no emergency" in notice["text"]
    file.unlink()
    pagers.rmdir()
    code, why = run("test", "1")
    assert code == REFUSED
    assert "pager-folder: " in why
    settings.write_text(lines)
    code, why = run("test", "1")
    assert code == REFUSED
    assert "set pager-folder in the hub's settings" in why
