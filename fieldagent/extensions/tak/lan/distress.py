"""Raises an SOS for the 911 alert of a TAK phone on the kit's network.

A uid is not authenticated, so the alert follows the rules for unauthenticated radios: a separate
incident, and the budget of `others_sos`. A phone repeats its alert every few seconds, but only
the first alert raises an incident. A phone's cancel does not end the incident. It becomes a message
in the incident for people at the hub.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Mapping

from fieldagent.agent.journal import handhelds, incident
from fieldagent.agent.journal.incident import IncidentOver
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.outbound.intake import Intake
from fieldagent.agent.outbound.others_sos import book_price, make_plan
from fieldagent.agent.outbound.outbox import ChannelOutbox
from fieldagent.extensions.tak.events import PhoneAlert
from fieldagent.package.coordinates import is_zero_position
from fieldagent.package.package import SOS_PRIORITY, Channel, Message, Package

log = logging.getLogger(__name__)

SILENCE_S = 600.0
"""Seconds of silence after which an alert of the same phone is a new alert."""
OPEN_MAX = 20
"""Largest number of phones with a separate open incident. Further phones share one incident."""
REMEMBERED_MAX = 200
"""Largest number of phones whose last alert is stored in memory."""


class LanAlertReceiver:
    """Accepts the alerts of phones on the kit's network."""

    def __init__(
        self, journal: Journal, intake: Intake, outboxes: Mapping[Channel, ChannelOutbox]
    ) -> None:
        self._journal = journal
        self._intake = intake
        self._outboxes = outboxes
        self._last_alerts: OrderedDict[str, float] = OrderedDict()
        """Time of each phone's last alert, by its uid."""

    async def accept_alert(self, alert: PhoneAlert) -> str:
        """Process an alert or its cancel, and return the result, `taken` or `repeated`."""
        handle = self._make_handle(alert)
        open_incident = incident.find_open_of_handheld(self._journal, handle)
        if alert.cancels:
            self._last_alerts.pop(alert.sender.uid, None)
            return await self._cancel(alert, handle)
        now = self._journal.clock.now()
        before = self._last_alerts.get(alert.sender.uid)
        self._remember(alert.sender.uid, now)
        if open_incident is not None or (before is not None and now - before < SILENCE_S):
            return "repeated"
        await self._journal.persist(handhelds.store_facts(handle, name=alert.sender.callsign))
        point, place = alert.point, ""
        if point.is_known and not is_zero_position(point.latitude, point.longitude):
            place = f", at {point.latitude:.5f} {point.longitude:.5f}"
        await self._accept(f"SOS from {alert.sender.callsign} (TAK phone){place}", handle)
        log.warning("a 911 alert of the TAK phone %s is an SOS%s", alert.sender.callsign, place)
        return "taken"

    async def _cancel(self, alert: PhoneAlert, handle: str) -> str:
        open_incident = incident.find_open_of_handheld(self._journal, handle)
        if open_incident is None:
            return "repeated"
        text = f"{alert.sender.callsign} has cancelled the 911 alert on the phone"
        number = open_incident.number
        try:
            await self._accept(text, handle, number)
        except IncidentOver:
            return "repeated"
        return "taken"

    async def _accept(self, text: str, handle: str, joins: int | None = None) -> None:
        package = Package(Message(text), priority=SOS_PRIORITY)
        plan = make_plan(package, self._journal, self._outboxes)
        await book_price(self._journal, plan.price)
        key = None if joins is None else f"{handle} cancels {joins}"
        await self._intake.accept(plan.package, key, incident_number=joins, handle=handle)
        if plan.withheld_text:
            log.warning("the SOS of %s uses only other channels: %s", handle, plan.withheld_text)

    def _make_handle(self, alert: PhoneAlert) -> str:
        """Return the name under which the journal stores the phone's incident. If incidents of
        OPEN_MAX phones are open, all further phones share the name `tak:`.
        """
        handle = "tak:" + "".join(alert.sender.uid.split())
        if incident.find_open_of_handheld(self._journal, handle) is not None:
            return handle
        others = incident.list_unproved(self._journal, OPEN_MAX)
        open_incidents = [
            each for each, reporter in others if each.ended is None and reporter[:4] == "tak:"
        ]
        return "tak:" if len(open_incidents) >= OPEN_MAX else handle

    def _remember(self, uid: str, now: float) -> None:
        self._last_alerts[uid] = now
        self._last_alerts.move_to_end(uid)
        if len(self._last_alerts) > REMEMBERED_MAX:
            self._last_alerts.popitem(last=False)
