"""The real Home Assistant, on Debian 13, because it needs Python 3.13. It is set up, and read, by
its own API.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from tests.debian_thirteen import DebianThirteen
from tests.processes import Running, until

HERE = DebianThirteen("home-assistant")
VERSION = "2026.2.3"
"""Last version of Home Assistant that supports Python 3.13."""
PACKAGES = f"homeassistant=={VERSION} paho-mqtt==2.1.0 home-assistant-frontend==20260128.6"
"""Packages to install: Home Assistant, and the requirements of its components that the tests
start."""
INSTALL = f"""
cd /opt
[ "$(cat home-assistant/packages 2>/dev/null)" = "{PACKAGES}" ] && exit
apt-get update -q
apt-get install -qy --no-install-recommends python3-venv python3-dev gcc g++ libc6-dev
python3 -m venv --clear home-assistant
home-assistant/bin/pip install -q {PACKAGES}
echo "{PACKAGES}" >home-assistant/packages
"""
CONFIGURATION = """
http:
  server_host: 127.0.0.1
  server_port: {port}
api:
config:
onboarding:
logger:
  default: warning
zone:
  - name: Hut
    latitude: 46.5
    longitude: 8.1
    radius: 200
automation:
  - alias: Welcome
    triggers:
      - trigger: zone
        entity_id: device_tracker.fieldagent_kit_position
        zone: zone.hut
        event: enter
    actions:
      - action: notify.send_message
        target:
          entity_id: notify.fieldagent_kit_send
        data:
          message: welcome to the hut
"""
RUN = """
mkdir /tmp/home
cp /srv/with/configuration.yaml /tmp/home
# 100 asks for a restart.
while code=0; /opt/home-assistant/bin/hass --config /tmp/home --skip-pip || code=$?; do
    [ $code = 100 ] || exit $code
done
"""


def install() -> None:
    """Install Home Assistant, unless an earlier run has done so."""
    HERE.install(INSTALL)


class HomeAssistant(Running):
    """A running Home Assistant with a new configuration: the user Ada, and the MQTT integration
    with the broker at `broker`.
    """

    def __init__(self, folder: Path, port: int, broker: int) -> None:
        folder.mkdir()
        (folder / "configuration.yaml").write_text(CONFIGURATION.format(port=port))
        self._address = f"http://127.0.0.1:{port}"
        self._token = ""
        super().__init__(HERE.make_command(RUN, "--with", str(folder)), **HERE.environment)
        try:
            self._set_up(broker)
        except BaseException:
            self.kill()
            raise

    def _set_up(self, broker: int) -> None:
        until(lambda: self._answers("/api/onboarding"))
        client = f"{self._address}/"
        ada = {"name": "Ada", "username": "ada", "password": "hut"}
        user = self.call("/api/onboarding/users", {**ada, "client_id": client, "language": "en"})
        grant = {"grant_type": "authorization_code", "code": user["auth_code"], "client_id": client}
        form = urllib.parse.urlencode(grant).encode()
        with urllib.request.urlopen(f"{self._address}/auth/token", form) as answer:
            self._token = json.load(answer)["access_token"]
        flows = "/api/config/config_entries/flow"
        flow = self.call(flows, {"handler": "mqtt"})["flow_id"]
        made = self.call(f"{flows}/{flow}", {"broker": "127.0.0.1", "port": broker})
        assert made["type"] == "create_entry", made

    def call(self, path: str, body: dict[str, Any] | None = None) -> Any:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self._token}"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._address}{path}", data, headers)
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def _answers(self, path: str) -> bool:
        try:
            self.call(path)
        except OSError:
            return False
        return True

    def entity(self, name: str) -> dict[str, Any]:
        """Return the state of an entity; empty if there is none, or while the program starts."""
        try:
            found: dict[str, Any] = self.call(f"/api/states/{name}")
        except (OSError, urllib.error.URLError):
            return {}
        return found

    def state(self, name: str) -> str:
        return str(self.entity(name).get("state", ""))

    def await_state(self, name: str, value: str) -> None:
        until(lambda: self.state(name) == value)

    def restart(self) -> None:
        self.call("/api/services/homeassistant/restart", {})

    def complaints(self) -> list[str]:
        """Return the lines in its log about MQTT or templates."""
        complaints = [each for each in self.output() if "WARNING" in each or "ERROR" in each]
        return [each for each in complaints if "mqtt" in each or "template" in each.lower()]
