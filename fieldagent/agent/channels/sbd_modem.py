"""Commands, replies and unsolicited reports of an Iridium 9602/9603 on an open serial port."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import field
from typing import NoReturn

import trio

from fieldagent.agent.channels.contract import ChannelLink
from fieldagent.agent.channels.serial_port import SerialPort, open_serial
from fieldagent.system import waits
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire import sbd

log = logging.getLogger(__name__)

REPLY_TIMEOUT_S = 10.0
"""Longest time in seconds for the reply to any command except a session."""
MODEM_SESSION_TIMEOUT_S = 60
"""Seconds after which the modem itself ends a session (+SBDST)."""
HOST_SESSION_TIMEOUT_S = MODEM_SESSION_TIMEOUT_S + 30.0
"""Seconds after which the host ends a session. It is longer than the modem's own limit."""
SOS_SESSION_TIME = 50
"""Seconds after which the modem ends a session with an SOS, so that a lost reply delays the SOS by
less than a minute. A session takes 11 to 62 seconds."""
SOS_SESSION_MAX_S = SOS_SESSION_TIME + 5.0
SESSION_TIME_MAX_S = MODEM_SESSION_TIMEOUT_S + 2.0
"""Longest time in seconds that a session takes at the modem."""
WRITE_MAX, SLOWEST = 2.0, 120.0
"""Longest time in seconds for the reply to +SBDWB after the payload has left, and the lowest speed
in bytes per second."""
FILL_INTERVAL_S = 0.1
READ_TIMEOUT_S = WRITE_MAX + sbd.MT_BYTES / 60.0
"""Longest time in seconds to read a message from the modem, long enough for 600 baud. It is
extended while bytes arrive."""


class ModemSilent(Exception):
    """The modem did not answer a command in time, or did not send a valid reply."""


