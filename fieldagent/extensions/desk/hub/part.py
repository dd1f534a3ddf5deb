"""Descriptions of this extension's parts of the hub."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fieldagent.extensions.desk.hub import (
    alarm_link,
    chain,
    contacts,
    notification,
    outward,
    refusals,
    shifts,
)
from fieldagent.extensions.desk.hub.answer_page import AnswerPage
from fieldagent.extensions.desk.hub.answers import ContactInbox
from fieldagent.extensions.desk.hub.contacts_api import ContactsApi
from fieldagent.extensions.desk.hub.push_api import PushRoutes
from fieldagent.extensions.desk.hub.watch_api import WatchApi
from fieldagent.http.routes import Route
from fieldagent.hub.administration.acts import AdministrationContext
from fieldagent.hub.part import HubCheck, HubPart, PartHost
from fieldagent.hub.store.contract import Db
from fieldagent.page.files import make_file_route
from fieldagent.system.supervisor import Note

_CONSOLE = f"{__package__}.console"
"""Package of the console's scripts, one for each part."""


def _make_routes(host: PartHost) -> Sequence[Route]:
    acts = AdministrationContext(host.store, host.authentication, clock=host.clock)
    return [
        *ContactsApi(acts, host.reach).make_routes(),
        *AnswerPage(host.store, clock=host.clock).make_routes(),
    ]


def _make_push_routes(host: PartHost) -> Sequence[Route]:
    worker = make_file_route("/console/worker.js", _CONSOLE, "worker.js")
    return [*PushRoutes(host).make_routes(), worker]


def _make_watch_routes(host: PartHost) -> Sequence[Route]:
    return WatchApi(host.store, host.authentication, clock=host.clock).make_routes()


async def _notify_contacts(host: PartHost, note_fault: Note) -> None:
    await notification.run(
        host.store,
        host.reach,
        clock=host.clock,
        note_fault=note_fault,
        desk=host.reach.host.desk,
    )


async def _send_outward_messages(host: PartHost, note_fault: Note) -> None:
    await outward.run(host.store, host.reach, clock=host.clock, note_fault=note_fault)


def _make_link(db: Db, sos: int, name: str, message_id: str, now: float) -> str:
    path, _ = alarm_link.make_link(db, sos, name, message_id, now)
    return path


def _read_figures(db: Db, host: PartHost) -> Mapping[str, float]:
    return {"contact_steps_broken": chain.count_broken(db, host.reach.kinds, host.reach.own)}


CONTACTS = HubPart(
    routes=_make_routes,
    tasks={"contacts": _notify_contacts, "messages to addresses": _send_outward_messages},
    make_inbox=lambda host: ContactInbox(host.store, clock=host.clock),
    is_notifying_contacts=True,
    send_to_address=outward.add_outward_item,
    make_answer_link=_make_link,
    read_figures=_read_figures,
    exports={"contacts": contacts.list_alarm_contacts},
    refusals=refusals.__name__,
    console=_CONSOLE,
    console_subjects=("contacts",),
)
PUSH = HubPart(routes=_make_push_routes, console=_CONSOLE)
WATCH = HubPart(
    routes=_make_watch_routes,
    checks=(HubCheck(shifts.compute_next_due, shifts.check_watches),),
    console=_CONSOLE,
)
