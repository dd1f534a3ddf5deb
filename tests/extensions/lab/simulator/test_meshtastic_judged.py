"""Simulated Meshtastic radios with the official client as the app of two people."""

from __future__ import annotations

import subprocess
from functools import partial
from pathlib import Path

import pytest

from fieldagent.system.exit_codes import MISSING, SETTINGS
from tests.extensions.lab.simulator.people_air import client, learn, people_air
from tests.processes import MODULE


def handle(number: int) -> str:
    """Return the handle of a node on the air."""
    return f"!fa9e{number:04x}"


KIT, ADA, BEN = map(handle, (1, 2, 3))
mesh = partial(people_air, "meshtastic")
person = partial(client, "meshtastic")


def test_official_client_exchanges_texts_reactions_and_positions(tmp_path: Path) -> None:
    with mesh(tmp_path) as (_, ports), person(ports[0]) as ada, person(ports[1]) as ben:
        assert ada.ready == f"ready {ADA}"
        ada.type("nodes")
        assert learn(ada, "nodes")["nodes"] == {ADA: "Node 2", KIT: "Node 1", BEN: "Node 3"}
        ada.type(f"text {BEN} hut reached ✓")
        sent = learn(ada, "sent")["sent"]
        assert learn(ada, "ack") == {"ack": sent, "by": BEN, "error": "NONE"}
        heard = learn(ben, "heard")
        assert (heard["text"], heard["from"], heard["id"]) == ("hut reached ✓", ADA, sent)
        assert heard["byKey"], "a direct message goes by the receiver's public key"
        ben.type(f"react {ADA} {sent} 👍")
        reaction = learn(ada, "heard")
        assert (reaction["text"], reaction["on"], reaction["emoji"]) == ("👍", sent, 1)
        ben.type("alert leg broken")
        assert learn(ada, "heard")["heard"] == "ALERT_APP"
        ben.type("position 46.5475 7.985 3454")
        assert learn(ada, "heard")["heard"] == "POSITION_APP"


def test_large_mesh_is_listed_at_connection(tmp_path: Path) -> None:
    with mesh(tmp_path, "--crowd", "200") as (_, ports), person(ports[0]) as ada:
        ada.type("nodes")
        assert len(learn(ada, "nodes")["nodes"]) == 203


@pytest.mark.full
def test_text_to_a_node_out_of_range_is_not_acknowledged(tmp_path: Path) -> None:
    with mesh(tmp_path) as (air, ports), person(ports[0]) as ada:
        air.type("away 3")
        air.expect("out of range")
        ada.type(f"text {BEN} hello")
        ack = learn(ada, "ack")
        assert (ack["by"], ack["error"]) == (ADA, "MAX_RETRANSMIT")


def test_radio_keeps_texts_while_no_client_is_connected(tmp_path: Path) -> None:
    with mesh(tmp_path) as (_, ports):
        with person(ports[0]) as ada:
            ada.type(f"text {BEN} later")
            assert learn(ada, "ack")["by"] == BEN, "the radio has it, and nobody else yet"
        with person(ports[1]) as ben:
            assert learn(ben, "heard")["text"] == "later"


def test_radio_without_a_region_sends_nothing(tmp_path: Path) -> None:
    with mesh(tmp_path) as (air, ports), person(ports[0]) as ada, person(ports[1]) as ben:
        air.type("region 2 off")
        air.expect("transmits nothing")
        ada.type(f"text {BEN} one")
        learn(ada, "sent")
        air.type("region 2 on")
        air.expect("node 2 transmits")
        ada.type(f"text {BEN} two")
        assert learn(ben, "heard")["text"] == "two"


def test_radio_command_shows_the_meshtastic_settings(tmp_path: Path) -> None:
    def shown(place: str, code: int) -> str:
        done = subprocess.run([*MODULE, "radio", place], capture_output=True, text=True)
        assert done.returncode == code, done.stderr
        return done.stdout or done.stderr

    with mesh(tmp_path) as (air, ports):
        place = f"tcp://127.0.0.1:{ports[0]}"
        assert shown(place, 0).splitlines() == [
            f"Meshtastic 2.7.11.simulated, node {ADA}",
            "set to 500 kHz, SF7, 4/5, EU_868, 3 hops",
            "the firmware limits airtime to 10 per cent of any hour, as the region requires",
            "channel 0 (without a name): primary, no private key",
            "channel 1 Kits: secondary, a key of its own",
        ]
        air.type("region 2 off")
        air.expect("transmits nothing")
        assert "BAD no region is set on the radio" in shown(place, SETTINGS)
    assert "nothing does not exist" in shown(str(tmp_path / "nothing"), MISSING)
