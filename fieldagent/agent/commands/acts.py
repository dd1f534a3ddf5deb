"""Commands that change something. Each is on disk as begun before it is called, and returns what
it did, in a sentence.

`restart` and `reboot` do not return: the agent that begins anew answers them.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from functools import partial
from typing import NoReturn

import trio

from fieldagent.agent.channels.contract import LinkState
from fieldagent.agent.commands.hands import CannotBeDone, Failed, Hands
from fieldagent.agent.modem_healing import healing_of
from fieldagent.agent.outbound.outbox import ChannelOutbox
from fieldagent.agent.outcomes import REBOOT
from fieldagent.package.package import Channel
from fieldagent.system.folder import put_file
from fieldagent.system.wording import counted

LOOK = 0.5
"""Seconds between two looks at what a command waits for."""
QUIET = 600.0
"""Seconds that a session may take, before what would cut it is given up."""
HEALED = 300.0
"""Seconds in which a silent modem gets its next step, by `channels.reopening`."""
REBOOTED = 120.0
"""Seconds in which root's unit reboots the machine."""


def _satellite(hands: Hands) -> ChannelOutbox:
    outbox = hands.parts.outboxes.get(Channel.SATELLITE)
    if outbox is None:
        raise CannotBeDone("no satellite modem is configured")
    return outbox


async def retry(hands: Hands) -> str:
    """Have the modem try now. Raises CannotBeDone."""
    outbox = _satellite(hands)
    outbox.link.ask()
    return f"the modem tries now, {counted(len(outbox), 'Package')} to send"


def may_heal(hands: Hands) -> None:
    """Raise CannotBeDone where there is nothing to be healed."""
    link = _satellite(hands).link
    if "satellite" not in healing_of(hands.settings):
        raise CannotBeDone("satellite-heal has no step here")
    if link.state is not LinkState.ABSENT:
        raise CannotBeDone(f"the modem answers ({link.state.value}): only a silent one is healed")


async def heal(hands: Hands) -> str:
    """Take the next step for a silent modem. Raises Failed."""
    link = _satellite(hands).link
    before = link.facts.get("healingSteps", 0)
    link.heal_now = True
    with trio.move_on_after(HEALED):
        while link.facts.get("healingSteps", 0) == before:
            await trio.sleep(LOOK)
        return str(link.facts.get("healing", ""))
    link.heal_now = False
    raise Failed("no step was taken in five minutes: the modem answers, or 8 were in an hour")


def may_restart(hands: Hands) -> None:
    """Raise CannotBeDone where nobody would start the agent again."""
    if not os.environ.get("INVOCATION_ID"):
        raise CannotBeDone("systemd has not started this agent: nobody would start it again")


async def restart(hands: Hands) -> NoReturn:
    """Stop in good order; systemd starts it again."""
    os.kill(os.getpid(), signal.SIGTERM)
    await trio.sleep_forever()


async def reboot(hands: Hands) -> NoReturn:
    """Leave the order for root's unit. Raises Failed where none takes it."""
    place = hands.settings.state_directory / REBOOT
    boot = hands.parts.journal.clock.base().boot
    try:
        await trio.to_thread.run_sync(partial(put_file, place, boot.encode()))
    except OSError as error:
        raise Failed(f"the order cannot be left for root's unit: {error.strerror}") from None
    await trio.sleep(REBOOTED)
    raise Failed("fieldagent-reboot.path runs not here, or the machine does not go down")


async def quiet(hands: Hands) -> None:
    """Wait until no modem is in a session. Raises CannotBeDone where one does not end."""
    with trio.move_on_after(QUIET):
        while busy := _busy(hands.parts.outboxes):
            await trio.sleep(LOOK)
        return
    raise CannotBeDone(f"{busy} has been in a session for ten minutes")


def _busy(outboxes: Mapping[Channel, ChannelOutbox]) -> str:
    """The link to the hub is no session: what it has not acknowledged goes again."""
    for channel, outbox in outboxes.items():
        if channel is not Channel.CELLULAR and outbox.link.state is LinkState.BUSY:
            return channel
    return ""


ACTS = {"retry": retry, "heal": heal, "restart": restart, "reboot": reboot}
JUDGES = {"heal": may_heal, "restart": may_restart}
"""What looks whether it can be done, before it is begun."""
CUTS = ("heal", "restart", "reboot")
"""They wait until no modem is in a session."""
