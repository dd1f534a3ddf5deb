"""Exchanges commands, replies and unsolicited reports with a GSM modem on an open serial port."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import field
from typing import NoReturn

import trio

from fieldagent.agent.channels.contract import ChannelLink, LinkState
from fieldagent.agent.channels.serial_port import PortLost, SerialPort, open_serial
from fieldagent.extensions.sms import sms_modem
from fieldagent.extensions.sms.agent.arrivals import StoreContent, find_arrivals
from fieldagent.extensions.sms.agent.contract import GsmRefuses, GsmSilent
from fieldagent.extensions.sms.agent.pin import PinMemory
from fieldagent.extensions.sms.sms_modem import (
    GsmConversation,
    GsmEvent,
    GsmReply,
    SendResult,
    StoredMessage,
)
from fieldagent.system import waits
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.outcome import Outcome
from fieldagent.wire.sms_pdu import Submit

log = logging.getLogger(__name__)

REPLY_MAX = 10.0
LIST_MAX_S = 30.0
"""Seconds within which a modem must list a full store. Some modems read each message from the
SIM."""
WAKE_MAX, WAKE_TRIES = 3.0, 3
LOOK_SOON_S = 30.0
"""Seconds between two reads of the store. This interval is sufficient, because most modems report
an arrival."""
PASSED_ON_MAX = 32
"""Largest number of messages that the modem did not store and that wait for the next read."""
ALARM_SHARE = 0.8
"""Fraction of the store's places from which the store is considered nearly full. A full store does
not receive messages, and the modem does not report this."""


@dataclass(slots=True)
class GsmModem:
    """Sends commands to a modem on an open port and receives its replies."""

    port: SerialPort
    link: ChannelLink
    look_soon: float = LOOK_SOON_S
    conversation: GsmConversation = field(default_factory=GsmConversation)
    arrived: bool = True
    """True if the store may contain messages that have not been read."""
    news: trio.Event = field(default_factory=trio.Event)
    """Set when the modem sent an unsolicited report, and then replaced."""
    lost: Exception | None = None
    """Error that occurred while a message was being sent. The modem must then be opened again."""
    crowded: bool = False
    passed_on: dict[int, StoredMessage] = field(default_factory=dict)
    """Messages that the modem passed on without storing them. Their places are negative numbers."""
    _events: tuple[trio.MemorySendChannel[GsmEvent], trio.MemoryReceiveChannel[GsmEvent]] = field(
        default_factory=lambda: trio.open_memory_channel[GsmEvent](64)
    )

    async def listen(self) -> NoReturn:
        """Pass received bytes to the conversation. Only this task reads from the port."""
        while True:
            self.conversation.receive_data(await self.port.read())
            while not isinstance(event := self.conversation.next_event(), sms_modem.NeedMore):
                if isinstance(event, GsmReply | sms_modem.Prompt):
                    self._events[0].send_nowait(event)
                    continue
                if isinstance(event, StoredMessage):
                    self._store_message(event)
                self.arrived = True
                self.news.set()
                self.news = trio.Event()

    def _store_message(self, message: StoredMessage) -> None:
        """Remember a message that the modem did not store. If too many messages wait, the oldest is
        dropped. This does no harm, because the hub repeats an SMS that this kit has not
        acknowledged.
        """
        self.passed_on[message.place] = message
        if len(self.passed_on) > PASSED_ON_MAX:
            del self.passed_on[min(self.passed_on, key=abs)]
            log.warning("an SMS that the modem did not store is lost: too many arrive at once")

    async def ask(self, command: str, seconds: float = REPLY_MAX) -> GsmReply:
        """Send a command to the modem and return its reply. Raises GsmSilent, PortLost."""
        shown_command = command.partition("=")[0] if "CPIN" in command else command
        event = await self._exchange(
            shown_command, self.conversation.make_command(command), seconds
        )
        if not isinstance(event, GsmReply):
            raise GsmSilent(f"{shown_command} was answered by a prompt")
        return event

    async def _exchange(self, command_text: str, data: bytes, seconds: float) -> GsmEvent:
        with waits.move_on_after(seconds):
            await self.port.write(data)
            return await self._events[1].receive()
        self.conversation.abandon_reply()
        raise GsmSilent(f"{command_text} was not answered within {seconds:.0f} s")

    async def send(self, message: Submit) -> SendResult:
        """Pass a message to the modem and return the result. If the modem is lost while it sends,
        `lost` contains the error.
        """
        is_written = False
        try:
            prompted = await self._exchange("AT+CMGS", self.conversation.submit(message), REPLY_MAX)
            if isinstance(prompted, GsmReply):
                return _read_refused_prompt(prompted)
            pdu = self.conversation.encode_pdu(message)
            is_written = True
            event = await self._write_message(pdu)
        except (GsmSilent, PortLost) as error:
            self.lost = error
            if is_written:
                return SendResult(Outcome.DOUBTFUL, reason=str(error))
            return SendResult(Outcome.NOT_SENT, reason=str(error))
        return sms_modem.find_result(event if isinstance(event, GsmReply) else None)

    async def _write_message(self, pdu: bytes) -> GsmEvent:
        """Write the message and return the modem's reply. If another message arrives meanwhile, the
        modem has finished its exchange with the network. If the reply does not arrive soon after
        that, it is lost. Raises GsmSilent.
        """
        with waits.move_on_after(sms_modem.SEND_SECONDS) as limit:
            await self.port.write(pdu)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._hasten, limit)
                event = await self._events[1].receive()
                nursery.cancel_scope.cancel()
            return event
        self.conversation.abandon_reply()
        raise GsmSilent("the modem did not report whether it sent the message")

    async def _hasten(self, limit: trio.CancelScope) -> None:
        await self.news.wait()
        limit.deadline = min(limit.deadline, trio.current_time() + REPLY_MAX)

    async def read_store(self) -> StoreContent:
        """Return the content of the store, and the messages that the modem passed on without
        storing them. Raises GsmSilent, PortLost.
        """
        self.arrived = False
        reply = await self.ask(sms_modem.LIST_ALL, LIST_MAX_S)
        if not reply.ok:
            raise GsmSilent(f"the store cannot be listed (error {reply.error})")
        return find_arrivals([*sms_modem.parse_listed(reply), *self.passed_on.values()])

    async def delete(self, place: int) -> None:
        if place < 0:
            self.passed_on.pop(place, None)
            return
        reply = await self.ask(sms_modem.make_delete_command(place))
        if not reply.ok:
            log.warning("the GSM modem did not delete message %d: error %s", place, reply.error)

    async def read_state(self) -> None:
        """Read the network, the signal and the fill level of the message store. Record them in
        `link`.
        """
        registered = sms_modem.is_registered(await self.ask(sms_modem.NETWORK))
        self.link.record_signal(sms_modem.parse_bars(await self.ask(sms_modem.SIGNAL)))
        self.link.state = LinkState.READY if registered else LinkState.NO_SERVICE
        self.link.reason = "" if registered else "the modem finds no network that accepts it"
        filled = sms_modem.parse_used_places(await self.ask(sms_modem.STORE))
        if filled is None:
            return
        used_places, places = filled
        self.link.facts["smsStore"] = f"{used_places} of {places}"
        was_crowded, self.crowded = self.crowded, used_places >= ALARM_SHARE * places
        if not self.crowded:
            return
        self.link.reason = f"its store is filled: {used_places} of {places} places"
        if not was_crowded:
            log.warning("the GSM modem's store is filled: %d of %d places", used_places, places)

    async def set_up(self, pin: PinMemory) -> None:
        """Set the modem up and unlock its SIM. Raises GsmSilent, GsmRefuses, PortLost."""
        # An earlier program may have left a prompt open.
        await self.port.write(sms_modem.LEAVE_PROMPT)
        await self._wake()
        for command in sms_modem.FIRST_COMMANDS:
            await self.ask(command)
        serial = await self.ask(sms_modem.SERIAL_NUMBER)
        if serial.ok and serial.lines:
            self.link.facts["smsModem"] = serial.lines[0]
        await self._unlock(pin)
        if not (await self.ask(sms_modem.PDU_MODE)).ok:
            raise GsmRefuses("the modem has no PDU mode: use another")
        for store in sms_modem.STORES:
            if (await self.ask(sms_modem.make_store_command(store))).ok:
                break
        else:
            raise GsmSilent("the modem offers no store for SMS: is its SIM still busy?")
        await self.ask(sms_modem.NO_ACKNOWLEDGEMENT)
        offered_modes = await self.ask(sms_modem.NOTIFICATIONS)
        if not (await self.ask(sms_modem.make_notify_command(offered_modes))).ok:
            log.info("the GSM modem does not report new SMS: the agent polls it")

    async def _wake(self) -> None:
        for _ in range(WAKE_TRIES):
            try:
                if (await self.ask(sms_modem.AT_PREFIX, WAKE_MAX)).ok:
                    return
            except GsmSilent:
                continue
        raise GsmSilent("no answer to AT: is this the modem's port, and does the modem have power?")

    async def _unlock(self, pin: PinMemory) -> None:
        """Unlock the SIM. Three wrong PINs lock the SIM permanently. So each PIN is tried once, and
        once more only if the answer was lost.
        """
        wants = self._find_lock(await self.ask(sms_modem.PIN))
        if not wants:
            return
        if wants != "SIM PIN":
            raise GsmRefuses(f"{wants}: put the SIM into a telephone and fix this")
        if not pin.value:
            raise GsmRefuses("the SIM needs its PIN: set sms-pin")
        if hindrance := pin.describe_hindrance():
            raise GsmRefuses(hindrance)
        pin.record_attempt()
        reply = await self.ask(sms_modem.make_unlock_command(pin.value), LIST_MAX_S)
        if reply.error in sms_modem.SIM_BUSY:
            raise GsmSilent(f"the SIM does not accept a PIN yet (error {reply.error})")
        if not reply.ok:
            pin.record_refusal()
            raise GsmRefuses("the SIM refuses sms-pin: correct it; it is not tried again")
        pin.clear_attempts()
        if wants := self._find_lock(await self.ask(sms_modem.PIN)):
            raise GsmRefuses(f"the SIM needs more than its PIN: {wants}")

    @staticmethod
    def _find_lock(reply: GsmReply) -> str:
        try:
            return sms_modem.parse_lock(reply)
        except RemoteProtocolError as error:
            raise GsmSilent(str(error)) from None


def _read_refused_prompt(reply: GsmReply) -> SendResult:
    """Return the result if the modem refuses the prompt. The message was not sent, whatever the
    error is.
    """
    verdict = sms_modem.find_result(reply)
    if verdict.outcome is Outcome.NOT_SENT:
        return verdict
    return SendResult(Outcome.NOT_SENT, reason="the modem does not accept messages now")


@asynccontextmanager
async def open_gsm(
    port: str, baud: int, link: ChannelLink, pin: PinMemory
) -> AsyncIterator[GsmModem]:
    """Open a modem that has answered and is set up. Raises PortLost, GsmSilent, GsmRefuses."""
    async with open_serial(port, baud) as line, trio.open_nursery() as nursery:
        modem = GsmModem(line, link)
        nursery.start_soon(modem.listen)
        await modem.set_up(pin)
        log.info("GSM modem %s answers on %s", link.facts.get("smsModem", ""), port)
        yield modem
        nursery.cancel_scope.cancel()
