"""Driver for a modem that ModemManager controls. The driver runs the command `mmcli` once for each
query.
"""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import field

import trio

from fieldagent.agent.channels.contract import ChannelLink, LinkState
from fieldagent.extensions.sms import modem_manager
from fieldagent.extensions.sms.agent.arrivals import Arrival, StoreContent, WaitingParts
from fieldagent.extensions.sms.agent.contract import GsmRefuses, GsmSilent
from fieldagent.extensions.sms.modem_manager import ManagedSms
from fieldagent.extensions.sms.sms_modem import SEND_SECONDS, SendResult
from fieldagent.system import waits
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.signals import end_group
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.outcome import Outcome
from fieldagent.wire.sms_pdu import Deliver, Submit

log = logging.getLogger(__name__)

COMMAND = "mmcli"
REPLY_TIMEOUT_S = 20.0
"""Seconds within which mmcli must answer. D-Bus itself waits 30 seconds."""
OUTPUT_MAX = 262_144
"""Largest number of bytes of an answer."""
LOOK_SOON_S = 10.0
"""Seconds between two reads of the store, because mmcli does not report an arrival."""


class _FinishedProcess(NamedTuple):
    status: int
    output: str
    errors: str


@dataclass(slots=True)
class ManagedModem:
    """Implements `contract.SmsModem`. Places are the numbers of ModemManager's objects."""

    name: str
    """Name of the modem in the command `mmcli -m`."""
    link: ChannelLink
    send_max: float = SEND_SECONDS + REPLY_TIMEOUT_S
    """Seconds within which mmcli must report the result of sending a message."""
    look_soon: float = LOOK_SOON_S
    arrived: bool = True
    news: trio.Event = field(default_factory=trio.Event)
    lost: Exception | None = None
    crowded: bool = False
    _logged_places: set[int] = field(default_factory=set)
    """Places that were logged as unreadable or not deleted."""

    async def ask(self, *arguments: str) -> str:
        """Run mmcli and return its output. Raises GsmSilent, GsmRefuses."""
        result = await _run(arguments, REPLY_TIMEOUT_S)
        if result.status == 0:
            return result.output
        if modem_manager.is_not_allowed(result.errors):
            raise GsmRefuses(modem_manager.NOT_ALLOWED)
        raise GsmSilent(f"mmcli reports: {modem_manager.parse_error(result.errors)}")

    async def send(self, message: Submit) -> SendResult:
        try:
            created = await self.ask(*modem_manager.make_create_arguments(self.name, message))
            place = modem_manager.parse_created(created)
        except (GsmSilent, GsmRefuses, RemoteProtocolError) as error:
            self.lost = error if not isinstance(error, RemoteProtocolError) else _make_silent(error)
            return SendResult(Outcome.NOT_SENT, reason=str(error))
        try:
            result = await _run(
                modem_manager.make_send_arguments(place, SEND_SECONDS), self.send_max
            )
        except GsmSilent as error:
            self.lost = error
            return SendResult(Outcome.DOUBTFUL, reason=str(error))
        if result.status == 0:
            sent = SendResult(Outcome.SENT, await self._find_reference(place))
        else:
            sent = modem_manager.find_result(result.errors)
        await self._forget(place)
        return sent

    async def _find_reference(self, place: int) -> int | None:
        """Return the reference of a sent message, or None if the reference is unknown. In this
        case, the status report is ignored.
        """
        try:
            output = await self.ask(*modem_manager.make_query_arguments(place))
            return modem_manager.parse_message(place, output).reference
        except (GsmSilent, GsmRefuses, RemoteProtocolError) as error:
            log.info("delivery reports of SMS are not available: %s", error)
            return None

    async def _forget(self, place: int) -> None:
        try:
            await self.delete(place)
        except (GsmSilent, GsmRefuses) as error:
            self.lost = error

    async def read_store(self) -> StoreContent:
        self.arrived = False
        try:
            output = await self.ask(*modem_manager.make_list_arguments(self.name))
            places = modem_manager.parse_list(output)
        except RemoteProtocolError as error:
            raise _make_silent(error) from None
        self._logged_places &= set(places)
        contents = StoreContent([], [])
        for place in places:
            message = await self._read(place)
            if message is not None:
                _sort(message, contents)
        return contents

    async def _read(self, place: int) -> ManagedSms | None:
        """Return a stored message, or None if it cannot be read or does not exist any more. The
        message remains in the store.
        """
        result = await _run(modem_manager.make_query_arguments(place), REPLY_TIMEOUT_S)
        try:
            if result.status:
                raise RemoteProtocolError(modem_manager.parse_error(result.errors))
            return modem_manager.parse_message(place, result.output)
        except RemoteProtocolError as error:
            self._log_once(place, f"SMS {place} of ModemManager cannot be read: {error}")
            return None

    async def delete(self, place: int) -> None:
        result = await _run(modem_manager.make_delete_arguments(self.name, place), REPLY_TIMEOUT_S)
        if modem_manager.is_not_allowed(result.errors):
            raise GsmRefuses(modem_manager.NOT_ALLOWED)
        if result.status:
            reason = modem_manager.parse_error(result.errors)
            self._log_once(place, f"ModemManager did not delete SMS {place}: {reason}")

    def _log_once(self, place: int, text: str) -> None:
        if place not in self._logged_places:
            self._logged_places.add(place)
            log.warning("%s", text)

    async def read_state(self) -> None:
        try:
            modem = modem_manager.parse_modem(
                await self.ask(*modem_manager.make_modem_arguments(self.name))
            )
        except RemoteProtocolError as error:
            raise _make_silent(error) from None
        if modem.state in ("locked", "failed", "disabled"):
            raise GsmRefuses(_describe_remedy(modem))
        if modem.imei:
            self.link.facts["smsModem"] = modem.imei
        self.link.record_signal(modem.bars)
        self.link.state = LinkState.READY if modem.registered else LinkState.NO_SERVICE
        self.link.reason = "" if modem.registered else "the modem finds no network that accepts it"


