"""Commands that a user can type at the simulated 9704. They send messages to the kit and cause
failures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fieldagent.extensions.lab.simulator.base_camp import BaseCamp
from fieldagent.extensions.lab.simulator.commands import (
    WRITING_COMMANDS,
    BadCommand,
    carry_out,
    read_number,
    read_switch,
)
from fieldagent.extensions.lab.simulator.imt_modem import FINALS, STEPS, SimulatedImtModem
from fieldagent.extensions.lab.simulator.imt_port import ImtPort
from fieldagent.extensions.lab.simulator.mt_queue import MtQueue
from fieldagent.system.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class ImtBench:
    """Simulated objects that the commands control."""

    modem: SimulatedImtModem
    port: ImtPort
    queue: MtQueue
    home: BaseCamp

    def ring(self) -> None:
        """Push the waiting messages to the host. The IMT network does this without a ring alert."""
        self.modem.push_mail()


def run_line(bench: ImtBench, line: str) -> str:
    """Run one line and return its output. Raises BadCommand if the line is not a valid command."""
    answer = carry_out(bench, line, COMMANDS)
    bench.port.poke()
    return answer


def _set_final(bench: ImtBench, rest: str) -> str:
    arguments = rest.split()
    if not arguments or arguments[0] not in FINALS:
        raise BadCommand(f"a status is one of {', '.join(FINALS)}")
    arrives = arguments[0] == "mo_ack_received" or "delivered" in arguments
    bench.modem.faults.finals.append((arguments[0], arrives))
    return f"the next message ends with {arguments[0]}"


def _refuse(bench: ImtBench, rest: str) -> str:
    if not rest:
        raise BadCommand("refuse WORD, such as refuse subscription_invalid")
    bench.modem.faults.refusals.append(rest)
    return f"the next message is refused with {rest}"


def _set_signal(bench: ImtBench, rest: str) -> str:
    bench.modem.set_sky(visible=True, bars=read_number(rest, 0, 5, "signal"))
    return f"signal {rest} of 5"


def _set_service(bench: ImtBench, rest: str) -> str:
    visible = bool(read_number(rest, 0, 1, "service"))
    bench.modem.set_sky(visible=visible, bars=bench.modem.bars)
    return "the network is there" if visible else "no network"


def _unplug(bench: ImtBench, rest: str) -> str:
    bench.port.has_own_power = rest == "alone"
    bench.port.unplug()
    power_text = ", and keeps its power" if bench.port.has_own_power else ""
    return f"unplugged{power_text}; `plug` puts it back"


def _plug(bench: ImtBench, rest: str) -> str:
    bench.port.plug()
    return "plugged in"


def _start_brown_out(bench: ImtBench, rest: str) -> str:
    bench.modem.reset()
    return "the modem lost power for a moment"


def _reset_after(bench: ImtBench, rest: str) -> str:
    bench.modem.faults.reset_after = read_number(rest, 1, 70, "segments")
    return f"the modem loses power once it has {rest} segments of the next message"


def _reset_at(bench: ImtBench, rest: str) -> str:
    if rest not in STEPS:
        raise BadCommand(f"a step is one of {', '.join(STEPS)}")
    bench.modem.faults.reset_at = rest
    return f"the modem loses power with the next message {STEPS[rest]}"


def _pause_after(bench: ImtBench, rest: str) -> str:
    bench.modem.faults.pause_after = read_number(rest, 0, 69, "segments")
    return f"the modem asks for {rest} segments of the next message, and for no more"


def _lose_status(bench: ImtBench, rest: str) -> str:
    bench.modem.faults.lose_finals += 1
    return "the next message's status is lost"


def _lose_answer(bench: ImtBench, rest: str) -> str:
    bench.modem.faults.lose_answers += 1
    return "the answer to the next message is lost, and the message goes"


def _set_noise(bench: ImtBench, rest: str) -> str:
    bench.modem.faults.malformed += 1
    return "the next request is answered with 405"


def _set_wrong_crc(bench: ImtBench, rest: str) -> str:
    bench.modem.faults.wrong_crcs += 1
    return "the next message to the kit has a wrong CRC"


def _set_topics(bench: ImtBench, rest: str) -> str:
    bench.modem.faults.no_topics = not read_switch(rest)
    return f"topics {rest}"


def _set_sim(bench: ImtBench, rest: str) -> str:
    bench.modem.faults.no_sim = not read_switch(rest)
    return f"SIM {rest}; it is seen at the modem's next start"


def _set_baud(bench: ImtBench, rest: str) -> str:
    bench.port.baud = read_number(rest, 1200, 921_600, "baud")
    return f"the modem talks at {rest} baud"


def _hang(bench: ImtBench, rest: str) -> str:
    bench.modem.faults.deaf = is_on = read_switch(rest)
    return "the modem answers nothing" if is_on else "the modem answers again"


def _set_latency(bench: ImtBench, rest: str) -> str:
    bench.port.latency = float(read_number(rest, 0, 3600, "latency in seconds"))
    return f"a message takes {rest} s"


COMMANDS: Mapping[str, tuple[str, Callable[[ImtBench, str], str]]] = {
    **WRITING_COMMANDS,
    "final": (
        "final WORD [delivered]      the next message ends with this status; with `delivered` the"
        " network has it all the same",
        _set_final,
    ),
    "refuse": ("refuse WORD                 the modem does not take the next message", _refuse),
    "signal": ("signal 0..5                 set the bars", _set_signal),
    "service": ("service 0|1                 network in sight or not", _set_service),
    "unplug": (
        "unplug [alone]              take the modem away; alone: its port, and not its power",
        _unplug,
    ),
    "plug": ("plug                        put it back", _plug),
    "brownout": (
        "brownout                    reset the modem, also with a message",
        _start_brown_out,
    ),
    "reset-after": ("reset-after N               reset it after N segments", _reset_after),
    "reset-at": ("reset-at STEP               reset it at offered, accepted or told", _reset_at),
    "pause-after": ("pause-after N               ask for N segments only", _pause_after),
    "lose-status": ("lose-status                 lose the next message's status", _lose_status),
    "lose-answer": ("lose-answer                 lose the next message's answer", _lose_answer),
    "noise": ("noise                       garble the next request", _set_noise),
    "wrong-crc": ("wrong-crc                   garble the next message to the kit", _set_wrong_crc),
    "topics": ("topics on|off               off: the SIM is new and knows none", _set_topics),
    "sim": ("sim on|off                  take the SIM out", _set_sim),
    "baud": ("baud N                      talk at this speed, and no other", _set_baud),
    "hang": ("hang on|off                 answer nothing", _hang),
    "latency": ("latency SECONDS             seconds that a message takes", _set_latency),
}
"""All commands by name. Each has its help line and its function."""
