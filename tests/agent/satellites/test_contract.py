"""The contract of each satellite modem of the core and the extensions, and of a third-party modem:
real agents below a simulated sky.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from fieldagent.agent.satellites import sbd
from fieldagent.agent.satellites.registry import get_modems, load_modem
from fieldagent.agent.settings import parse
from fieldagent.extensions import NAMES
from fieldagent.system.properties import InvalidSettings, WrongProperty
from tests import offline
from tests.processes import MODULE, PATIENCE, Running, agent, sky, until

ROOT = Path(__file__).parents[3]
SKIES: dict[str, Callable[[Path], AbstractContextManager[Running]]] = {
    "sbd": sky,
    "auto": sky,
}
"""Functions that put a simulated modem at `home`/modem, by the modem's name. The simulator prints
each message from the kit, and sends a message for the line `mt TEXT`. An extension has its own in a
module `skies`.
"""


def skies() -> dict[str, Callable[[Path], AbstractContextManager[Running]]]:
    """Return the sky of each modem of the core and of all extensions."""
    found = dict(SKIES)
    for name in NAMES:
        place = f"tests.extensions.{name}.skies"
        if importlib.util.find_spec(place) is not None:
            found |= importlib.import_module(place).SKIES
    return found


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Yield the path of the package `fieldmodem`, a third-party modem."""
    package = tmp_path / "own/fieldmodem"
    package.mkdir(parents=True)
    text = Path(sbd.__file__).read_text()
    (package / "__init__.py").write_text(text.replace('    "sbd",', '    "fieldmodem",'))
    monkeypatch.syspath_prepend(str(package.parent))
    yield offline.path(str(package.parent))
    sys.modules.pop("fieldmodem", None)


def check_driver(home: Path, name: str, above: Running, path: str) -> None:
    """Check that a message leaves and another one arrives, that all described facts are in the
    status, and that `check` reports present and missing parts.
    """
    kind = load_modem(name)
    settings = {"satellite-modem": name, "inbound-hook": "true"}
    with agent(home, settings, PYTHONPATH=path) as kit:
        assert kit.post("out").body["status"] == "Delivered"
        above.expect('message {"content": "out"}')
        above.type("mt in")
        until(lambda: kit.call("GET", "/api/inbound").body["payloads"])
        status = kit.call("GET", "/api/status").body["channels"]["Satellite"]
        assert kind.facts.keys() <= status.keys(), "a described fact is missing"
        assert kind.description
        # A killed agent's hook, forked and not yet executed, would still hold the port's lock.
        assert kit.stop() == 0
    own = parse(f"satellite-modem={name}", Path("agent.properties")).satellite_own
    assert [each.text for each in kind.check(str(home / "modem"), None, own) if not each.good] == []
    nowhere = kind.check(str(home / "nowhere"), None, own)
    assert nowhere
    assert not any(each.good for each in nowhere)


@pytest.mark.parametrize("name", get_modems())
def test_each_included_modem_meets_contract(tmp_path: Path, name: str) -> None:
    known = skies()
    assert name in known, f"no sky for {name}: add one to tests/extensions/FOLDER/skies.py"
    with known[name](tmp_path) as above:
        check_driver(tmp_path, name, above, offline.path(""))
    assert load_modem(name).name == name


def test_third_party_modem_meets_contract(tmp_path: Path, own: str) -> None:
    with sky(tmp_path) as above:
        check_driver(tmp_path, "fieldmodem:MODEM", above, own)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("lora", "must be sbd, .*auto or package.module:NAME"),
        ("no_such_package.modem:MODEM", "cannot be loaded: No module named"),
        ("json:MODEM", "cannot be loaded: module 'json' has no attribute"),
        ("json:dumps", "which is not a fieldagent.agent.satellites.contract.SatelliteModem"),
    ],
)
def test_unloadable_modem_is_reported(name: str, why: str) -> None:
    with pytest.raises(WrongProperty, match=why):
        load_modem(name)


EXAMPLE = ROOT / "examples/own_modem.py"
PAGE = ROOT / "docs/how-to/add-a-satellite-modem.md"


def test_third_party_extension_adds_modem_with_own_setting(tmp_path: Path) -> None:
    """The agent, its status and `fieldagent check` use the setting, which no core module names."""
    path = offline.path(str(EXAMPLE.parent))
    own = {"extensions": "own_modem:EXTENSION", "satellite-modem": "mymodem"}
    settings = {**own, "mymodem-label": "roof"}
    with sky(tmp_path):
        with agent(tmp_path, settings, PYTHONPATH=path) as kit:
            assert kit.post("out").body["status"] == "Delivered"
            status = kit.call("GET", "/api/status").body["channels"]["Satellite"]
            assert status["label"] == "roof"
        file = tmp_path / "agent.properties"
        done = subprocess.run(
            [*MODULE, "check", "--config", str(file)],
            env={**os.environ, "PYTHONPATH": offline.path(str(EXAMPLE.parent))},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert "the label is roof" in done.stdout, done.stdout + done.stderr


def test_unloadable_third_party_extension_is_reported() -> None:
    with pytest.raises(InvalidSettings) as caught:
        parse("extensions=no_such_package:EXTENSION", Path("agent.properties"))
    (fault,) = caught.value.faults
    assert fault.startswith("extensions names no_such_package:EXTENSION, which cannot be loaded")


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL))
def test_code_in_modem_guide_is_part_of_example(block: str) -> None:
    assert block in EXAMPLE.read_text()
