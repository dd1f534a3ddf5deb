"""People with the official client of their radios' firmware, a kit with such a radio, and its
links. Each is a separate process.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tests.agent.test_agent import HOOK
from tests.extensions.lab.simulator import test_companion_judged, test_meshtastic_judged
from tests.processes import Agent, Running, until

KEPT, LEFT, THERE, GIVEN_UP = "📥", "🛰", "✅", "❌"
SIGNS = (KEPT, LEFT, THERE, GIVEN_UP)


def learn(person: Running, what: str) -> Any:
    """Wait for the person's next event with the key `what`, and return its value."""
    return json.loads(person.expect(f'{{"{what}"'))


def heard(person: Running) -> str:
    """Return the next text that the person receives. Skip acknowledgements of the person's own
    messages.
    """
    while True:
        event = learn(person, "heard")
        if not event.get("emoji") and not event["text"].startswith(SIGNS):
            return str(event["text"])


def hears(person: Running, words: str) -> None:
    """Wait until the person has got a text that contains these words."""
    until(lambda: any(words in each["text"] for each in _told(person)))


def insists(person: Running, said: str, words: str) -> None:
    """Send the text, and repeat it until a text with those words arrives, because both radios may
    have transmitted at the same moment.
    """

    def acks() -> list[Any]:
        return [json.loads(line) for line in person.output() if line.startswith('{"ack"')]

    answered = len(acks())

    def came() -> bool:
        nonlocal answered
        if len(acks()) > answered and acks()[-1].get("there") is False:
            answered = len(acks())
            person.type(said)
        return any(words in each["text"] for each in _told(person))

    person.type(said)
    until(came)


def _told(person: Running) -> list[dict[str, Any]]:
    return [json.loads(line) for line in person.output() if line.startswith('{"heard"')]


def _reactions(person: Running, message: int, text: str) -> list[str]:
    there = [each for each in _told(person) if each.get("emoji") and each["on"] == message]
    return [each["text"] for each in there]


def _texts(person: Running, message: int, text: str) -> list[str]:
    """Return the reactions to the message that arrived as texts."""
    signs = []
    for each in _told(person):
        sign, _, words = each["text"].partition(" ")
        about = words.partition("(«")[2].removesuffix("»)")
        is_it = text.startswith(about[:-1]) if about.endswith("…") else text == about
        if sign in SIGNS and is_it:
            signs.append(sign)
    return signs


def _acks_and_texts(person: Running, message: int, text: str) -> list[str]:
    """Return the signs of a message. An acknowledgement means that the kit has it on its disk, and
    the others are texts.
    """
    acks = [json.loads(line) for line in person.output() if line.startswith('{"ack"')]
    kept = any(each["ack"] == message and each["there"] for each in acks)
    return [KEPT] * kept + _texts(person, message, text)


class Firmware(NamedTuple):
    """Facts about one firmware of a kit's and its people's radios."""

    name: str
    """Value of the setting `mesh-protocol` for this firmware."""
    handle: Callable[[int], str]
    """Returns the handle of a node on the air. 1 is the kit's own."""
    text_bytes: int
    air: Callable[..., AbstractContextManager[tuple[Running, list[Any]]]]
    person: Callable[[Any], Running]
    signs: Callable[[Running, int, str], list[str]]
    """Returns the signs that a person has seen on a message, by its number and text."""
    person_name: Callable[[int], str] = "Node {}".format
    """Returns the name that a node's person chose."""
    caveat: str = ""
    """Warning beside everything that comes over it."""
    settings: Mapping[str, str] = {}
    """Settings of a kit with such a radio."""

    def signed(self, name: str, text: str) -> str:
        """Return a person's text as it is forwarded. Without a name, it is from a user of
        the hub.
        """
        who = " ".join(filter(None, (name, self.caveat)))
        return f"{who}: {text}" if who else text

    @property
    def kit(self) -> str:
        return self.handle(1)

    @property
    def ada(self) -> str:
        return self.handle(2)

    @property
    def ben(self) -> str:
        return self.handle(3)


MESHTASTIC = Firmware(
    "meshtastic",
    test_meshtastic_judged.handle,
    200,
    test_meshtastic_judged.mesh,
    test_meshtastic_judged.person,
    _reactions,
)
MESHCORE = Firmware(
    "meshcore",
    test_companion_judged.handle,
    133,
    test_companion_judged.companions,
    test_companion_judged.person,
    _texts,
)


