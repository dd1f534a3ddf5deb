"""Weeks in the field from one seed: posts, faults, and the promises that must hold afterwards.

The agent is assembled as shipped. Only the serial lines, the IP link's WebSocket and the disk's
thread are replaced. All randomness comes from the seed, so a trace can be repeated.
"""

from __future__ import annotations

import json
import logging
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import trio
import trio.testing

from fieldagent.agent import agent as shipped
from fieldagent.agent import drivers
from fieldagent.agent.channels import cellular, reopening, satellite_waits, sbd_modem, serial_port
from fieldagent.agent.channels.connecting import Unreachable
from fieldagent.agent.channels.contract import LinkState
from fieldagent.agent.outbound import repeats
from fieldagent.agent.outbound.outbox import ChannelOutbox
from fieldagent.agent.satellites import sbd
from fieldagent.agent.settings import parse
from fieldagent.extensions.lab.drill.lines import SimulatedLines, Wire
from fieldagent.extensions.lab.drill.steady import SteadyJournal, run_at_once, seed_trio
from fieldagent.extensions.lab.simulator import nodes as simulated_nodes
from fieldagent.extensions.lab.simulator import pty_port
from fieldagent.extensions.lab.simulator.air import Impairments, SharedAir
from fieldagent.extensions.lab.simulator.nodes import Nodes
from fieldagent.extensions.lab.simulator.pty_port import PtyPort
from fieldagent.extensions.lab.simulator.sbd_modem import SimulatedModem
from fieldagent.extensions.lab.simulator.sbd_state import PlannedStatus
from fieldagent.extensions.radio import driver as radio
from fieldagent.extensions.radio import service
from fieldagent.extensions.radio.mesh import radio_piggyback, repeating, station
from fieldagent.extensions.radio.radios import node
from fieldagent.http import link_session as ip_link
from fieldagent.http.link_session import LinkSession
from fieldagent.package.package import SOS_PRIORITY, Channel, IncidentState, IncidentUpdate, Message
from fieldagent.package.reading import read_package
from fieldagent.system.elapsed_time import Reading
from fieldagent.system.supervisor import Part
from fieldagent.wire.envelope import Entry, Receipt, compute_item_digest, decode, encode
from tests import autojump
from tests.simulation.far_side import Collector, HubPost, Neighbour, Operator
from tests.simulation.mistakes import CALLS, Mistake, Mistakes

START = 1_790_000_000.0
DAY = 86_400.0
DAYS = 14
CALM = 3 * DAY
"""Time without faults at the end, in which everything that waits must end."""
POSTS, ARRIVALS, TROUBLES = 24, 12, 30
PASSING = 10.0
"""Seconds of virtual time per second of work, as on a small busy machine."""

SETTINGS = """
satellite-port={home}/modem
satellite-credits-per-day=60
satellite-sos-reserve=30
hub-address=https://hub.invalid
hub-token=t
cellular-ping=7200
radio-port={home}/node-1
radio-station=1
radio-relay=cellular, satellite
radio-relay-credits-per-day=10
package-time-to-live=172800
keep-ended-days=36500
state-directory={home}
fan-out={fan_out}
fan-out-head-start=600
sos-repeat=3600
"""

WATCH = """
CREATE TABLE IF NOT EXISTS told (sequence INTEGER, status TEXT);
CREATE TRIGGER IF NOT EXISTS told_later AFTER UPDATE OF status ON package
    WHEN NEW.status IS NOT NULL BEGIN INSERT INTO told VALUES (NEW.sequence, NEW.status); END;
CREATE TRIGGER IF NOT EXISTS told_at_once AFTER INSERT ON package
    WHEN NEW.status IS NOT NULL BEGIN INSERT INTO told VALUES (NEW.sequence, NEW.status); END;
"""
"""SQL of a trigger in the journal that records each terminal status of a Package, independently of
the agent."""


