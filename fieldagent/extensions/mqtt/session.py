"""One connection to a broker, from CONNECT to the loss of the connection.

`publish` returns when the broker has acknowledged the message. At this time, subscribers may not
have it yet. If a connection is closed without DISCONNECT, the broker publishes the client's will.
So "offline" is published in the same way, whatever ended the connection.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import NoReturn, TypeAlias

import trio

from fieldagent.extensions.mqtt import packets as mqtt
from fieldagent.extensions.mqtt.packets import ConnectCode, FromBroker, LastWill, Published
from fieldagent.system.error_groups import get_first_error
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire.errors import RemoteProtocolError

KEEPALIVE_S = 60
"""Seconds of silence after which each side considers the connection lost."""
PING_INTERVAL_S = 30.0
ANSWER_TIMEOUT_S = 15.0
"""Seconds within which a broker must answer a CONNECT or a SUBSCRIBE, and must accept sent data."""
ACK_MAX_S = 60.0
"""Seconds within which a broker must acknowledge a published message."""
NUMBERS = 65_535
"""Largest packet number. The smallest is 1."""
RECEIVE_MAX = 16_384

RETRY_WAITS_S = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0)
"""Seconds between two connection attempts, plus up to half as many at random. The last value
applies to all later attempts."""
SHORT_SESSION_S, SHORT_SESSIONS_MAX = 300.0, 3
"""Longest duration of a short session in seconds, and number of consecutive short sessions that
indicates a conflict. In a conflict, another client with the same id ends the session each time it
connects again. Such a client never waits as long as this duration."""
STABLE_AFTER_S = 60.0
"""Seconds that a session must last before the first pause applies again."""

REFUSALS: dict[int, str] = {
    ConnectCode.VERSION: "the broker does not speak MQTT 3.1.1",
    ConnectCode.IDENTIFIER: "the broker does not accept the client id {client}: correct mqtt-name",
    ConnectCode.UNAVAILABLE: "the broker reports that it is unavailable",
    ConnectCode.CREDENTIALS: "the broker refuses the password: correct mqtt-user and {password}",
    ConnectCode.NOT_AUTHORIZED: (
        "the broker refuses the account: correct mqtt-user and {password}"
    ),
}


class BrokerLost(Exception):
    """Error: there is no session. The text contains the reason. If `fault` is True, it also
    contains the fix.
    """

    def __init__(self, reason: str, *, fault: bool = False, closed: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.closed = closed
        """True if the broker ended a session that it had accepted before."""
        self.fault = fault
        """True if the cause remains until a person fixes it."""


class ShortSessions:
    """Counts consecutive sessions that the broker ended early. In MQTT 3.1.1, a client gets no
    reason if another client with the same id replaces it.
    """

    def __init__(self, client: str) -> None:
        self._client = client
        self._count = 0

    @property
    def often(self) -> bool:
        """Return True if so many sessions were short that it cannot be a coincidence."""
        return self._count >= SHORT_SESSIONS_MAX

    async def wait_until_lasting(self, report_ready: Callable[[], object]) -> None:
        """Wait until the session has lasted `SHORT_SESSION_S` seconds. If earlier sessions ended
        early, reset the counter and call `report_ready`.
        """
        await trio.sleep(SHORT_SESSION_S)
        if self.often:
            self._count = 0
            report_ready()

    def judge(self, error: BrokerLost, duration_s: float) -> BrokerLost:
        """Return the error to report for a session that lasted `duration_s` seconds. If the broker
        has closed several short sessions in a row, return an error that explains this.
        """
        self._count = self._count + 1 if error.closed and duration_s < SHORT_SESSION_S else 0
        if not self.often:
            return error
        return BrokerLost(
            f"the broker soon ends each session: give another client {self._client} a"
            " different mqtt-name, or check the access rules in the broker's log",
            fault=True,
        )


class MqttClient(NamedTuple):
    """Identity of this program at a broker."""

    id: str
    """Client id from which a broker recognises this program."""
    who: str
    """Name that people see, such as "this kit"."""
    password_setting: str
    user: str | None = None
    password: str | None = None


OpenStream: TypeAlias = Callable[[], Awaitable[trio.abc.Stream]]
"""Function that connects to the broker, with or without TLS. Raises BrokerLost if the broker cannot
be reached."""


def wait_before(tries: int) -> float:
    """Return the seconds before the next attempt, after `tries` consecutive attempts."""
    return RETRY_WAITS_S[min(tries, len(RETRY_WAITS_S) - 1)] * random.uniform(1, 1.5)


@asynccontextmanager
async def open_session(
    open_stream: OpenStream, client: MqttClient, will: LastWill | None = None
) -> AsyncIterator[MqttSession]:
    """Open a session within the context, and close the connection at the end. If `will` is None,
    the session only probes the broker, and the broker stores nothing. Raises BrokerLost if the
    broker cannot be reached or refuses the session.
    """
    stream = None
    with trio.move_on_after(ANSWER_TIMEOUT_S):
        stream = await open_stream()
    if stream is None:
        raise BrokerLost(f"the broker does not answer within {ANSWER_TIMEOUT_S:g} s")
    try:
        session = MqttSession(stream, client)
        hello = mqtt.encode_connect(
            client.id,
            KEEPALIVE_S,
            clean=will is None,
            will=will,
            user=client.user,
            password=client.password,
        )
        await session.open(hello)
        yield session
    finally:
        await trio.aclose_forcefully(stream)


class MqttSession:
    """Session with a broker. Call `open` first, and then `run`. The other methods can be called
    while `run` is running. All methods raise BrokerLost if the connection is lost.
    """

    def __init__(self, stream: trio.abc.Stream, client: MqttClient) -> None:
        self._stream = stream
        self._client = client
        self._reader = mqtt.PacketReader()
        self._early: list[FromBroker] = []
        """Packets that arrived together with the CONNACK."""
        self._sending = trio.Lock()
        self._waiting: dict[int, trio.Event] = {}
        """Events of unacknowledged packets, by packet number."""
        self._refused_numbers: set[int] = set()
        self._last_number = 0
        self._accepted = False
        self._loss: BrokerLost | None = None
        self._ended = trio.Event()

    async def open(self, hello: bytes) -> None:
        """Send a CONNECT and wait for the broker's answer. Raises BrokerLost if the server refuses,
        does not answer, or is not a broker.
        """
        with trio.move_on_after(ANSWER_TIMEOUT_S):
            await self._send(hello)
            answer, *self._early = await self._receive()
            if not isinstance(answer, mqtt.Connack):
                raise BrokerLost("the server there is not an MQTT broker", fault=True)
            if answer.code != ConnectCode.ACCEPTED:
                raise _make_refusal(answer.code, self._client)
            self._accepted = True
            return
        text = f"the broker does not answer within {ANSWER_TIMEOUT_S:g} s"
        raise BrokerLost(text)

    async def run(self, handle_message: Callable[[Published], Awaitable[None]]) -> NoReturn:
        """Pass each received message to `handle_message`, which must not wait for the broker.
        Raises BrokerLost when the session ends.
        """
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._send_pings)
                nursery.start_soon(self._process_packets, handle_message)
                await self._ended.wait()
                nursery.cancel_scope.cancel()
        except* BrokerLost as lost:
            self._lose(get_first_error(lost))
        finally:
            self._lose(BrokerLost("the program disconnects"))
        assert self._loss is not None
        raise self._loss

    def _lose(self, error: BaseException) -> None:
        """Store the first reason of the loss, and wake all tasks that wait for the broker."""
        if self._loss is None:
            assert isinstance(error, BrokerLost)
            self._loss = error
        self._ended.set()
        for answer_event in self._waiting.values():
            answer_event.set()

    async def _process_packets(
        self, handle_message: Callable[[Published], Awaitable[None]]
    ) -> NoReturn:
        packets = self._early
        while True:
            for packet in packets:
                if isinstance(packet, Published):
                    await handle_message(packet)
                else:
                    self._process_answer(packet)
            packets = await self._listen()

    async def _send_pings(self) -> NoReturn:
        while True:
            await trio.sleep(PING_INTERVAL_S)
            await self._send(mqtt.PINGREQ)

    async def _listen(self) -> list[FromBroker]:
        with trio.move_on_after(KEEPALIVE_S):
            return await self._receive()
        raise BrokerLost(f"the broker has been silent for {KEEPALIVE_S} s")

    def _process_answer(self, packet: FromBroker) -> None:
        if isinstance(packet, mqtt.Puback | mqtt.Suback):
            # Ignore the acknowledgement of a packet for which no task is waiting any more.
            waits = self._waiting.get(packet.number)
            if isinstance(packet, mqtt.Suback) and mqtt.SUBSCRIPTION_REFUSED in packet.codes:
                self._refused_numbers.add(packet.number)
            if waits is not None:
                waits.set()
        elif isinstance(packet, mqtt.Connack):
            raise BrokerLost("the broker greets a second time", fault=True)

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Publish a message. Return when the broker has acknowledged it."""
        with self._use_number() as (number, answer_event):
            await self._send(mqtt.encode_publish(topic, payload, number, retain=retain))
            await self._wait(answer_event, ACK_MAX_S, f"has not acknowledged {topic}")

    async def subscribe(self, filters: list[str]) -> None:
        """Subscribe to all filters, and wait for the broker's answer. Raises BrokerLost if the
        broker refuses a filter or does not answer.
        """
        with self._use_number() as (number, answer_event):
            await self._send(mqtt.encode_subscribe(number, filters))
            await self._wait(answer_event, ANSWER_TIMEOUT_S, "has not answered a subscription")
            if number in self._refused_numbers:
                text = (
                    f"the broker does not let {self._client.who} subscribe to {', '.join(filters)}"
                )
                raise BrokerLost(f"{text}: correct its access rules", fault=True)

    async def acknowledge(self, packet_number: int) -> None:
        """Acknowledge a message of QoS 1, so that the broker does not send it again."""
        await self._send(mqtt.encode_puback(packet_number))

    async def leave(self) -> None:
        """Disconnect in such a way that the broker does not publish the will."""
        await self._send(mqtt.DISCONNECT)

    @contextmanager
    def _use_number(self) -> Iterator[tuple[int, trio.Event]]:
        """Yield an unused packet number, and the event that its acknowledgement sets."""
        number = self._last_number
        while not number or number in self._waiting:
            number = number % NUMBERS + 1
        self._last_number = number % NUMBERS + 1
        answer_event = self._waiting[number] = trio.Event()
        try:
            yield number, answer_event
        finally:
            del self._waiting[number]

    async def _wait(self, answer_event: trio.Event, limit_s: float, failure_text: str) -> None:
        with trio.move_on_at(trio.current_time() + limit_s):
            await answer_event.wait()
            if self._loss is not None:
                raise self._loss
            return
        loss = BrokerLost(f"the broker {failure_text} within {limit_s:g} s")
        self._lose(loss)
        raise loss

    async def _send(self, packet: bytes) -> None:
        """Send one complete packet at a time, because a broker cannot read a partial packet. Raises
        BrokerLost.
        """
        async with self._sending:
            if self._loss is not None:
                raise self._loss
            loss = BrokerLost("the broker accepts nothing more")
            try:
                with trio.move_on_after(ANSWER_TIMEOUT_S):
                    await self._stream.send_all(packet)
                    return
            except trio.Cancelled:
                self._lose(loss)
                raise
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                text = "the connection to the broker broke off"
                loss = BrokerLost(text, closed=self._accepted)
            self._lose(loss)
            raise loss

    async def _receive(self) -> list[FromBroker]:
        """Return at least one received packet. Raises BrokerLost."""
        packets: list[FromBroker] = []
        while not packets:
            try:
                data = await self._stream.receive_some(RECEIVE_MAX)
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                text = "the connection to the broker broke off"
                raise BrokerLost(text, closed=self._accepted) from error
            if not data:
                raise BrokerLost("the broker closed the connection", closed=self._accepted)
            try:
                packets += self._reader.receive_data(data)
            except RemoteProtocolError as error:
                text = f"the broker sent invalid data: {error}"
                raise BrokerLost(text, fault=True) from error
        return packets


def _make_refusal(code: int, client: MqttClient) -> BrokerLost:
    unknown = f"the broker refuses {client.who} with the unknown code {code}"
    reason = REFUSALS.get(code, unknown)
    text = reason.format(client=client.id, password=client.password_setting)
    return BrokerLost(text, fault=code != ConnectCode.UNAVAILABLE)
