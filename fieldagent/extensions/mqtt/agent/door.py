"""Admits commands that arrive over MQTT, and stores them.

Any client that can publish to the broker can send commands, with any client id. So the sender is
the last level of the topic, which the broker's access rules can reserve for one client. Only the
senders in `mqtt-senders` may use channels that cost money, and only they may replace waiting
Packages. Only they may name people, because the kit cannot know who would pay for the delivery. All
senders share one budget.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from fieldagent.agent.journal import outbound
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.journal.records import DamagedPackage
from fieldagent.agent.outbound.affordable import AffordablePlan, SpendingLimits, find_affordable
from fieldagent.agent.outbound.day_budget import DayBudget
from fieldagent.agent.outbound.intake import Intake
from fieldagent.agent.outbound.outbox import ChannelOutbox
from fieldagent.agent.outbound.package_state import PackageState
from fieldagent.agent.refusals import convert_refusals, describe_unread_member
from fieldagent.extensions.mqtt.agent.settings import MqttSettings
from fieldagent.extensions.mqtt.commands import HourlyGate, parse_document, remove_key
from fieldagent.http.problem import Problem
from fieldagent.package.delivery import encode_deliveries
from fieldagent.package.package import Channel, Package
from fieldagent.package.reading import ITEMS, Fault, InvalidPackage, is_sos, read_package

KEY_PREFIX = "mqtt "
"""Prefix of the Idempotency-Key under which the journal stores a Package that arrived over MQTT."""
NOT_LISTED = "{sender} is not in mqtt-senders"


class CommandAdmission:
    """Admits or refuses commands that arrive over MQTT. `affordable.SpendingLimits` explains
    `bearer_bytes`.
    """

    def __init__(
        self,
        settings: MqttSettings,
        journal: Journal,
        intake: Intake,
        outboxes: Mapping[Channel, ChannelOutbox],
        budget: DayBudget,
        *,
        bearer_bytes: int,
    ) -> None:
        self._settings = settings
        self._journal = journal
        self._intake = intake
        self._outboxes = outboxes
        self._bearer_bytes = bearer_bytes
        self.gate = HourlyGate(settings.commands_per_hour, journal.clock.now)
        self.budget = budget

    async def receive_message(self, sender: str, body: bytes) -> dict[str, Any]:
        """Return the answer for the sender. If the command is accepted, its Package is then on
        disk.
        """
        key = None
        try:
            with convert_refusals():
                document = parse_document(body)
                unread: list[Fault] = []
                key = _remove_key(document, unread)
                package = read_package(document, ITEMS, unread)
                package_state, withheld = await self._accept(sender, key, package)
        except Problem as problem:
            self.gate.counts["refused"] += 1
            answer = json.loads(problem.make_response().body)
            return {"accepted": False, "key": key, "problem": answer}
        self.gate.counts["taken"] += 1
        answer = {
            "accepted": True,
            "key": key,
            "id": package_state.id,
            "status": package_state.status,
            "channels": encode_deliveries(package_state.deliveries),
            **describe_unread_member(unread),
        }
        return answer | ({"withheld": withheld} if withheld else {})

    async def _accept(
        self, sender: str, key: str | None, package: Package
    ) -> tuple[PackageState, dict[str, str]]:
        """Accept the Package. Return its state, and the channels that it may not use with the
        reasons.
        """
        self._refuse_reserved_members(sender, package)
        name = f"{KEY_PREFIX}{sender} {key or secrets.token_hex(8)}"
        earlier = outbound.find_by_idempotency_key(self._journal, name)
        if earlier is not None:
            # The cost and the channels were decided when the Package arrived first, so use the same
            # channels again.
            with suppress(DamagedPackage):
                if (
                    kept_package := outbound.read_kept_package(self._journal, earlier.sequence)
                ) is not None:
                    package = replace(package, channels=kept_package.package.channels)
            return await self._intake.accept(package, name), {}
        if package.sos:
            return await self._intake.accept(package, name), {}
        await self.budget.refund_unspent()
        plan = self._find_affordable(sender, package)
        async with self.budget.book(plan.price):
            package_state = await self._intake.accept(plan.package, name)
        await self.budget.record_booking(package_state.sequence, plan)
        return package_state, plan.withheld

    def _refuse_reserved_members(self, sender: str, package: Package) -> None:
        listed = sender in self._settings.senders
        sender_text = NOT_LISTED.format(sender=sender or "a sender without a name")
        if package.sos and self._settings.sos == "off":
            raise Problem(403, "nothing was queued: mqtt-sos does not let MQTT raise an SOS")
        if package.sos and not listed:
            raise Problem(403, f"nothing was queued: {sender_text}, and cannot raise an SOS")
        refusals = {
            "to": package.to,
            "from": package.author,
            # A sender that is not listed must not use this key, which could replace other programs'
            # Packages.
            "collapseKey": package.collapse_key,
        }
        for member, value in refusals.items():
            if value is not None and not listed:
                raise Problem(403, f"nothing was queued: {sender_text}, and cannot set `{member}`")

    def _find_affordable(self, sender: str, package: Package) -> AffordablePlan:
        """Return the channels that the sender can pay for. Raises Problem if there are none."""
        is_listed = sender in self._settings.senders
        limits = SpendingLimits(
            "" if is_listed else NOT_LISTED.format(sender=sender or "the sender"),
            self.budget.compute_remaining() or 0,
            self._settings.credits_per_day,
            "mqtt-credits-per-day lets MQTT cost",
            self._bearer_bytes,
        )
        now = self._journal.clock.date(self._journal.clock.now())
        plan = find_affordable(package, self._outboxes, now, limits)
        if not plan.is_allowed:
            raise Problem(403, f"nothing was queued: {plan.withheld_text}")
        return plan


def _remove_key(document: dict[str, Any], faults: list[Fault]) -> str | None:
    """Remove the key from a document and return it. Raises InvalidPackage if the key is invalid.
    For an SOS, add the fault to `faults` instead and return None.
    """
    try:
        return remove_key(document)
    except InvalidPackage as wrong:
        if not is_sos(document):
            raise
        faults += wrong.faults
        return None