def _sort(message: ManagedSms, contents: StoreContent) -> None:
    """Add a message to the contents. Ignore outgoing messages of a person or another program."""
    place, content = message.place, message.message
    if isinstance(content, Deliver) and not message.whole:
        parts = WaitingParts(
            (place,), content.number, str(place), content.at, "not all of it arrived"
        )
        contents.waiting.append(parts)
    elif not isinstance(content, Submit):
        contents.whole.append(Arrival((place,), content))


def _describe_remedy(modem: modem_manager.ManagedState) -> str:
    if modem.state == "locked":
        return (
            f"the modem is locked ({modem.wants or 'it gives no reason'}): give NetworkManager"
            " the PIN with `nmcli connection modify NAME gsm.pin PIN`, or switch it off"
        )
    if modem.state == "failed":
        return (
            f"ModemManager reports that the modem failed: {modem.failure or 'it gives no reason'}"
        )
    return "ModemManager has the modem disabled: `mmcli -m any --enable` as root enables it"


def _make_silent(error: RemoteProtocolError) -> GsmSilent:
    return GsmSilent(str(error))


async def _run(arguments: list[str] | tuple[str, ...], seconds: float) -> _FinishedProcess:
    """Run the command in its own process group. Raises GsmSilent if the command does not end in
    time or writes more than OUTPUT_MAX, and GsmRefuses if mmcli is not installed.
    """
    try:
        process = await trio.lowlevel.open_process(
            [COMMAND, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
        )
    except OSError as error:
        raise GsmRefuses(
            f"{COMMAND} cannot be started ({error.strerror}): install modemmanager"
        ) from None
    output, errors = bytearray(), bytearray()
    try:
        with waits.move_on_after(seconds) as limit:
            await _gather(process, output, errors)
    finally:
        if process.returncode is None:
            await end_group(process)
    shown_command = " ".join(arguments[-2:])[:60]
    if len(output) + len(errors) > OUTPUT_MAX:
        raise GsmSilent(f"mmcli wrote more than {OUTPUT_MAX} bytes ({shown_command})")
    if limit.cancelled_caught or process.returncode is None:
        raise GsmSilent(f"mmcli did not end within {seconds:.0f} s ({shown_command})")
    text, complained = output.decode(errors="replace"), errors.decode(errors="replace")
    return _FinishedProcess(process.returncode, text, complained)


async def _gather(process: trio.Process, output: bytearray, errors: bytearray) -> None:
    """Collect the output until the process ends or has written more than `OUTPUT_MAX` bytes."""
    assert process.stdout is not None
    assert process.stderr is not None

    async def read(stream: trio.abc.ReceiveStream, into: bytearray) -> None:
        async for data in stream:
            into += data
            if len(output) + len(errors) > OUTPUT_MAX:
                nursery.cancel_scope.cancel()

    async with process.stdout, process.stderr, trio.open_nursery() as nursery:
        nursery.start_soon(read, process.stdout, output)
        nursery.start_soon(read, process.stderr, errors)
        await process.wait()


@asynccontextmanager
async def open_managed(name: str, link: ChannelLink) -> AsyncIterator[ManagedModem]:
    """Open an unlocked modem of ModemManager within the context. Raises GsmSilent, GsmRefuses."""
    modem = ManagedModem(name, link)
    await modem.read_state()
    log.info("GSM modem %s answers by ModemManager", link.facts.get("smsModem", ""))
    yield modem
