"""Runs the kit's radio for handhelds. The service opens the radio, opens it again when it is lost,
and handles messages in both directions.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NoReturn

import trio

from fieldagent.agent.channels.contract import ChannelLink, LinkState
from fieldagent.agent.channels.radio_modem import RadioLost
from fieldagent.agent.channels.reopening import run_and_reopen
from fieldagent.agent.channels.serial_port import PortLost
from fieldagent.agent.journal import handhelds
from fieldagent.agent.journal.handhelds import Handheld
from fieldagent.agent.part_service import PartBase, PartHost, PartPlan, PartService
from fieldagent.extensions.people.addressee import make_people_hook
from fieldagent.extensions.people.contract import PRECISE, HandheldPlace, PeopleRadio, PeoplesRadio
from fieldagent.extensions.people.desk import Desk
from fieldagent.extensions.people.directory import Handles
from fieldagent.extensions.people.doubts import Doubt, list_doubts
from fieldagent.extensions.people.post import Absence, HandheldMessenger
from fieldagent.extensions.people.registry import can_reach, find_caveat, load_peoples_radio
from fieldagent.extensions.people.replies import FULL_DISK_REPLY
from fieldagent.extensions.people.settings import PeopleSettings, is_among
from fieldagent.extensions.people.toll import HandheldLimits
from fieldagent.extensions.people.unbelieved import make_distress_notice
from fieldagent.store.group import NotOnDisk, StoreFull
from fieldagent.system.supervisor import Note

log = logging.getLogger(__name__)


def plan(settings: PeopleSettings, base: PartBase) -> PartPlan:
    """Return the plan of the part that runs the radio in the settings."""
    link = ChannelLink()
    is_handle = partial(can_reach, settings.protocol, link)
    handles = Handles(base.journal, settings.people or {}, is_handle)

    def make_service(host: PartHost) -> PeopleService:
        desk = Desk(
            host.journal,
            host.intake,
            host.cancellation,
            host.inbox,
            HandheldLimits(host.journal, host.outboxes, bearer_bytes=host.bearer_bytes),
            settings,
            host.proof_keys,
            find_caveat(settings.protocol),
        )
        return PeopleService(settings, desk, link)

    return PartPlan(make_service, [make_people_hook(handles, base.package_time_to_live)])


class PeopleService(PartService):
    """Service for the kit's radio for handhelds. Call `run` under a supervisor. The API calls the
    other methods.
    """

    def __init__(self, settings: PeopleSettings, desk: Desk, link: ChannelLink) -> None:
        self._settings = settings
        self._desk = desk
        self._journal = desk.journal
        self.link = link
        self._postman = HandheldMessenger(desk.journal, desk.inbox, desk.find_holder, Absence())
        self._frames: Counter[str] = Counter()
        """Number of received frames for each decision, for a radio that hears all stations."""

    async def run(
        self, agent_status: Callable[[], Mapping[str, Any]], note_fault: Note
    ) -> NoReturn:
        """Keep the radio open, and exchange messages with it. Raises the journal's errors."""
        kind = load_peoples_radio(self._settings.protocol)
        await self._journal.persist(handhelds.record_interrupted_packets)
        self.link.state = LinkState.STARTING

        async def work() -> None:
            await self._serve_radio(kind)

        await run_and_reopen(work, (RadioLost, PortLost), self._log_lost, lambda: None, self.link)

    async def _serve_radio(self, kind: PeoplesRadio) -> None:
        mesh = self._settings
        assert mesh.port is not None
        place = HandheldPlace(
            mesh.port, mesh.callsign, mesh.baud, self._is_admitted, self._note_frame
        )
        async with kind.open(place, self.link, self._read_unix_time) as radio:
            self.link.state = LinkState.FAULT if self.link.reason else LinkState.READY
            log.info("people's radio works: %s", self.link.facts.get("node", self._settings.port))
            if self.link.reason:
                log.error("people's radio: %s", self.link.reason)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._listen, radio)
                nursery.start_soon(self._postman.run, radio)

    async def _listen(self, radio: PeopleRadio) -> NoReturn:
        while True:
            report = await radio.receive()
            try:
                if not await self._desk.process_report(report):
                    await radio.refuse(report, "")
            except (NotOnDisk, StoreFull):
                log.error("the text of %s is not accepted, because the disk is full", report.handle)
                await radio.refuse(report, self._desk.translate_for(report, FULL_DISK_REPLY))

    def _log_lost(self, error: BaseException) -> None:
        if self.link.state is not LinkState.ABSENT or self.link.reason != str(error):
            log.warning("people's radio is away: %s", error)
        self.link.state, self.link.reason = LinkState.ABSENT, str(error)

    def _read_unix_time(self) -> float:
        return self._journal.clock.date(self._journal.clock.now())

    def _is_admitted(self, handle: str) -> bool:
        return is_among(handle, self._settings.calls) or self._desk.find_holder(handle).is_known

    def _note_frame(self, outcome: str) -> None:
        self._frames[outcome] += 1

    def get_status(self) -> dict[str, Any]:
        """Return the state of the radio, and the number of texts in each state."""
        return {
            "state": self.link.state.value,
            "reason": self.link.reason,
            "protocol": self._settings.protocol,
            "texts": handhelds.count_states(self._journal),
            "people": len(handhelds.list_recently_heard(self._journal)),
            "frames": dict(self._frames),
            **self.link.facts,
        }

    def list_people(self) -> list[dict[str, Any]]:
        """Return the handhelds that were heard recently. The handheld that was heard last comes
        first.
        """
        namesakes = {each.handle: each.namesake_of for each in self._list_doubts()}
        return [
            self._describe_person(each, namesakes.get(each.handle))
            for each in handhelds.list_recently_heard(self._journal)
        ]

    def _describe_person(self, handheld: Handheld, namesake_of: str | None) -> dict[str, Any]:
        person = self._desk.find_holder(handheld.handle)
        members: dict[str, Any] = {
            "handle": handheld.handle,
            "name": person.name,
            "known": person.is_known,
            "caveat": person.caveat,
            "keyChanged": handheld.other_key is not None,
            "namesakeOf": namesake_of,
            "heard": None if handheld.heard is None else self._journal.clock.date(handheld.heard),
            "rssi": handheld.rssi,
            "snr": handheld.snr,
            "hops": handheld.hops,
            "battery": handheld.battery,
            "position": None,
        }
        if handheld.latitude is not None:
            members["position"] = {
                "latitude": handheld.latitude,
                "longitude": handheld.longitude,
                "altitude": handheld.altitude,
                "at": handheld.fixed,
                "blurred": (handheld.precision or 0) < PRECISE,
            }
        return members

    def list_doubtful_people(self) -> list[dict[str, Any]]:
        """Return the handhelds that people should check. Each has the fact and the remedy."""
        by_handle = {each.handle: each for each in self._list_doubts()}
        return [
            {**self._describe_person(each, doubt.namesake_of), "notice": doubt.notice}
            for each in (handhelds.list_recently_heard(self._journal) if by_handle else ())
            if (doubt := by_handle.get(each.handle)) is not None
        ]

    def list_notices(self) -> list[str]:
        """Return the notices that people should see."""
        calling = self._desk.unbelieved.list_calls(self._journal.clock.now())
        return [
            *(
                make_distress_notice(self._desk.find_holder(handle), notice)
                for handle, notice in calling
            ),
            *(each.notice for each in self._list_doubts()),
        ]

    def _list_doubts(self) -> list[Doubt]:
        return list_doubts(self._journal, self._settings.people or {})