@dataclass(slots=True)
class Modem:
    """Sends commands to a modem at one open port, and receives its replies. Unsolicited reports
    change `link`, `has_rung` and `service`.
    """

    port: SerialPort
    link: ChannelLink
    conversation: sbd.Conversation = field(default_factory=sbd.Conversation)
    has_rung: bool = False
    news: trio.Event = field(default_factory=trio.Event)
    """Event that is set when the modem sends an unsolicited report. A new event then replaces
    it."""
    service: bool | None = None
    imei: str = ""
    last_read: sbd.MobileTerminatedMessage | None = None
    is_holding_own_message: bool = False
    """True if the MO buffer contains our last message. False after any sign of a reset, because a
    reset empties the buffer."""
    resets: int = 0
    """Number of resets that were detected."""
    settings: tuple[sbd.LineSetting, ...] = (sbd.RING_ALERT_SETTING, sbd.INDICATOR_SETTING)
    """Settings that the agent must set after each reset."""
    unreported_settings: set[sbd.LineSetting] = field(default_factory=set)
    """Settings that this modem does not report when queried."""
    refused_commands: set[str] = field(default_factory=set)
    """Commands that this modem does not know."""
    echo_shows_reset: bool = True
    """True if an echo shows a reset; False if the modem always echoes."""
    _replies: tuple[
        trio.MemorySendChannel[sbd.SbdEvent], trio.MemoryReceiveChannel[sbd.SbdEvent]
    ] = field(default_factory=lambda: trio.open_memory_channel[sbd.SbdEvent](64))

    async def listen(self) -> NoReturn:
        """Pass received bytes to the parser, forever. Only this task reads the port."""
        while True:
            self.conversation.receive_data(await self.port.read())
            while (event := self.conversation.next_event()) is not sbd.NEED_DATA:
                self._dispatch_event(event)

    def _dispatch_event(self, event: sbd.SbdEvent) -> None:
        if isinstance(event, sbd.ModemReply | sbd.Ready):
            self._replies[0].send_nowait(event)
            return
        if isinstance(event, sbd.MobileTerminatedMessage):
            self.last_read = event
            return
        if isinstance(event, sbd.RingAlert):
            log.info("the modem rings: a message waits")
            self.has_rung = True
        elif isinstance(event, sbd.Signal):
            self.link.record_signal(event.bars)
        else:
            self.service = event.available
        self.wake_waiting()

    def wake_waiting(self) -> None:
        """Wake the tasks that wait for news."""
        self.news.set()
        self.news = trio.Event()

    async def ask(self, command: str, seconds: float = REPLY_TIMEOUT_S) -> sbd.ModemReply:
        """Send a command and return its reply. Raises ModemSilent if the modem sends no valid reply
        in time.
        """
        event = await self._ask(command, seconds)
        if not isinstance(event, sbd.ModemReply):
            raise ModemSilent(f"{command} was answered by {event}")
        self._record_echo(event)
        return event

    def _record_echo(self, event: sbd.SbdEvent) -> None:
        if isinstance(event, sbd.ModemReply) and event.is_echoed and self.echo_shows_reset:
            self.is_holding_own_message = False

    async def _ask(self, command: str, seconds: float) -> sbd.SbdEvent:
        await self._write(command, self.conversation.send(command), seconds)
        return await self._wait_for_reply(command, seconds)

    async def _write(self, command: str, data: bytes, seconds: float) -> None:
        with waits.move_on_after(seconds):
            await self.port.write(data)
            return
        self._abandon_command()
        raise ModemSilent(f"{command} was not accepted within {seconds:.0f} s")

    async def _wait_for_reply(self, command: str, seconds: float) -> sbd.SbdEvent:
        with waits.move_on_after(seconds):
            return await self._replies[1].receive()
        self._abandon_command()
        raise ModemSilent(f"{command} was not answered within {seconds:.0f} s")

    def _abandon_command(self) -> None:
        self.last_read = self.conversation.abandon_command() or self.last_read

    async def write(self, body: bytes) -> sbd.WriteResult:
        """Write a message into the MO buffer, and return the modem's report on it. Raises
        ModemSilent if the modem does not answer in time.
        """
        command = sbd.make_write_command(len(body))
        event = await self._ask(command, REPLY_TIMEOUT_S)
        if isinstance(event, sbd.ModemReply):
            return sbd.parse_write(event)
        await self._write(command, self.conversation.send_payload(body), REPLY_TIMEOUT_S)
        reply = await self._await_write_reply(command, len(body))
        assert isinstance(reply, sbd.ModemReply)
        result = sbd.parse_write(reply)
        reset = reply.is_echoed and self.echo_shows_reset
        self.is_holding_own_message = result is sbd.WriteResult.STORED and not reset
        return result

    async def _await_write_reply(self, command: str, size: int) -> sbd.SbdEvent:
        """Return the reply to a written message. If a byte was lost, the modem would wait 60 s for
        it. So after a time, send line ends in the place of the lost bytes: the modem then reports a
        wrong checksum at once. Extra line ends are only empty commands.
        """
        with waits.move_on_after(WRITE_MAX + size / SLOWEST):
            return await self._replies[1].receive()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._send_line_ends, size)
            event = await self._wait_for_reply(command, REPLY_TIMEOUT_S + 60)
            nursery.cancel_scope.cancel()
        return event

    async def _send_line_ends(self, size: int) -> None:
        for _ in range(size):
            await self.port.write(b"\r")
            await trio.sleep(FILL_INTERVAL_S)

    async def read(self) -> sbd.MobileTerminatedMessage | None:
        """Read the message in the modem. Return the message or the part of it that arrived. Return
        None if the modem sent nothing.
        """
        self.last_read = None
        command = sbd.READ_BINARY
        try:
            await self._write(command, self.conversation.send(command), READ_TIMEOUT_S)
            position = -1
            while position < (position := self.conversation.unread):
                with waits.move_on_after(READ_TIMEOUT_S):
                    self._record_echo(await self._replies[1].receive())
                    return self.last_read
            await self._wait_for_reply(command, 0.0)
        except ModemSilent as silence:
            log.info("%s", silence)
        return self.last_read

    async def set_up(self) -> None:
        """Set all settings that a reset undoes. Only the first command must succeed. Failures of
        other commands are ignored.
        """
        self.echo_shows_reset = True
        first = await self._wake_up()
        self.is_holding_own_message = not first.is_echoed
        probe = await self.ask(sbd.AT_PREFIX)
        self.echo_shows_reset = not probe.is_echoed
        for command in (
            sbd.make_session_timeout(MODEM_SESSION_TIMEOUT_S),
            *(setting.command for setting in self.settings),
        ):
            reply = await self.ask(command)
            if not reply.ok:
                log.info("the modem does not know %s; continuing without it", command)
                self.refused_commands.add(command)
        # Without this query, firmware TA16005 hangs in its first session.
        await self.ask_time()

    async def hold_settings(self) -> None:
        """Restore the settings, because a short loss of power may have undone them. Usually an echo
        shows such a loss, but not if the modem's stored settings suppress the echo. Settings that
        the modem does not report are set each time.
        """
        for setting in self.settings:
            if setting.command in self.refused_commands:
                continue
            is_readable = setting not in self.unreported_settings
            numbers = sbd.parse_numbers(await self.ask(setting.query)) if is_readable else ()
            if not numbers:
                self.unreported_settings.add(setting)
                await self.ask(setting.command)
            elif numbers[: len(setting.answer_start)] != setting.answer_start:
                log.warning("the modem has lost %s: setting it again", setting.command)
                await self.ask(setting.command)

    async def ask_time(self) -> None:
        """Query the network's time, and report it to the link if the modem knows it."""
        unix = sbd.parse_system_time(await self.ask(sbd.SYSTEM_TIME))
        if unix is not None:
            self.link.report_time(unix)

    async def ask_traffic(self) -> int | None:
        """Return the seconds until the network accepts a session, or None if the network reports no
        such time.
        """
        return sbd.parse_traffic(await self.ask(sbd.TRAFFIC))

    async def _wake_up(self) -> sbd.ModemReply:
        """Send commands until the modem answers. A modem that has just been switched on needs some
        time, and may misread the first command. A modem whose stored settings are V0 or Q1 gives no
        readable reply before SETUP_COMMAND.
        """
        for command in (sbd.SETUP_COMMAND, sbd.SETUP_COMMAND, sbd.AT_PREFIX):
            try:
                reply = await self.ask(command, 3)
            except ModemSilent:
                # The modem may wait for the rest of a broken message. Send bytes that complete the
                # message with a wrong checksum.
                await self._write(command, b"\r" * (sbd.MO_BYTES + 2), REPLY_TIMEOUT_S)
                continue
            if reply.ok:
                return reply
        raise ModemSilent(
            "no answer to AT: is this the modem's port, and does the modem have power?"
        )

    async def identify(self) -> None:
        """Query the IMEI and the firmware, and add them to the link's facts. Raises ModemSilent,
        PortLost, or RemoteProtocolError if the reply contains no IMEI.
        """
        for command in sbd.SERIAL_NUMBERS:
            reply = await self.ask(command)
            if reply.ok:
                break
        self.imei = sbd.parse_serial_number(reply)
        revision = await self.ask(sbd.REVISION)
        self.link.facts["imei"] = self.imei
        if revision.ok and revision.lines:
            self.link.facts["firmware"] = revision.lines[0]

    async def wait_for_network(self) -> None:
        """Wait until the modem no longer reports that it has no network."""
        while self.service is False:
            await self.news.wait()

    async def hold_session(
        self, *, answers_ring: bool, urgent: bool, wait_for_sos: Callable[[], Awaitable[None]]
    ) -> sbd.SessionResult:
        """Hold one session with the gateway. If `urgent`, its time limit is shorter. If
        `wait_for_sos` returns during another session, that limit applies to the rest of it. Raises
        RemoteProtocolError if the modem's reply is damaged.
        """
        limit = await self.ask(
            sbd.make_session_timeout(SOS_SESSION_TIME if urgent else MODEM_SESSION_TIMEOUT_S)
        )
        # If the modem does not know the command for the time limit, a session may take the full
        # time.
        seconds = SOS_SESSION_MAX_S if urgent and limit.ok else HOST_SESSION_TIMEOUT_S
        if urgent or not limit.ok:
            wait_for_sos = trio.sleep_forever
        reply = None
        if answers_ring:
            reply = await self._ask_session(sbd.SESSION_ANSWERING_RING, seconds, wait_for_sos)
        if reply is None or not reply.ok:
            reply = await self._ask_session(sbd.SESSION, seconds, wait_for_sos)
        return sbd.parse_session(reply)

    async def _ask_session(
        self, command: str, seconds: float, wait_for_sos: Callable[[], Awaitable[None]]
    ) -> sbd.ModemReply:
        """Hold a session. If `wait_for_sos` returns, the SOS waits at most SOS_SESSION_MAX_S for
        the reply, and not after the modem has ended the session by itself.
        """
        started_at = trio.current_time()
        ends_at = started_at + SESSION_TIME_MAX_S
        reply: sbd.ModemReply | None = None
        failure: Exception | None = None
        with trio.CancelScope() as limit:
            async with trio.open_nursery() as nursery:

                async def shorten() -> None:
                    await wait_for_sos()
                    limit.deadline = min(trio.current_time() + SOS_SESSION_MAX_S, ends_at)

                nursery.start_soon(shorten)
                # Keep the error and raise it after the nursery, because the nursery would wrap it
                # in an ExceptionGroup.
                try:
                    reply = await self.ask(command, seconds)
                except Exception as error:
                    failure = error
                nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure
        if reply is None:
            self._abandon_command()
            waited = trio.current_time() - started_at
            raise ModemSilent(f"{command} was not answered within {waited:.0f} s")
        return reply

    async def clear(self, command: str) -> bool:
        """Clear the MO or the MT buffer with `command`. Return True if the modem confirms this.
        Otherwise log a warning, because the message would be sent or read again.
        """
        if command == sbd.CLEAR_MO:
            self.is_holding_own_message = False
        reply = await self.ask(command)
        cleared = reply.ok and reply.lines[-1:] != ("1",)
        if not cleared:
            log.warning("the modem did not clear its buffer: %s answered %s", command, reply.lines)
        return cleared

    async def read_status(self) -> sbd.BufferStatus:
        """Query and return the state of the buffers. If the modem was reset, set it up again."""
        reply = await self.ask(sbd.STATUS)
        if reply.is_echoed and self.echo_shows_reset:
            log.info("the modem was reset: setting it up again")
            await self.set_up()
            self.is_holding_own_message = False
            self.resets += 1
            reply = await self.ask(sbd.STATUS)
        if not reply.ok:
            reply = await self.ask(sbd.STATUS_SHORT)
        status = sbd.parse_status(reply)
        self.is_holding_own_message = self.is_holding_own_message and bool(status.mo_flag)
        self.has_rung = self.has_rung or bool(status.ring_flag)
        return status


@asynccontextmanager
async def open_modem(
    port: str, baud: int, link: ChannelLink, *more: sbd.LineSetting
) -> AsyncIterator[Modem]:
    """Open a modem that has answered and is set up. `more` contains settings in addition to the
    usual settings.
    """
    link.recorder.kind = "sbd"
    async with open_serial(port, baud, link.recorder) as line, trio.open_nursery() as nursery:
        modem = Modem(line, link)
        modem.settings += more
        nursery.start_soon(modem.listen)
        await modem.set_up()
        await modem.identify()
        log.info("modem %s answers on %s", modem.imei, port)
        yield modem
        nursery.cancel_scope.cancel()
