"""Sends a program update to a kit.

The hub sends the delta as an item for this kit only, over any channel. The command that applies the
delta waits at the kit until the delta is complete.
"""

from __future__ import annotations

from fieldagent.hub.access.directory import Refused
from fieldagent.hub.field.cost import list_costs
from fieldagent.hub.field.update_offers import Candidate, explain_unfit
from fieldagent.hub.records import ledger
from fieldagent.hub.records.commands import LIFETIME_S
from fieldagent.hub.records.ledger import Posting
from fieldagent.hub.store.contract import Db
from fieldagent.package.package import Data
from fieldagent.package.reading import ITEM_BYTES_MAX, KINDS
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.wording import sentence
from fieldagent.wire.command import VERB_BY_NAME, RemoteCommand
from fieldagent.wire.signed_delta import compute_payload_digest

UPDATE = VERB_BY_NAME["update"]


class DeltaCost(NamedTuple):
    """Cost of the delta over satellite, without the command."""

    parts: int
    bytes: int
    credits: int


def make_command(payload: bytes) -> RemoteCommand:
    """Return the command that applies the update in `payload`, without its proof. Raises Refused if
    the payload is too large for a Package.
    """
    if len(payload) > ITEM_BYTES_MAX:
        raise Refused(
            sentence(
                "the delta has {payload} bytes, and a Package at most {most}: `fieldagent hub"
                " update offer` lets kits with a link fetch it",
                payload=f"{len(payload):,}",
                most=f"{ITEM_BYTES_MAX:,}",
            )
        )
    return RemoteCommand(UPDATE.number, (compute_payload_digest(payload),))


def make_posting(db: Db, device: int, payload: bytes, *, paid: bool, now: float) -> Posting:
    """Return the Package that sends the delta to one kit. If `paid` is True, the Package may go
    over satellite. Raises Refused if the kit cannot apply the update.
    """
    ((name, workspace, member, disabled, version, installed),) = db.execute(
        "SELECT device.name, workspace, member, disabled, coalesce(contact.version, ''),"
        " coalesce(contact.installed, '') FROM device"
        " LEFT JOIN contact ON contact.device = device.id WHERE device.id = ?",
        device,
    )
    if unfit_reason := explain_unfit(Candidate(device, name, version, installed, disabled)):
        raise Refused(
            sentence("{name} cannot receive the delta: {why}", name=name, why=unfit_reason)
        )
    return Posting(
        workspace,
        member,
        Data(payload),
        int(now),
        KINDS["data"].priority,
        target=member,
        device=device,
        over_satellite=paid,
        expires=now + LIFETIME_S,
    )


def compute_cost(db: Db, posting: Posting, now: float) -> DeltaCost | None:
    """Return the cost of sending the delta over satellite. Return None if the kit has no satellite
    modem or the modem cannot carry the delta.
    """
    cost = next(each for each in list_costs(db, posting, now) if each["id"] == posting.device)
    over_satellite = cost["satellite"]
    return (
        None
        if over_satellite is None
        else DeltaCost(over_satellite["parts"], over_satellite["bytes"], over_satellite["credits"])
    )


def add_delta(db: Db, posting: Posting, grace: float, now: float) -> None:
    """Add the posting that sends the delta. The hub pays for satellite messages if the link has
    not delivered the delta after `grace` seconds.
    """
    ledger.add_items(db, [posting], now=now, grace=grace)
