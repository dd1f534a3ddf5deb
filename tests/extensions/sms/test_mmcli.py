"""A modem under ModemManager: the kit runs `mmcli`, which one of our programs replaces."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import trio

from fieldagent.agent.channels.contract import ChannelLink
from fieldagent.extensions.sms.agent.contract import GsmSilent
from fieldagent.extensions.sms.agent.mmcli import ManagedModem
from fieldagent.wire import sms_pdu
from fieldagent.wire.outcome import Outcome
from fieldagent.wire.sms_pdu import Submit
from tests.agent.test_agent import HOOK
from tests.extensions.sms.managed import Managed
from tests.extensions.sms.network import HUB_NUMBER, country, facts, reaches
from tests.extensions.sms.test_sms_faults import accepted, arrives
from tests.extensions.sms.test_sms_journey import contents
from tests.extensions.sms.test_sms_reports import STRANGER, TELEPHONE_HAS_IT, all_is_read, said
from tests.processes import until


@pytest.mark.full
def test_messages_travel_both_ways_and_none_stays_in_the_modem(tmp_path: Path) -> None:
    with country(tmp_path, managed=True) as network:
        with network.kit(**{"inbound-hook": HOOK}) as kit:
            reaches(kit, "ready")
            assert facts(kit)["smsModem"] == "490154203237518"
            assert kit.post("Camp reached, grüezi").body["status"] == "Delivered"
            assert contents(network.database) == ["camp reached, grüezi"]
            network.push("come to the hut")
            kit.expect("come to the hut")
            until(lambda: facts(kit)["smsToday"] == 2)
        assert not list((tmp_path / "modem" / "messages").iterdir())


@pytest.mark.full
def test_delivery_report_is_assigned_to_its_sms(tmp_path: Path) -> None:
    within = {"sms-answer-within": "86400"}
    with country(tmp_path, managed=True) as network, network.kit(**within) as kit:
        network.stop_up()
        place = accepted(kit, "anybody?")
        until(lambda: network.up)
        network.modem.type("report 1 temporary-error-congestion")
        network.modem.type("report 1 completed-received")
        network.modem.type("report 1 completed-received")
        kit.expect(TELEPHONE_HAS_IT)
        all_is_read(network, kit)
        assert said(kit, TELEPHONE_HAS_IT) == 1
        assert kit.call("GET", place).body["status"] is None
        network.go_on()
        arrives(kit, place)


@pytest.mark.full
def test_sms_is_sent_again_after_a_failure_report(tmp_path: Path) -> None:
    within = {"sms-answer-within": "86400"}
    with country(tmp_path, managed=True) as network, network.kit(**within) as kit:
        network.loses_up = 1
        place = accepted(kit, "again")
        until(lambda: network.up)
        network.modem.type("report 1 error-validity-period-expired")
        kit.expect("the network failed to deliver an SMS (status 46)")
        arrives(kit, place)
        assert network.up == [network.up[0]] * 2


@pytest.mark.full
def test_unrelated_sms_are_kept_or_deleted(tmp_path: Path) -> None:
    messages = tmp_path / "modem" / "messages"
    with country(tmp_path, managed=True) as network, network.kit() as kit:
        network.modem.type(f"half {STRANGER} spring")
        until(lambda: facts(kit)["smsStrangers"] == 1)
        network.modem.type(f"half {HUB_NUMBER} fa:half")
        (messages / "77").write_text("this is no JSON")
        kit.expect("SMS 77 of ModemManager cannot be read")
        all_is_read(network, kit)
        assert said(kit, "SMS 77") == 1
        assert len(list(messages.iterdir())) == 2


@pytest.mark.full
@pytest.mark.parametrize(
    ("fault", "about", "reason"),
    [
        ("no-modem", "", "absent: mmcli reports: couldn't find modem"),
        ("locked", "sim-pin", "fault: the modem is locked (sim-pin): give NetworkManager the PIN"),
        ("failed", "sim-missing", "fault: ModemManager reports that the modem failed: sim-missing"),
        ("searching", "", "no service: the modem finds no network that accepts it"),
        ("no-json", "Modem/0: hello", "absent: mmcli's answer is not JSON: 'Modem/0: hello'"),
        ("no-json", "[]", "absent: mmcli's answer is not a JSON object"),
        ("no-json", "{}", "absent: mmcli does not report 'modem'"),
        ("floods", "", "absent: mmcli wrote more than 262144 bytes (any -J)"),
        ("hangs", "", "absent: mmcli did not end within 20 s (any -J)"),
    ],
)
def test_fault_of_modem_or_modemmanager_is_reported(
    tmp_path: Path, fault: str, about: str, reason: str
) -> None:
    with country(tmp_path, managed=True) as network:
        assert isinstance(network.modem, Managed)
        network.modem.breaks(fault, about)
        with network.kit() as kit:
            reaches(kit, reason)


@pytest.mark.full
def test_modem_that_returns_is_used(tmp_path: Path) -> None:
    with country(tmp_path, managed=True) as network:
        assert isinstance(network.modem, Managed)
        network.modem.breaks("no-modem")
        with network.kit() as kit:
            reaches(kit, "absent")
            place = accepted(kit, "patience")
            network.modem.heals("no-modem")
            arrives(kit, place)
            assert len(network.up) == 1


@pytest.mark.full
def test_missing_polkit_permission_is_reported(tmp_path: Path) -> None:
    with country(tmp_path, managed=True) as network:
        assert isinstance(network.modem, Managed)
        network.modem.breaks("not-allowed")
        with network.kit() as kit:
            place = accepted(kit, "may I?")
            reaches(kit, "polkit does not allow org.freedesktop.ModemManager1.Messaging")
            assert facts(kit)["smsToday"] == 0
            network.modem.heals("not-allowed")
            arrives(kit, place)


def test_missing_mmcli_is_reported(tmp_path: Path) -> None:
    with country(tmp_path, managed=True) as network:
        network.environment = {"PATH": str(tmp_path / "nothing")}
        with network.kit() as kit:
            reaches(kit, "fault: mmcli cannot be started (No such file or directory): install")


@pytest.mark.full
def test_sms_refused_by_the_network_is_free_and_retried(tmp_path: Path) -> None:
    with country(tmp_path, managed=True) as network:
        assert isinstance(network.modem, Managed)
        name = "org.freedesktop.ModemManager1.Error.Message.NoNetwork"
        network.modem.breaks("refuses", f"{name}: No network service")
        with network.kit() as kit:
            place = accepted(kit, "patience")
            kit.expect("an SMS was not sent: no network (331)")
            assert facts(kit)["smsToday"] == 0
            arrives(kit, place)


@pytest.mark.full
def test_sms_with_an_unclear_result_arrives_once(tmp_path: Path) -> None:
    with country(tmp_path, managed=True) as network:
        assert isinstance(network.modem, Managed)
        network.modem.breaks("loses")
        network.stop_up()
        with network.kit() as kit:
            place = accepted(kit, "who knows")
            kit.expect("an SMS may have left: mmcli reports: couldn't send the SMS")
            network.go_on()
            arrives(kit, place)
            assert contents(network.database) == ["who knows"]


@pytest.mark.full
def test_hanging_mmcli_leaves_the_sms_doubtful(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    managed = Managed(tmp_path)
    managed.breaks("hangs-after")
    for name, value in managed.environment.items():
        monkeypatch.setitem(os.environ, name, value)
    modem = ManagedModem("any", ChannelLink(), send_max=5.0)
    (content,) = sms_pdu.split("fa:AAAA", 0)
    sent = trio.run(modem.send, Submit(HUB_NUMBER, content))
    assert (sent.outcome, sent.reference) == (Outcome.DOUBTFUL, None)
    assert sent.reason.startswith("mmcli did not end within 5 s")
    assert isinstance(modem.lost, GsmSilent)
    assert managed.output() == [f"SMS to {HUB_NUMBER}: 'fa:AAAA'"]
