"""Simulated MeshCore companions with MeshCore's own client as the app of two people."""

from __future__ import annotations

from functools import partial
from hashlib import sha256
from pathlib import Path

import pytest

from tests.extensions.lab.simulator.people_air import client, learn, people_air


def handle(number: int) -> str:
    """Return the handle of a node on the air."""
    return sha256(b"companion %d" % number).hexdigest()


KIT, ADA, BEN = map(handle, (1, 2, 3))
companions = partial(people_air, "meshcore")
person = partial(client, "meshcore")


def test_official_client_exchanges_texts_over_simulated_companions(tmp_path: Path) -> None:
    with companions(tmp_path) as (_, ports), person(ports[0]) as ada, person(ports[1]) as ben:
        assert ada.ready == f"ready {ADA}"
        ada.type("nodes")
        assert learn(ada, "nodes")["nodes"] == {KIT: "Node 1", BEN: "Node 3"}
        ada.type(f"text {BEN} hut reached ✓")
        sent = learn(ada, "sent")["sent"]
        assert learn(ada, "ack") == {"ack": sent, "there": True}
        heard = learn(ben, "heard")
        assert (heard["text"], heard["from"], heard["at"]) == ("hut reached ✓", ADA[:12], sent)
        assert (heard["heard"], heard["snr"]) == ("direct", 6.0)
        ben.type("channel 1 anybody near the hut?")
        heard = learn(ada, "heard")
        assert (heard["heard"], heard["text"]) == ("channel", "Node 3: anybody near the hut?")
        ben.type("battery")
        assert learn(ben, "battery") == {"battery": 4010}


def test_position_arrives_in_an_advert(tmp_path: Path) -> None:
    with companions(tmp_path) as (air, ports), person(ports[0]) as ada, person(ports[1]) as ben:
        ben.type("position 46.5475 7.985")
        air.expect("node 2 hears")
        ada.type("nodes")
        assert learn(ada, "nodes")["places"][BEN] == [46.5475, 7.985]


@pytest.mark.full
def test_text_to_a_node_out_of_range_is_not_acknowledged(tmp_path: Path) -> None:
    with companions(tmp_path) as (air, ports), person(ports[0]) as ada:
        air.type("away 3")
        air.expect("out of range")
        ada.type(f"text {BEN} hello")
        assert learn(ada, "ack")["there"] is False


def test_companion_keeps_texts_while_no_client_is_connected(tmp_path: Path) -> None:
    with companions(tmp_path) as (_, ports):
        with person(ports[0]) as ada:
            ada.type(f"text {BEN} later")
            assert learn(ada, "ack")["there"], "the radio has it, and nobody else yet"
        with person(ports[1]) as ben:
            assert learn(ben, "heard")["text"] == "later"


def test_full_contact_table_accepts_no_new_node(tmp_path: Path) -> None:
    with companions(tmp_path, "--crowd", "200") as (_, ports), person(ports[0]) as ada:
        ada.type("nodes")
        assert len(learn(ada, "nodes")["nodes"]) == 100
