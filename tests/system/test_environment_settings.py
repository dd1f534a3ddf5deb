"""Settings from environment variables, of the agent and of the hub."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from fieldagent.agent import settings as agent
from fieldagent.hub import settings as hub
from fieldagent.system.properties import InvalidSettings
from tests.processes import MODULE, PATIENCE, free_port
from tests.processes import hub as running_hub


def test_environment_variable_overrides_the_settings_file(tmp_path: Path) -> None:
    file = tmp_path / "hub.properties"
    file.write_text("port=1111\nmap-attribution=Alps\n")
    found = hub.load_settings(
        file, environ={"FIELDAGENT_HUB_PORT": "2222", "FIELDAGENT_PORT": "3333"}
    )
    assert (found.port, found.map_attribution) == (2222, "Alps")


def test_secret_is_read_from_the_file_of_a_variable(tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("\ufeff/bin/a\\b first\nsecond line\n", encoding="utf-8")
    environ = {"FIELDAGENT_AGENT_INBOUND_HOOK_FILE": str(secret), "HOME": str(tmp_path)}
    assert agent.load(None, environ).inbound_hook == "/bin/a\\b first"


def test_setting_with_two_variables_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notice").write_text("Swisstopo")
    environ = {
        "FIELDAGENT_HUB_MAP_ATTRIBUTION": "OpenStreetMap",
        "FIELDAGENT_HUB_MAP_ATTRIBUTION_FILE": str(tmp_path / "notice"),
        "XDG_CONFIG_HOME": str(tmp_path),
    }
    with pytest.raises(InvalidSettings) as refused:
        hub.load_settings(None, environ=environ)
    assert refused.value.faults == [
        "FIELDAGENT_HUB_MAP_ATTRIBUTION_FILE: map-attribution has a value from another variable:"
        " remove one"
    ]


def test_setting_whose_own_name_ends_with_file_is_recognised(tmp_path: Path) -> None:
    environ = {
        "FIELDAGENT_HUB_DATABASE": "postgresql://hub@db.example.org/hub",
        "FIELDAGENT_HUB_DATABASE_PASSWORD_FILE": "/run/secrets/database",
        "XDG_CONFIG_HOME": str(tmp_path),
    }
    assert hub.load_settings(None, environ=environ).database_password_file == Path(
        "/run/secrets/database"
    )


def test_extension_setting_is_read_from_a_variable(tmp_path: Path) -> None:
    environ = {
        "FIELDAGENT_AGENT_MQTT_ADDRESS": "mqtt://127.0.0.1",
        "XDG_CONFIG_HOME": str(tmp_path),
        "HOME": str(tmp_path),
    }
    assert agent.load(None, environ).parts["mqtt"]


@pytest.mark.parametrize(
    ("variable", "value", "fault"),
    [
        ("FIELDAGENT_HUB_DATABSE", "x", "'databse' is not a setting; the nearest is database"),
        ("FIELDAGENT_HUB_BOGUS", "x", "'bogus' is not a setting; correct its name, or remove it"),
        ("FIELDAGENT_HUB_PORT", "70000", "must be a whole number from 0 to 65535"),
        ("FIELDAGENT_HUB_CONSOLE_ADDRESS", "a\nport=1", "must be one line"),
        ("FIELDAGENT_HUB_MAIL_FROM_FILE", "/nowhere", "the file /nowhere cannot be read"),
    ],
)
def test_unknown_variable_or_value_is_reported_by_its_name(
    tmp_path: Path, variable: str, value: str, fault: str
) -> None:
    environ = {variable: value, "XDG_CONFIG_HOME": str(tmp_path)}
    with pytest.raises(InvalidSettings) as refused:
        hub.load_settings(None, environ=environ)
    (line,) = refused.value.faults
    assert line.startswith(f"{variable}: ") and fault in line


def test_programs_name_the_variables_that_replace_settings_without_values(tmp_path: Path) -> None:
    """`fieldagent check` shows them for the agent, and the log at the start for the hub."""
    token = tmp_path / "token"
    token.write_text("ab" * 32)
    settings = tmp_path / "agent.properties"
    settings.write_text(f"state-directory={tmp_path}\nhub-address=http://127.0.0.1:{free_port()}\n")
    environ = {"FIELDAGENT_AGENT_HUB_TOKEN_FILE": str(token)}
    done = subprocess.run(
        [*MODULE, "check", "--config", str(settings)],
        capture_output=True,
        text=True,
        env={**os.environ, **environ},
        timeout=PATIENCE,
    )
    assert (
        "the settings are understood; these variables replace settings of the file:"
        " FIELDAGENT_AGENT_HUB_TOKEN_FILE\n"
    ) in done.stdout
    assert "abab" not in done.stdout + done.stderr
    variable = {"FIELDAGENT_HUB_MAP_ATTRIBUTION": "Alps"}
    with running_hub(
        tmp_path, {"database": str(tmp_path / "hub.sqlite3")}, MODULE, **variable
    ) as it:
        log = "\n".join(it.output())
    assert "these variables replace settings of the file: FIELDAGENT_HUB_MAP_ATTRIBUTION" in log
