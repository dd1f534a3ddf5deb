"""Creates the SMS bearer from the settings."""

from __future__ import annotations

from functools import partial
from typing import NoReturn

from fieldagent.agent.bearer import Bearer, BearerSeat
from fieldagent.agent.channels.healing import Healing, get_steps
from fieldagent.agent.outbound.day_budget import DayBudget
from fieldagent.extensions.sms.agent import carrier
from fieldagent.extensions.sms.agent.modem_kinds import find_modem_kind
from fieldagent.extensions.sms.agent.settings import SmsSettings
from fieldagent.wire.sms_frame import ENVELOPE_BYTES

BOOKED_AS = "SMS"
"""Name under which the journal records the cost of SMS. The other names are those of channels."""


def make_bearer(settings: SmsSettings) -> Bearer:
    port, command = settings.port, settings.recovery_command
    assert port is not None
    steps = get_steps(settings.heal, command, *find_modem_kind(port).heals)
    healing = Healing("sms", port, steps, command)
    return Bearer(ENVELOPE_BYTES, healing, partial(_run, settings))


async def _run(settings: SmsSettings, seat: BearerSeat) -> NoReturn:
    reserve = -(-settings.per_day // 10)
    budget = DayBudget(seat.journal, BOOKED_AS, settings.per_day, reserve)
    await carrier.run(
        carrier.SmsSeat(
            settings,
            seat.token_digest,
            seat.outbox,
            seat.reception,
            seat.cellular,
            seat.turn,
            budget,
            seat.folder,
            seat.link,
            seat.heal,
            seat.progress,
        )
    )
