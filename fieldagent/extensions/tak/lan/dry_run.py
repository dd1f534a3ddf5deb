"""What a phone is told that asks what a message would cost: nothing of it is queued. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from fieldagent.agent.outbound.affordable import Affordable, SpendingLimits
from fieldagent.agent.outbound.cost import Cost
from fieldagent.package.package import Channel
from fieldagent.system.wording import counted


def in_words(costs: Mapping[Channel, Cost], plan: Affordable, limits: SpendingLimits) -> str:
    """Return the answer: what each channel would take, and which it would go by. `costs`: of the
    same message."""
    sentences = ["Not sent, as it begins with a question mark."]
    for channel, cost in costs.items():
        withheld = plan.withheld.get(channel)
        size = f"{channel}: {counted(cost.bytes, 'byte')}"
        sentences.append(f"{size}, not by this: {withheld}." if withheld else f"{size}.")
    sentences.append(
        f"It would cost {counted(plan.price, 'credit')}." if plan.goes else "It would go nowhere."
    )
    sentences.append(
        f"{limits.left} of {limits.per_day} that tak-lan-credits-per-day allows are left."
    )
    return " ".join(sentences)
