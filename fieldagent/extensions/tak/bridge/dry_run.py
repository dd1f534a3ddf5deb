"""Response to a phone that asks for the cost of a message, without sending the message. Pure
functions.
"""

from __future__ import annotations

from fieldagent.hub.bridge.spending import Allowance, KitCost, Quote
from fieldagent.system.wording import format_count

KITS_MAX = 5
"""Largest number of kits in the response."""


def describe_cost(quote: Quote, allowance: Allowance, caller: str, per_day: int, size: int) -> str:
    """Return the response to `caller`, which is a callsign or a user's name. `size` is the number
    of UTF-8 bytes of the message.
    """
    sentences = [f"Not sent, because it begins with a question mark: {format_count(size, 'byte')}."]
    sentences += [f"{each.kit}: {_describe_route(each)}." for each in quote.kits[:KITS_MAX]]
    if len(quote.kits) > KITS_MAX:
        sentences.append(f"{format_count(len(quote.kits) - KITS_MAX, 'more kit')}.")
    sentences.append(_describe_verdict(quote))
    list_text = "is in tak-allow" if allowance.allowed else "is not in tak-allow"
    credits_left = max(0, allowance.remaining)
    sentences.append(
        f"{caller} {list_text}; {credits_left} of {per_day} of tak-credits-per-day are left."
    )
    return " ".join(sentences)


def _describe_route(kit: KitCost) -> str:
    if kit.linked:
        return "over its link, 0 credits"
    ways = [f"by satellite, {format_count(kit.bytes, 'byte')}"] if kit.bytes else []
    ways += ["by SMS"] if kit.sms else []
    return (
        f"{' and '.join(ways)}, {format_count(kit.credits, 'credit')}"
        if ways
        else "only over a link"
    )


def _describe_verdict(quote: Quote) -> str:
    if not quote.kits:
        return "No user has a kit for it now."
    if quote.reason:
        return f"It {quote.reason}."
    if not any(each.linked or each.credits for each in quote.kits):
        return "It would wait for a link, for 0 credits."
    return f"It would cost {format_count(quote.credits, 'credit')}."