KEPT = tuple(f"journal.sqlite3{suffix}" for suffix in ("", "-wal", "-mark"))
"""Files that a power cut leaves unchanged. On a real disk the mark is never ahead of the journal.
Later commits, while the agent is being stopped here, are in neither."""
FIRST_NUMBER = 1_900_000_000
NUMBERS = """
UPDATE beginning SET number = {number};
UPDATE sqlite_sequence SET seq = {number} WHERE name = 'package';
"""
"""A journal starts at a random number, but a seed at its own, above all that were drawn."""

WITH_CHANCE = (drivers, radio_piggyback, repeating, sbd, service, station)
"""The agent's modules with their own randomness, which the seed replaces."""


class Violated(AssertionError):
    """Error: a promise was broken. The message names the promise, and the world's log shows the
    history.
    """


@dataclass(slots=True)
class Load:
    """One transmission that a driver has loaded from its outbox."""

    at: float
    channel: Channel
    urgent: bool
    sequences: frozenset[int]


@dataclass
class World:
    seed: int
    home: Path
    chance: random.Random = field(init=False)
    log: list[str] = field(default_factory=list)
    posted: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Accepted bodies that have survived each power cut, by number."""
    agent_was_there: bool = False
    accepted_at: dict[int, int] = field(default_factory=dict)
    """Number of loads at that time, by number."""
    loads: list[Load] = field(default_factory=list)
    sent_to_kit: set[str] = field(default_factory=set)
    """Texts of items to the kit over any channel."""
    doubtful: set[bytes] = field(default_factory=set)
    """MO bodies whose session had no number that could prove their departure."""
    linked: bool = True
    wire: Wire | None = None
    agent: shipped.Agent | None = None
    power: trio.CancelScope = field(default_factory=trio.CancelScope)
    pulled: bool = False

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.fan_out = self.chance.choice(["every", "every", "first", "cheapest"])
        self.lines = SimulatedLines()
        self.mistakes = Mistakes()
        self.operator = Operator(self.tell)
        self.modem = SimulatedModem(self.operator, imei="300234010000001")
        self.port = PtyPort(self.modem, self.home / "modem", latency=self.chance.uniform(5, 40))
        impairments = Impairments(
            loss=self.chance.choice([0, 0.1, 0.4]),
            duplicates=self.chance.choice([0, 0.2]),
            bit_errors=self.chance.choice([0, 0.0003]),
            delay=self.chance.choice([0, 2.0]),
        )
        air = SharedAir(random.Random(self.seed), impairments)
        links = [self.home / f"node-{station}" for station in (1, 2, 3)]
        self.nodes = Nodes(air, links, lambda line: None)
        self.neighbours = [
            Neighbour(station, str(links[station - 1]), random.Random(self.seed + station))
            for station in (2, 3)
        ]
        self.hub = HubPost(Collector(), [], self.tell)

    def now(self) -> float:
        return START + trio.current_time()

    def time(self) -> float:
        """Return the time of the agent's wall clock (replaces `time.time`)."""
        return self.now()

    def read_clocks(self) -> Reading:
        return Reading("simulated", trio.current_time(), self.now(), "network")

    def Random(self) -> random.Random:  # noqa: N802
        """Return a seeded generator for the agent (replaces `random.Random`)."""
        return random.Random(self.chance.getrandbits(32))

    def chance_of(self, module: object) -> tuple[str, Any]:
        """Return the replacement of `random` or `Random` in one of WITH_CHANCE."""
        return ("random", self) if hasattr(module, "random") else ("Random", self.Random)

    def tell(self, what: str) -> None:
        self.log.append(f"{trio.current_time() / 3600:9.3f} h  {what}")

    # The agent and its power.

    async def keep_agent(self) -> None:
        while True:
            self.pulled = False
            await self._one_life()
            self.agent = None
            if self.pulled:
                for part in KEPT:
                    kept = self.home / f"{part}.kept"
                    if kept.exists():
                        shutil.move(kept, self.home / part)
                (self.home / "journal.sqlite3-shm").unlink(missing_ok=True)
            await trio.sleep(self.chance.uniform(10, 4000))
            self.tell("the agent starts")

    async def _one_life(self) -> None:
        text = SETTINGS.format(home=self.home, fan_out=self.fan_out)
        settings = parse(text, self.home / "agent.properties")
        journal = SteadyJournal(self.home / "journal.sqlite3", self.read_clocks)
        journal._files.writer.executescript(WATCH)
        if not self.agent_was_there:
            self.agent_was_there = True
            journal._files.writer.executescript(NUMBERS.format(number=FIRST_NUMBER + self.seed))
        try:
            async with trio.open_nursery() as last:
                last.start_soon(journal.run)
                agent = self.agent = shipped.assemble_agent(settings, journal, lambda line: None)
                with trio.CancelScope() as self.power:
                    async with trio.open_nursery() as nursery:
                        for outbox in agent.parts.outboxes.values():
                            nursery.start_soon(outbox.run)
                        for channel, driver in drivers.DRIVERS.items():
                            outbox = agent.parts.outboxes[channel]
                            run = driver(agent.settings, agent.parts, agent.progress)
                            nursery.start_soon(self._keep_driver, run, outbox)
                        for part in PARTS:
                            nursery.start_soon(part, agent)
                last.cancel_scope.cancel()
        finally:
            journal.close()

    async def _keep_driver(self, driver: Part, outbox: ChannelOutbox) -> None:
        """Run a driver like the agent, but an unplanned error ends the seed."""
        while True:
            try:
                await driver()
            except* Mistake as mistakes:
                self.tell(f"the driver of {outbox.channel} fails: {mistakes.exceptions[0]}")
            await trio.sleep(self.chance.uniform(1, 60))
            await outbox.requeue_lost()

    def cut_power(self) -> None:
        """Cut the power of the agent. Its next run starts with the disk as it is at this moment."""
        self.tell("the agent's power fails")
        self.pulled = True
        for part in KEPT:
            if (self.home / part).exists():
                shutil.copy(self.home / part, self.home / f"{part}.kept")
        self.power.cancel()

    # Routes to the other ends.

    async def open_stream(self, hub: object) -> Any:
        await trio.sleep(0.1)
        if not self.linked:
            raise Unreachable(LinkState.NO_SERVICE, "no network")
        self.wire = Wire()
        self.hub_side.start_soon(self._serve, self.wire)
        return self.wire.ends[0]

    async def open_web_socket(self, hub: object, stream: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return stream

    async def _serve(self, wire: Wire) -> None:
        await LinkSession(wire.ends[1], self.hub).run()

    # Events.

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            self.hub_side = nursery
            nursery.start_soon(self.port.run)
            await nursery.start(self.nodes.run)
            for neighbour in self.neighbours:
                nursery.start_soon(neighbour.run)
            nursery.start_soon(self.keep_agent)
            for at, event in sorted(self._plan(), key=lambda planned: planned[0]):
                await trio.sleep_until(at)
                await event()
            self._calm_down()
            await trio.sleep(CALM)
            while self.agent is None:
                await trio.sleep(600)
            self.check(self.agent)
            nursery.cancel_scope.cancel()

    def _plan(self) -> Iterator[tuple[float, Callable[[], Any]]]:
        for kind, count in ((self._post, POSTS), (self._send, ARRIVALS), (self._trouble, TROUBLES)):
            for _ in range(count):
                yield self.chance.uniform(60, DAYS * DAY), kind

    async def _post(self) -> None:
        if self.agent is None:
            return
        body = self._body()
        if body.get("priority") == SOS_PRIORITY:
            for number in range(self.chance.randrange(8)):
                await self._accept({"message": {"content": f"before it {number}"}})
        await self._accept(body)

    async def _accept(self, body: dict[str, Any]) -> None:
        assert self.agent is not None
        standing = await self.agent.parts.intake.accept(read_package(body))
        if body.get("priority") == SOS_PRIORITY:
            self.later(8, lambda: self._confirm(standing.sequence))
        self.posted[standing.sequence] = body
        self.accepted_at[standing.sequence] = len(self.loads)
        self.tell(f"posted {standing.sequence}: {json.dumps(body)[:120]}")

    def _confirm(self, sequence: int) -> None:
        """When an SOS has reached the hub, send the kit the hub's receipt and the news that a
        person has closed the incident.
        """
        envelopes = self.hub.collector.items.get(sequence, set())
        envelopes = envelopes | self.operator.collector.items.get(sequence, set())
        if not envelopes:
            self.later(8, lambda: self._confirm(sequence))
            return
        now = int(self.now())
        (entry,) = decode(next(iter(envelopes))).entries
        # A person closes the incident to which it belongs.
        closed = IncidentUpdate(sequence - entry.items_back, IncidentState.CLOSED, by="Olga")
        stored = Receipt(digest=compute_item_digest(replace(entry, sequence=sequence)))
        for said in (Entry(sequence, stored, now), Entry(0, closed, now)):
            self.hub.put(_Mail(encode([said])))

    def _body(self) -> dict[str, Any]:
        chance, number = self.chance, len(self.posted)
        kind = chance.random()
        if kind < 0.15:
            payload = "QUJD" * chance.randrange(1, 300)
            body: dict[str, Any] = {"data": {"payload": payload}}
        elif kind < 0.4:
            fix = {"latitude": chance.uniform(-80, 80), "longitude": chance.uniform(-170, 170)}
            body = {"location": fix, "collapseKey": 7}
        else:
            body = {"message": {"content": f"message {number} " + "x" * chance.randrange(60)}}
        if chance.random() < 0.12:
            body = {"message": {"content": f"help {number}"}, "priority": SOS_PRIORITY}
        if chance.random() < 0.3:
            names = [channel.value for channel in Channel]
            body["channels"] = chance.sample(names, chance.randrange(1, 4))
        if chance.random() < 0.2:
            body["timeToLive"] = chance.randrange(60, 100_000)
        return body

    async def _send(self) -> None:
        """Send an item to the kit over one channel or two, once or twice."""
        await trio.lowlevel.checkpoint()
        number = 100 + len(self.sent_to_kit)
        text = f"to the kit {number}"
        self.sent_to_kit.add(text)
        way = self.chance.choice(["sky", "hub", "both", "radio"])
        self.tell(f"{text} by {way}")
        if way == "radio":
            plead = self.chance.random() < 0.5
            self.chance.choice(self.neighbours).send_events(
                number, text, int(self.now()), plead=plead
            )
            return
        body = encode([Entry(number, Message(text), int(self.now()))], origin=1)
        copies = self.chance.choice([1, 1, 2])
        if way in ("sky", "both"):
            self.operator.waiting_messages += [body] * copies
            self.modem.ring()
            self.port.poke()
        if way in ("hub", "both"):
            for _ in range(copies):
                self.hub.put(_Mail(body))

    async def _trouble(self) -> None:
        await trio.lowlevel.checkpoint()
        trouble = self.chance.choice(TROUBLE)
        self.tell(trouble.__name__.strip("_").replace("_", " "))
        trouble(self)

    def later(self, hours: float, mend: Callable[[], None]) -> None:
        async def wait() -> None:
            await trio.sleep(self.chance.uniform(0.01, hours) * 3600)
            mend()

        self.hub_side.start_soon(wait)

    def _calm_down(self) -> None:
        self.tell("calm")
        self.modem.set_service(True)
        self.modem.faults.lose_replies = 0
        self.modem.faults.statuses.clear()
        self.mistakes.clear()
        self.modem.faults.deaf = False
        self.port.plug()
        self.port.poke()
        self.linked = True
        self.nodes.air.impairments.loss = min(self.nodes.air.impairments.loss, 0.1)
        for socket in self.nodes.sockets:
            socket.node.busy = False
            self.nodes.plug(socket)
        for neighbour in self.neighbours:
            neighbour.away = False

    # Promises.

    def check(self, agent: shipped.Agent) -> None:
        rows = agent.parts.journal.read("SELECT sequence, status FROM package ORDER BY sequence")
        statuses = dict(rows)
        endings = Counter(
            sequence for (sequence,) in agent.parts.journal.read("SELECT sequence FROM told")
        )
        for sequence in self.posted:
            if sequence not in statuses:
                raise Violated(f"Package {sequence} was accepted and is lost")
            if statuses[sequence] is None:
                raise Violated(f"Package {sequence} has not ended")
            if endings[sequence] != 1:
                raise Violated(f"Package {sequence} ended {endings[sequence]} times")
        self._check_far_side(agent)
        self._check_inbound(agent)
        self._check_carried()
        self._check_urgency()
        self._check_bill(agent)

    def _check_far_side(self, agent: shipped.Agent) -> None:
        collectors = {
            Channel.SATELLITE: [self.operator.collector],
            Channel.CELLULAR: [self.hub.collector],
            Channel.RADIO: [neighbour.collector for neighbour in self.neighbours],
        }
        deliveries = agent.parts.journal.read(
            "SELECT sequence, channel, status, origin, origin_sequence"
            " FROM leg LEFT JOIN carried USING (sequence)"
        )
        for sequence, name, status, *theirs in deliveries:
            key = tuple(theirs)
            has = any(
                key in each.carried if key[0] else sequence in each.items
                for each in collectors[Channel(name)]
            )
            if status == "Delivered" and not has:
                raise Violated(f"Package {sequence} was Delivered over {name}, and is not there")
            if status is None:
                raise Violated(f"Package {sequence} still waits for {name}")
        everything: dict[int, set[bytes]] = {}
        for collector in (each for some in collectors.values() for each in some):
            for sequence, bodies in collector.items.items():
                everything.setdefault(sequence, set()).update(bodies)
        for sequence, bodies in everything.items():
            if len(bodies) != 1:
                raise Violated(f"receivers cannot tell that Package {sequence} is one")
            if sequence not in self.posted:
                raise Violated(f"number {sequence} was used for something never accepted")

    def _check_inbound(self, agent: shipped.Agent) -> None:
        rows = agent.parts.journal.read("SELECT body FROM inbound")
        events = [json.loads(body)["payloads"][0]["events"][0] for (body,) in rows]
        # News of people about an incident is passed on when it comes.
        came = Counter(each.get("content") for each in events if "incident" not in each)
        twice = [text for text, times in came.items() if times > 1]
        if twice:
            raise Violated(f"reached the user twice: {twice}")
        strange = set(came) - self.sent_to_kit
        if strange:
            raise Violated(f"nobody sent {strange}")
        answered = {f"to the kit {number}" for each in self.neighbours for number in each.answered}
        stored = {text for body in self.hub.stored_bodies for text in _texts(body)}
        lost = (answered | stored) - set(came)
        if lost:
            raise Violated(f"its sender was told that it is here, and it is not: {lost}")

    def _check_carried(self) -> None:
        brought: dict[tuple[int, int], set[bytes]] = {}
        for collector in (self.hub.collector, self.operator.collector):
            for key, bodies in collector.carried.items():
                brought.setdefault(key, set()).update(bodies)
        pleaded = {(each.station, number) for each in self.neighbours for number in each.pleaded}
        claims = {
            (each.station, number) for each in self.neighbours for number in each.told_carried
        }
        answered = {(each.station, number) for each in self.neighbours for number in each.answered}
        for what, keys in (
            ("was brought though nobody asked", brought.keys() - pleaded),
            ("was said to be at the hub, and is not", claims - brought.keys()),
            ("was asked for and taken, and is not at the hub", pleaded & answered - brought.keys()),
        ):
            if keys:
                raise Violated(f"a neighbour's item {what}: {sorted(keys)}")
        twofold = [key for key, bodies in brought.items() if len(bodies) > 1]
        if twofold:
            raise Violated(f"the hub cannot tell that a neighbour's item is one: {twofold}")

    def _check_urgency(self) -> None:
        for sequence, body in self.posted.items():
            if body.get("priority") != SOS_PRIORITY:
                continue
            since = self.loads[self.accepted_at[sequence] :]
            for channel in Channel:
                after = [load for load in since if load.channel is channel]
                places = [n for n, load in enumerate(after) if sequence in load.sequences]
                before = after[: places[0] + 1] if places else []
                if any(not load.urgent for load in before):
                    raise Violated(f"SOS {sequence} waited behind something on {channel}")

    def _check_bill(self, agent: shipped.Agent) -> None:
        repeated = {sequence for sequence, b in self.posted.items() if "priority" in b}
        for body, times in Counter(self.operator.bodies).items():
            entries = Collector().receive_message(body).entries
            again = any(entry.sequence in repeated for entry in entries)
            if times > 1 and not again and body not in self.doubtful:
                raise Violated(f"{len(body)} bytes were sent and paid for {times} times")
        days = agent.parts.journal.read(
            "SELECT max(credits) FROM spent WHERE channel = 'Satellite'"
        )
        if (days[0][0] or 0) > 60 + 10:
            raise Violated(f"{days[0][0]} credits were spent on one day of 60")


@dataclass(eq=False)
class _Mail:
    body: bytes


def _texts(body: bytes) -> list[str]:
    contents = [entry.content for entry in Collector().receive_message(body).entries]
    return [content.content for content in contents if isinstance(content, Message)]


PARTS = (
    shipped._resume,
    shipped._ask_for_fragments,
    shipped._repeat_open_incident,
    shipped.delete_old_entries_forever,
)


# Faults in a fixed order, because the seed chooses among them.


def _no_satellite_in_sight(world: World) -> None:
    world.modem.set_service(False)
    world.port.poke()

    def mend() -> None:
        world.modem.set_service(True)
        world.port.poke()

    world.later(30, mend)


def _sessions_fail(world: World) -> None:
    for _ in range(world.chance.randrange(1, 4)):
        number = world.chance.choice([10, 13, 17, 18, 32, 35, 37])
        world.modem.faults.statuses.append(PlannedStatus(number, delivered=False, counted=False))


def _a_reply_is_lost(world: World) -> None:
    world.modem.faults.lose_replies += 1


def _a_session_counts_though_it_failed(world: World) -> None:
    world.modem.faults.statuses.append(PlannedStatus(32, delivered=True, counted=True))


def _the_modem_browns_out(world: World) -> None:
    world.modem.start_brown_out()
    world.port.poke()


def _the_modem_browns_out_at_the_wrong_moment(world: World) -> None:
    """Between the message's bytes and the session: an empty buffer is sent then."""
    world.modem.faults.reset_before_session = world.chance.randint(1, 3)


def _the_modem_is_unplugged(world: World) -> None:
    world.port.unplug()
    world.later(20, world.port.plug)


def _the_modem_hangs(world: World) -> None:
    world.modem.faults.deaf = True

    def mend() -> None:
        world.modem.faults.deaf = False

    world.later(2, mend)


def _no_network(world: World) -> None:
    world.linked = False
    if world.wire is not None:
        world.wire.cut_connection()

    def mend() -> None:
        world.linked = True

    world.later(40, mend)


def _the_link_breaks(world: World) -> None:
    if world.wire is not None:
        world.wire.cut_connection()


def _the_link_swallows_everything(world: World) -> None:
    if world.wire is not None:
        world.wire.swallow = True


def _the_node_starts_anew(world: World) -> None:
    world.nodes.reboot(world.nodes.sockets[0])


def _the_node_is_unplugged(world: World) -> None:
    socket = world.nodes.sockets[0]
    world.nodes.unplug(socket)
    world.later(20, lambda: world.nodes.plug(socket))


def _the_channel_is_busy(world: World) -> None:
    node_ = world.nodes.sockets[0].node
    node_.busy = True

    def mend() -> None:
        node_.busy = False

    world.later(3, mend)


def _a_neighbour_is_away(world: World) -> None:
    neighbour = world.chance.choice(world.neighbours)
    neighbour.away = True

    def mend() -> None:
        neighbour.away = False

    world.later(60, mend)


def _power_cut(world: World) -> None:
    if world.agent is not None:
        world.cut_power()


def _the_drivers_fail(world: World) -> None:
    for channel in Channel:
        call, late = world.chance.choice(CALLS), world.chance.random() < 0.5
        world.mistakes.plan(channel, call, late=late)


def _reboot(world: World) -> None:
    if world.agent is not None:
        world.tell("the agent is stopped in good order")
        world.power.cancel()


TROUBLE: list[Callable[[World], None]] = [
    _no_satellite_in_sight,
    _sessions_fail,
    _a_reply_is_lost,
    _a_session_counts_though_it_failed,
    _the_modem_browns_out,
    _the_modem_browns_out_at_the_wrong_moment,
    _the_modem_is_unplugged,
    _the_modem_hangs,
    _no_network,
    _the_link_breaks,
    _the_link_swallows_everything,
    _the_node_starts_anew,
    _the_node_is_unplugged,
    _the_channel_is_busy,
    _a_neighbour_is_away,
    _power_cut,
    _reboot,
    _the_drivers_fail,
]


@contextmanager
def _replaced(world: World) -> Iterator[None]:
    """Replace lines, links and clock of this world. Frequent acts during an absence, and those for
    a watchdog, become rarer: an hour of them shows the same as weeks. Without this, queries to
    the silent nodes each minute took seven eighths of a seed's time.
    """
    quiet = logging.getLogger("fieldagent")
    with ExitStack() as stack:
        stack.callback(quiet.setLevel, quiet.level)
        quiet.setLevel(logging.CRITICAL)

        def put(module: object, name: str, value: object) -> None:
            stack.enter_context(patch.object(module, name, value))

        put(trio.testing.MockClock, "_autojump", autojump.jump)
        put(satellite_waits, "CHECK_INTERVAL_S", 3600.0)
        put(radio, "PROGRESS_INTERVAL_S", 3600.0)
        put(ip_link, "CHECK_INTERVAL_S", 3600.0)
        put(satellite_waits, "PROGRESS_INTERVAL_S", 3600.0)
        put(node, "SILENCE_S", 3600.0)
        put(reopening, "REOPEN_AFTER", (1.0, 10.0, 600.0))
        put(cellular, "PAUSE_MAX", 1800.0)
        put(cellular, "URGENT_PAUSE_S", 300.0)
        put(repeats, "INCIDENT_CHECK_INTERVAL_S", 600.0)
        put(repeats, "ASK_AFTER_S", 7200.0)
        put(repeats, "FRAGMENT_CHECK_INTERVAL_S", 1800.0)
        put(shipped, "time", world)
        put(trio.to_thread, "run_sync", run_at_once)
        for module in WITH_CHANCE:
            put(module, *world.chance_of(module))
        put(sbd_modem, "open_serial", world.lines.open_serial)
        put(serial_port, "open_serial", world.lines.open_serial)
        put(pty_port, "open_pty", world.lines.open_pty)
        put(simulated_nodes, "open_pty", world.lines.open_pty)
        put(cellular, "open_stream", world.open_stream)
        put(cellular, "open_web_socket", world.open_web_socket)
        put(ChannelOutbox, "load", _watched(world, ChannelOutbox.load))
        for call in CALLS:
            put(ChannelOutbox, call, world.mistakes.making(call, getattr(ChannelOutbox, call)))
        yield


def _watched(world: World, load: Callable[[ChannelOutbox, int], Any]) -> Callable[..., Any]:
    def watched(outbox: ChannelOutbox, room: int) -> Any:
        transmission = load(outbox, room)
        if transmission is not None and transmission.answerable:
            segments = outbox.packing.queue.in_flight[transmission.number]
            sequences = frozenset(segment.sequence for segment in segments)
            at = trio.current_time()
            world.loads.append(Load(at, outbox.channel, transmission.urgent, sequences))
            prefix = "SOS " if transmission.urgent else ""
            world.tell(f"{outbox.channel} takes {prefix}{sorted(sequences)}")
        return transmission

    return watched


def _rate(seed: int) -> float:
    """Return the rate of time during code. With 0 time stands still, and a seed always gives the
    same trace. One in four seeds has another rate, because time never stands still in the field.
    """
    return 0.0 if seed % 4 else PASSING


def simulate(seed: int, home: Path, *instruments: trio.abc.Instrument) -> World:
    """Run one seed. Raises Violated or any error of the agent. `World.log` is the trace."""
    seed_trio(seed)
    world = World(seed, home)
    clock = trio.testing.MockClock(_rate(seed), autojump_threshold=0)
    with _replaced(world):
        try:
            trio.run(world.run, clock=clock, instruments=instruments)
        except BaseException as error:
            error.add_note("\n".join([f"seed {seed}, fan-out {world.fan_out}", *world.log]))
            raise
    return world
