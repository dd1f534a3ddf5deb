"""Response to a phone that asks for the cost of a message, without queuing the message. Pure
functions.
"""

from __future__ import annotations

from collections.abc import Mapping

from fieldagent.agent.outbound.affordable import AffordablePlan, SpendingLimits
from fieldagent.agent.outbound.cost import Cost
from fieldagent.package.package import Channel
from fieldagent.system.wording import format_count


def describe_cost(
    costs: Mapping[Channel, Cost], plan: AffordablePlan, limits: SpendingLimits
) -> str:
    """Return the response: the cost on each channel, and the channels that the message would use.
    `costs` are for the same message.
    """
    sentences = ["Not sent, because it begins with a question mark."]
    for channel, cost in costs.items():
        withheld = plan.withheld.get(channel)
        size = f"{channel}: {format_count(cost.bytes, 'byte')}"
        sentences.append(f"{size}, not by this: {withheld}." if withheld else f"{size}.")
    sentences.append(
        f"It would cost {format_count(plan.price, 'credit')}."
        if plan.is_allowed
        else "It would not be sent."
    )
    sentences.append(f"{limits.remaining} of {limits.per_day} of tak-lan-credits-per-day are left.")
    return " ".join(sentences)
