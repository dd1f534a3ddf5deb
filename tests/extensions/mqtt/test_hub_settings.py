"""The hub's settings of the MQTT broker."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from fieldagent.hub.settings import load_settings
from fieldagent.system.properties import InvalidSettings

AT_BROKER = "mqtt-address=mqtt://a\nmqtt-workspace=Alps\n"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (AT_BROKER, ""),
        (AT_BROKER + "mqtt-user=hub\nmqtt-password-file=/a\nmqtt-shares=none", ""),
        ("mqtt-address=mqtt://a", "mqtt-address needs mqtt-workspace"),
        ("mqtt-workspace=Alps", "mqtt-workspace needs mqtt-address"),
        (AT_BROKER + "mqtt-password-file=/a", "mqtt-password-file needs mqtt-user"),
        (AT_BROKER + "mqtt-credits-per-day=5", "mqtt-credits-per-day needs mqtt-senders"),
        (AT_BROKER + "mqtt-acknowledge=on", "mqtt-acknowledge needs mqtt-senders"),
        (AT_BROKER + "mqtt-shares=everything", "must be some of positions, incidents"),
        (AT_BROKER + "mqtt-name=a/b", "1 to 40 letters, digits"),
        ("mqtt-address=http://a\nmqtt-workspace=Alps", "must be mqtts://"),
        (
            "mqtt-address=mqtt://me:word@a\nmqtt-workspace=Alps",
            "use the settings for user and password",
        ),
    ],
)
def test_broker_settings_of_the_hub_are_validated(tmp_path: Path, text: str, fault: str) -> None:
    path = tmp_path / "hub.properties"
    path.write_text(f"database={tmp_path}/hub.sqlite3\n{text}\n")
    with pytest.raises(InvalidSettings, match=fault) if fault else nullcontext():
        load_settings(path)