def call_of(number: int) -> str:
    return f"N0CALL-{number}"


@contextmanager
def aprs_air(home: Path, people: int) -> Iterator[tuple[Running, list[tuple[int, str]]]]:
    """Yield the process of the radio channel, and the TNC port and callsign of each person."""
    command = [sys.executable, "-m", "tests.peers.aprs_air", str(home / "air"), str(people)]
    with Running(command, "ready") as air:
        ports = [int(line.rpartition(":")[2]) for line in air.lines if "tcp://" in line]
        yield air, [(port, call_of(node)) for node, port in enumerate(ports, 2)]


def aprs_person(place: tuple[int, str]) -> Running:
    port, call = place
    return Running([sys.executable, "-m", "tests.peers.aprs_person", str(port), call], "ready ")


APRS = Firmware(
    "aprs",
    lambda number: call_of(number).lower(),
    67,
    aprs_air,
    aprs_person,
    _acks_and_texts,
    call_of,
    "by APRS, unproved call sign",
    {
        "mesh-callsign": call_of(1),
        "mesh-calls": call_of(3),
        "mesh-sos": f"{call_of(2)}, {call_of(3)}",
        "mesh-credits-per-day": "1000",
    },
)
FIRMWARES = {each.name: each for each in (MESHTASTIC, MESHCORE, APRS)}
"""Facts about each firmware, by its name in `settings.RADIOS`."""


@dataclass
class Camp:
    home: Path
    firmware: Firmware
    air: Running
    people: list[Running]
    kit: Agent
    settings: Mapping[str, str | None]
    stack: ExitStack
    texts: dict[int, str] = field(default_factory=dict)

    @property
    def number(self) -> str:
        return self.firmware.kit

    def people_around(self) -> list[dict[str, Any]]:
        """Return the people whom the kit's radio knows or has heard, as in the API."""
        people: list[dict[str, Any]] = self.kit.call("GET", "/api/mesh").body["people"]
        return people

    def write(self, who: int, text: str) -> int:
        """Let a person send a text to the kit, and return its number."""
        self.people[who].type(f"text {self.number} {text}")
        message = int(learn(self.people[who], "sent")["sent"])
        self.texts[message] = text
        return message

    def signs(self, who: int, message: int) -> list[str]:
        """Return the signs that a person has seen on their message."""
        return self.firmware.signs(self.people[who], message, self.texts[message])

    def sees(self, who: int, message: int, *expected: str) -> bool:
        """Return True if a person has seen the last of those signs and, before it, only signs of
        this list in this order. One is skipped if more was known before their radio's turn came.
        """
        seen = self.signs(who, message)
        return seen[-1:] == [*expected[-1:]] and seen == [each for each in expected if each in seen]

    def restart(self) -> None:
        """Kill the kit's agent and start it again."""
        self.kit.kill()
        self.kit = self.stack.enter_context(Agent(self.home / "kit", self.settings))

    def mesh(self) -> dict[str, Any]:
        status: dict[str, Any] = self.kit.call("GET", "/api/status").body["mesh"]
        return status

    def await_radio(self) -> None:
        until(lambda: self.mesh()["state"] == "ready")

    def packages(self) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = self.kit.call("GET", "/api/packages").body["packages"]
        return listed


@contextmanager
def camp(
    home: Path,
    settings: Mapping[str, str | None],
    *arguments: str,
    people: int = 1,
    firmware: Firmware = MESHTASTIC,
) -> Iterator[Camp]:
    with ExitStack() as stack:
        air, ports = stack.enter_context(firmware.air(home, *arguments, people=people))
        there = [stack.enter_context(firmware.person(port)) for port in ports]
        (home / "kit").mkdir()
        all_settings = {
            "satellite-port": None,
            "mesh-port": str(home / "air" / "node-1"),
            "mesh-protocol": firmware.name,
            "mesh-people": f"{firmware.ada} Ada",
            "inbound-hook": HOOK,
            **firmware.settings,
            **settings,
        }
        kit = stack.enter_context(Agent(home / "kit", all_settings))
        made = Camp(home, firmware, air, there, kit, all_settings, stack)
        made.await_radio()
        try:
            yield made
        except BaseException:
            # The output of each process shows where to look.
            for each in (air, *there, made.kit):
                print("\n".join(each.output()), end="\n\n")
            raise
