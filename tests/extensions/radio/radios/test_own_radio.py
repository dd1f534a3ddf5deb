"""A third-party radio, made by the instructions of docs/how-to/add-a-radio.md."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fieldagent.extensions.radio.radios import udp
from fieldagent.extensions.radio.registry import load_radio
from tests import offline
from tests.extensions.radio.radios.pairs import Pair, group
from tests.extensions.radio.radios.test_contract import check_radio_modem
from tests.processes import agent, free_port, until

ROOT = Path(__file__).parents[4]
EXAMPLE = Path(udp.__file__).read_text()
PAGE = (ROOT / "docs/how-to/add-a-radio.md").read_text()


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
def test_code_in_radio_guide_is_part_of_example(block: str) -> None:
    assert block in EXAMPLE


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a folder with the package `fieldradio`, which Python can import."""
    package = tmp_path / "own/fieldradio"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(EXAMPLE.replace('    "udp",', '    "fieldradio",'))
    monkeypatch.syspath_prepend(str(package.parent))
    yield package
    sys.modules.pop("fieldradio", None)


async def test_third_party_radio_meets_contract(own: Path, tmp_path: Path) -> None:
    kind = load_radio("fieldradio:RADIO")
    assert kind.name == "fieldradio"
    async with group(tmp_path) as pair:
        await check_radio_modem(kind, Pair(pair.one, pair.other, None))


def test_two_kits_reach_each_other_over_third_party_radio(own: Path, tmp_path: Path) -> None:
    """Real processes: the post of one kit is on the other's disk and therefore `Delivered`."""
    place = f"udp://127.255.255.255:{free_port()}"
    kits: list[dict[str, str | None]] = [
        {
            "radio-protocol": "fieldradio:RADIO",
            "radio-port": place,
            "radio-station": str(number),
            "udp-loss": "10",
            "satellite-port": None,
        }
        for number in (1, 2)
    ]
    found_in = offline.path(str(own.parent))
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with (
        agent(tmp_path / "one", kits[0], PYTHONPATH=found_in) as one,
        agent(tmp_path / "two", kits[1], PYTHONPATH=found_in) as two,
    ):
        answer = one.call("POST", "/api/package", {"message": {"content": "by our own radio"}})
        assert answer.body["status"] == "Delivered"
        until(lambda: "by our own radio" in str(two.call("GET", "/api/inbound").body))
        facts = one.call("GET", "/api/status").body["channels"]["Radio"]
        assert facts["group"] == place.removeprefix("udp://")
