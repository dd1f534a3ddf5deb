"""Makes the recovery settings of each modem from the agent's settings."""

from __future__ import annotations

from fieldagent.agent.bearer import make_bearers
from fieldagent.agent.channels.healing import Healing, HealingStep, get_steps
from fieldagent.agent.kit_part import find_enabled_parts
from fieldagent.agent.settings import Settings


def make_healing(settings: Settings) -> dict[str, Healing]:
    """Return the recovery settings of each modem, by `Healing.channel`, such as `satellite`. Modems
    without recovery steps are left out.
    """
    healings = []
    if settings.satellite_port:
        run = settings.satellite_recovery_command
        steps = get_steps(settings.satellite_heal, run, HealingStep("dtr"))
        healings.append(Healing("satellite", settings.satellite_port, steps, run))
    if settings.hub_address:
        run, after = settings.cellular_recovery_command, float(settings.cellular_recovery_after)
        steps = get_steps(settings.cellular_heal, run)
        healings.append(Healing("cellular", "", steps, run, after, after))
    healings += [
        part.healing(settings.parts[name])
        for name, part in find_enabled_parts(settings.parts).items()
        if part.healing is not None
    ]
    healings += [bearer.healing for bearer in make_bearers(settings.parts).values()]
    return {healing.channel: healing for healing in healings if healing.steps}
