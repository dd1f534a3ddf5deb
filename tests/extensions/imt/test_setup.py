"""`fieldagent setup` and `fieldagent check` with a 9704."""

from __future__ import annotations

from pathlib import Path

import pytest

from fieldagent.agent.satellites.registry import load_modem
from fieldagent.agent.settings import parse
from fieldagent.system.exit_codes import OK
from tests.extensions.test_setup import begin, check_written, settings, setup
from tests.processes import imt_sky

PATH = Path("agent.properties")


@pytest.mark.full
def test_agent_works_with_the_settings_that_setup_wrote(tmp_path: Path) -> None:
    begin(tmp_path)
    with imt_sky(tmp_path):
        check_written(tmp_path, "imt", tmp_path / "modem")


@pytest.mark.full
def test_setup_corrects_the_modem_kind_of_a_configured_port(tmp_path: Path) -> None:
    with imt_sky(tmp_path):
        begin(tmp_path, **{"satellite-port": str(tmp_path / "modem")})
        code, _ = setup(tmp_path, tmp_path / "modem", "--yes")
        assert code == OK
    assert settings(tmp_path)["satellite-modem"] == "imt"


@pytest.mark.parametrize(
    ("topic", "text"),
    [("PINK", "may use the topic PINK (314)"), ("GREY", "does not know the topic GREY")],
)
def test_check_verifies_the_configured_topic(tmp_path: Path, topic: str, text: str) -> None:
    own = parse(f"satellite-modem=imt\nimt-topic={topic}", PATH).satellite_own
    with imt_sky(tmp_path):
        findings = load_modem("imt").check(str(tmp_path / "modem"), None, own)
    assert any(text in each.text for each in findings)


@pytest.mark.parametrize("kind", ["sbd", "imt", "auto"])
def test_imt_settings_are_read_with_each_modem_kind(kind: str) -> None:
    """A kit can try another modem without a change of its other settings."""
    text = f"satellite-modem={kind}\nimt-topic=PINK\nimt-minimum-bytes=25"
    own = {"imt-topic": "PINK", "imt-minimum-bytes": 25}
    assert parse(text, PATH).satellite_own == own


@pytest.mark.parametrize("kind", ["imt", "auto"])
def test_imt_settings_have_defaults(kind: str) -> None:
    own = {"imt-topic": "RAW", "imt-minimum-bytes": 0}
    assert parse(f"satellite-modem={kind}", PATH).satellite_own == own
