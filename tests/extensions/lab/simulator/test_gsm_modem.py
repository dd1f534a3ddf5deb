"""Routing of arriving messages by the simulated GSM modem, as in 3GPP TS 27.005, 3.4.1."""

from __future__ import annotations

import pytest

from fieldagent.extensions.lab.simulator.gsm_modem import SIM_MESSAGES_MAX, SimulatedGsmModem
from fieldagent.wire import sms_pdu
from fieldagent.wire.sms_pdu import Deliver, StatusReport

NUMBER, NOW = "+41791234567", 1_790_000_000.0
SMS = Deliver(NUMBER, sms_pdu.split("noon", 0)[0], NOW)
REPORT = StatusReport(7, NUMBER, NOW, NOW, 0)


class Line:
    def __init__(self) -> None:
        self.modem = SimulatedGsmModem(lambda message: None, clock=lambda: NOW)
        assert self.ask("ATE0") == ["ATE0", "OK"]

    def ask(self, command: str) -> list[str]:
        self.modem.receive_data(f"{command}\r".encode())
        return self.lines()

    def lines(self) -> list[str]:
        return self.modem.data_to_send().decode().split()

    def come(self, message: Deliver | StatusReport) -> list[str]:
        assert self.modem.receive_from_network(message)
        return self.lines()


def format_routed_message(head: str, message: Deliver | StatusReport) -> list[str]:
    pdu = sms_pdu.encode(message)
    # The length counts neither the number of the service centre nor its length octet.
    return [*f"{head}{len(pdu) - 1 - pdu[0]}".split(), pdu.hex().upper()]


@pytest.mark.parametrize(
    ("values", "message", "lines", "stored"),
    [
        ("2,0,0,0,0", SMS, [], 1),
        ("2,1,0,0,0", SMS, ["+CMTI:", '"ME",1'], 1),
        ("2,3,0,0,0", SMS, ["+CMTI:", '"ME",1'], 1),
        ("2,2,0,0,0", SMS, format_routed_message("+CMT: ,", SMS), 0),
        ("2,1,0,0,0", REPORT, [], 1),
        ("2,1,0,1,0", REPORT, format_routed_message("+CDS: ", REPORT), 0),
        ("2,1,0,2,0", REPORT, ["+CDSI:", '"ME",1'], 1),
        ("1,2,0,1,0", REPORT, format_routed_message("+CDS: ", REPORT), 0),
    ],
)
def test_cnmi_routes_arriving_messages(
    values: str, message: Deliver | StatusReport, lines: list[str], stored: int
) -> None:
    line = Line()
    assert line.ask(f"AT+CNMI={values}") == ["OK"]
    assert line.come(message) == lines
    assert len(line.modem.store) == stored


@pytest.mark.parametrize("values", ["4", "2,4", "2,1,1", "2,1,0,3", "2,1,0,1,2", "9,1,0,1,0"])
def test_unsupported_cnmi_value_is_an_error_and_changes_nothing(values: str) -> None:
    line = Line()
    line.ask("AT+CNMI=2,1,0,2,1")
    assert line.ask(f"AT+CNMI={values}") == ["ERROR"]
    assert line.ask("AT+CNMI?") == ["+CNMI:", "2,1,0,2,1", "OK"]


def test_modem_without_stored_reports_refuses_their_mode() -> None:
    line = Line()
    line.modem.offered[3] = "01"
    assert line.ask("AT+CNMI=?") == ["+CNMI:", "(0,1,2,3),(0,1,2,3),(0,2),(0,1),(0,1)", "OK"]
    assert line.ask("AT+CNMI=2,1,0,2,0") == ["ERROR"]


@pytest.mark.parametrize(("flush", "shown"), [("0", ["+CMTI:", '"ME",1']), ("1", [])])
def test_mode_0_buffers_reports_until_another_mode_flushes_or_clears_them(
    flush: str, shown: list[str]
) -> None:
    line = Line()
    line.ask("AT+CNMI=0,1,0,2,0")
    assert line.come(SMS) == []
    assert line.ask(f"AT+CNMI=2,1,0,2,{flush}") == ["OK", *shown]


def test_full_store_still_routes_messages_directly() -> None:
    line = Line()
    line.modem.fill()
    line.ask("AT+CNMI=2,2,0,1,0")
    assert line.come(SMS) == format_routed_message("+CMT: ,", SMS)
    assert len(line.modem.store) == SIM_MESSAGES_MAX


def test_service_1_routes_directly_only_while_the_host_acknowledges() -> None:
    line = Line()
    assert line.ask("AT+CNMA") == ["+CMS", "ERROR:", "340"]
    line.ask("AT+CSMS=1")
    line.ask("AT+CNMI=2,2,0,1,0")
    for _ in range(2):
        assert line.come(SMS) == format_routed_message("+CMT: ,", SMS)
        assert line.ask("AT+CNMA") == ["OK"]
    line.come(SMS)
    # The network sends the one without an acknowledgement again.
    assert line.come(SMS) == []
    assert len(line.modem.store) == 2
    assert line.ask("AT+CNMI?") == ["+CNMI:", "2,0,0,0,0", "OK"]


def test_service_0_routes_directly_without_acknowledgement() -> None:
    line = Line()
    line.ask("AT+CNMI=2,2,0,1,0")
    assert line.come(SMS) == line.come(SMS) == format_routed_message("+CMT: ,", SMS)
