"""A kit's APRS with Dire Wolf, an independent program: it transmits its own beacon and a station's
message as sound, and hears the kit's answer.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.dire_wolf import PORTS, wolves
from tests.extensions.people.camp import hears, learn
from tests.extensions.radio.test_dire_wolf import cli
from tests.processes import Running, started, until

BEACON = (
    'PBEACON delay=0:05 every=0:30 lat=46^30.00N long=007^54.00E symbol="car" alt=1640'
    ' comment="on foot"'
)
SETTINGS = f"""
mesh-port=tcp://127.0.0.1:{PORTS[0]}
mesh-protocol=aprs
mesh-callsign=N0CALL-1
mesh-people=n0call-2 Rover
mesh-calls=n0call-3
mesh-join-code=edelweiss
api-port=9401
"""
GET = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=60).read().decode())"


def get(inside: list[str], path: str) -> Any:
    command = [*inside, sys.executable, "-c", GET, f"http://127.0.0.1:9401{path}"]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


@pytest.mark.full
def test_kit_receives_and_answers_over_dire_wolf(tmp_path: Path) -> None:
    settings = tmp_path / "agent.properties"
    settings.write_text(f"{SETTINGS}state-directory={tmp_path / 'state'}\n")
    with wolves(tmp_path, beacons={2: BEACON}) as air, (tmp_path / "log").open("w") as log:
        run = [*air.inside, sys.executable, "-m", "fieldagent", "run", "--config", str(settings)]
        peer = [*air.inside, sys.executable, "-m", "tests.peers.aprs_person"]
        with (
            started(run, stdout=log, stderr=log),
            Running([*peer, str(PORTS[1]), "N0CALL-3"], "ready ") as ben,
        ):
            until(lambda: cli(air.inside, 9401, "status").returncode == 0)

            def around() -> dict[str, Any]:
                return {each["handle"]: each for each in get(air.inside, "/api/mesh")["people"]}

            until(lambda: (around().get("n0call-2") or {}).get("position"))
            rover = around()["n0call-2"]
            assert (rover["name"], rover["known"]) == ("Rover", True)
            assert rover["caveat"] == "by APRS, unproved call sign"
            place = rover["position"]
            assert (place["latitude"], place["longitude"]) == (46.5, 7.9)
            assert place["altitude"] == pytest.approx(1640, abs=1)
            ben.type("text N0CALL-1 join edelweiss")
            assert learn(ben, "ack") == {"ack": 1, "there": True}
            hears(ben, "This kit knows you now, N0CALL-3")
            until(lambda: get(air.inside, "/api/status")["mesh"]["texts"] == {"on radio": 1})
