"""The conversation about text messages byte by byte, with the simulated modem at the other end,
which was tested with gammu, and with faults from the field.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldagent.extensions.lab.simulator.gsm_modem import DS, SIM_MESSAGES_MAX, SimulatedGsmModem
from fieldagent.extensions.sms import sms_modem
from fieldagent.extensions.sms.agent.arrivals import find_arrivals
from fieldagent.extensions.sms.sms_modem import (
    FIRST_COMMANDS,
    LEAVE_PROMPT,
    LIST_ALL,
    NEED_MORE,
    NO_ACKNOWLEDGEMENT,
    NOTIFICATIONS,
    PDU_MODE,
    STORE,
    GsmConversation,
    GsmReply,
    MessageStored,
    Prompt,
    SendResult,
    StoredMessage,
)
from fieldagent.wire import sms_pdu
from fieldagent.wire.errors import LocalProtocolError
from fieldagent.wire.outcome import Outcome
from fieldagent.wire.sms_pdu import Deliver, ReportState, StatusReport, Submit

HUB = "+41791234567"
ENVELOPE = bytes(range(140))


class Line:
    """A conversation with a modem at its other end, in pieces of `step` bytes."""

    def __init__(self, step: int = 4_096) -> None:
        self.left: list[Submit] = []
        self.modem = SimulatedGsmModem(self.left.append, clock=lambda: 1_790_000_000.0)
        self.talk = GsmConversation()
        self.arrived: list[int] = []
        self.passed_on: list[StoredMessage] = []
        self.step = step

    def write(self, data: bytes) -> GsmReply | Prompt | None:
        self.modem.receive_data(data)
        said = self.modem.data_to_send()
        reply: GsmReply | Prompt | None = None
        for at in range(0, len(said), self.step):
            self.talk.receive_data(said[at : at + self.step])
            while (event := self.talk.next_event()) is not NEED_MORE:
                if isinstance(event, MessageStored):
                    self.arrived.append(event.place)
                elif isinstance(event, StoredMessage):
                    self.passed_on.append(event)
                else:
                    assert reply is None and not isinstance(event, sms_modem.NeedMore)
                    reply = event
        return reply

    def ask(self, text: str) -> GsmReply:
        reply = self.write(self.talk.make_command(text))
        assert isinstance(reply, GsmReply)
        return reply

    def set_up(self) -> None:
        self.write(LEAVE_PROMPT)
        set_up = (*FIRST_COMMANDS, PDU_MODE, sms_modem.make_store_command("ME"), NO_ACKNOWLEDGEMENT)
        assert all(self.ask(each).ok for each in set_up)
        assert self.ask(sms_modem.make_notify_command(self.ask(NOTIFICATIONS))).ok

    def send(self, message: Submit) -> SendResult:
        assert self.write(self.talk.submit(message)) == Prompt()
        reply = self.write(self.talk.encode_pdu(message))
        assert not isinstance(reply, Prompt)
        if reply is None:
            self.talk.abandon_reply()
        return sms_modem.find_result(reply)


def envelope(data: bytes = ENVELOPE) -> Submit:
    (content,) = sms_pdu.split(data, 0)
    return Submit(HUB, content)


@contextmanager
def line(step: int = 4_096) -> Iterator[Line]:
    modem_line = Line(step)
    modem_line.set_up()
    yield modem_line


@pytest.mark.parametrize("step", [1, 7, 4_096])
def test_sms_is_sent_and_its_delivery_report_stored(step: int) -> None:
    with line(step) as modem:
        sent = modem.send(envelope())
        assert (sent.outcome, sent.reference) == (Outcome.SENT, 1)
        assert modem.left[0].content.body == ENVELOPE
        assert modem.arrived == [1]
        (stored,) = sms_modem.parse_listed(modem.ask(LIST_ALL))
        assert isinstance(stored.message, StatusReport)
        assert (stored.message.reference, stored.message.state) == (1, ReportState.DELIVERED)
        assert modem.ask(f"AT+CMGD={stored.place}").ok
        assert sms_modem.parse_listed(modem.ask(LIST_ALL)) == []


@pytest.mark.parametrize("step", [1, 7, 4_096])
def test_directly_routed_report_has_no_storage_index(step: int) -> None:
    with line(step) as modem:
        modem.modem.offered[DS] = "01"
        assert modem.ask("AT+CSMS=1").ok  # An earlier program acknowledged what was passed on.
        modem.set_up()
        assert modem.send(envelope()).outcome is Outcome.SENT
        modem.modem.report(1, 0x46)
        assert modem.ask("AT").ok
        states = [
            each.message.state
            for each in modem.passed_on
            if isinstance(each.message, StatusReport) and each.message.reference == 1
        ]
        assert states == [ReportState.DELIVERED, ReportState.FAILED]
        assert [each.place for each in modem.passed_on] == [-1, -2]
        assert modem.arrived == []
        assert sms_modem.parse_listed(modem.ask(LIST_ALL)) == []


@pytest.mark.parametrize("step", [1, 4_096])
def test_directly_routed_sms_is_reassembled(step: int) -> None:
    with line(step) as modem:
        modem.modem.unasked = True
        modem.modem.receive_text(HUB, bytes(range(200)))
        assert modem.ask("AT").ok
        (whole,) = find_arrivals(modem.passed_on).whole
        assert isinstance(whole.message, Deliver)
        assert whole.message.content.body == bytes(range(200))
        assert modem.arrived == []


REPORT = sms_pdu.encode(StatusReport(7, HUB, 1_790_000_000.0, 1_790_000_000.0, 0)).hex().upper()
LENGTH = len(REPORT) // 2 - 1


@pytest.mark.parametrize(
    ("said", "places", "lines"),
    [
        (f"+CDS: {LENGTH}\r\n{REPORT}\r\n", [-1], ("+CSQ: 20,99",)),
        (f"+CDS:{LENGTH}\r\n{REPORT}\r\n", [-1], ("+CSQ: 20,99",)),
        (f'+CMT: "Base, north",{LENGTH}\r\n{REPORT}\r\n', [-1], ("+CSQ: 20,99",)),
        (f"+CMT: {LENGTH}\r\n\r\n{REPORT}\r\n", [-1], ("+CSQ: 20,99",)),
        (f"+CDS: {LENGTH}\r\n?{REPORT[:-9]}\r\n", [-1], ("+CSQ: 20,99",)),
        (f"+CDS: {LENGTH}\r\n", [], ("+CSQ: 20,99",)),
        (f"+CDS: {LENGTH}\r\n+CDS: {LENGTH}\r\n{REPORT}\r\n", [-1], ("+CSQ: 20,99",)),
        (f'+CDS: {LENGTH}\r\n+CDSI: "ME",3\r\n', [3], ("+CSQ: 20,99",)),
        (f"{REPORT}\r\n", [], (REPORT, "+CSQ: 20,99")),
    ],
)
def test_notification_inside_a_reply_is_separated(
    said: str, places: list[int], lines: tuple[str, ...]
) -> None:
    """A header whose PDU is lost removes no line of the reply. An unreadable PDU is kept."""
    talk = GsmConversation()
    talk.make_command("AT+CSQ")
    talk.receive_data(f"\r\n{said}\r\n+CSQ: 20,99\r\n\r\nOK\r\n".encode())
    events = list(iter(talk.next_event, NEED_MORE))
    assert [
        each.place for each in events if isinstance(each, MessageStored | StoredMessage)
    ] == places
    assert events[-1] == GsmReply(True, lines)


@pytest.mark.parametrize(
    ("offered", "command"),
    [
        ("+CNMI: (0-2),(0-3),(0,2),(0-2),(0,1)", "AT+CNMI=2,1,0,2,0"),
        ("+CNMI: (0,1,2,3),(0,1,2,3),(0,2),(0,1),(0,1)", "AT+CNMI=2,1,0,1,0"),
        ("+CNMI: (1,2),(0,1),0,(0),(1)", "AT+CNMI=2,1,0,0,1"),
        ("+CNMI: (0,1),(0,2),(0),(2),(0)", "AT+CNMI=1,0,0,2,0"),
        ("+CNMI: 2", "AT+CNMI=2,1,0,1,0"),
        ("", "AT+CNMI=2,1,0,1,0"),
    ],
)
def test_cnmi_command_matches_the_modems_offer(offered: str, command: str) -> None:
    assert sms_modem.make_notify_command(GsmReply(True, (offered,))) == command


@pytest.mark.parametrize("step", [1, 4_096])
def test_stored_sms_is_listed_and_reassembled(step: int) -> None:
    with line(step) as modem:
        modem.modem.receive_text(HUB, bytes(range(200)))
        stored = sms_modem.parse_listed(modem.ask(LIST_ALL))
        (whole,) = find_arrivals(stored).whole
        assert isinstance(whole.message, Deliver)
        assert whole.message.content.body == bytes(range(200))
        assert modem.arrived == [1, 2]


def test_lost_or_garbled_reply_leaves_the_sms_doubtful() -> None:
    with line() as modem:
        modem.modem.faults.lose_reply = 1
        assert modem.send(envelope()).outcome is Outcome.DOUBTFUL
        modem.modem.faults.garble_reply = 1
        assert modem.send(envelope()).outcome is Outcome.DOUBTFUL
        assert len(modem.left) == 2, "they had left"
        # The rest of the garbled message is noise for the next one.
        assert modem.ask("AT+CSQ").ok


def test_stuck_prompt_is_left_before_the_next_attempt() -> None:
    with line() as modem:
        modem.modem.faults.stuck = 1
        assert modem.send(envelope()).outcome is Outcome.DOUBTFUL
        assert modem.left == []
        modem.set_up()
        assert modem.send(envelope()).outcome is Outcome.SENT


def test_line_unplugged_within_a_pdu_is_set_up_again() -> None:
    with line() as modem:
        message = envelope()
        modem.write(modem.talk.submit(message))
        modem.write(modem.talk.encode_pdu(message)[:50])
        modem.modem.power_off()
        modem.talk = GsmConversation()
        modem.set_up()
        assert modem.send(message).outcome is Outcome.SENT
        assert len(modem.left) == 1


@pytest.mark.parametrize(
    ("code", "outcome", "final"),
    [
        (38, Outcome.NOT_SENT, False),
        (42, Outcome.NOT_SENT, False),
        (331, Outcome.NOT_SENT, False),
        (310, Outcome.NOT_SENT, False),
        (28, Outcome.NOT_SENT, True),
        (50, Outcome.NOT_SENT, True),
        (500, Outcome.DOUBTFUL, False),
        (999, Outcome.DOUBTFUL, False),
    ],
)
def test_error_code_decides_if_an_sms_is_retried(code: int, outcome: Outcome, final: bool) -> None:
    with line() as modem:
        modem.modem.faults.refuse.append(code)
        sent = modem.send(envelope())
        assert (sent.outcome, sent.final) == (outcome, final)
        assert str(code) in sent.reason


def test_full_sim_is_reported_and_receives_nothing_more() -> None:
    with line() as modem:
        assert sms_modem.parse_used_places(modem.ask(STORE)) == (0, SIM_MESSAGES_MAX)
        modem.modem.fill()
        assert sms_modem.parse_used_places(modem.ask(STORE)) == (SIM_MESSAGES_MAX, SIM_MESSAGES_MAX)
        assert not modem.modem.receive_text(HUB, b"lost")


def test_second_command_during_a_command_raises() -> None:
    talk = GsmConversation()
    talk.make_command("AT")
    with pytest.raises(LocalProtocolError, match="AT is under way"):
        talk.make_command("AT+CSQ")
    with pytest.raises(LocalProtocolError, match="no prompt"):
        talk.encode_pdu(envelope())


@given(st.binary(max_size=3_000), st.booleans())
def test_random_bytes_do_not_raise(noise: bytes, prompted: bool) -> None:
    talk = GsmConversation()
    if prompted:
        talk.submit(envelope())
    talk.receive_data(noise)
    while talk.next_event() is not NEED_MORE:
        pass
    sms_modem.parse_listed(GsmReply(True, tuple(noise.decode("ascii", "replace").split("\n"))))
