"""Program updates of many kits in waves.

The next wave begins when all kits of the last wave run the new version without errors. The update
stops if a kit rolls back, refuses the update, or does not reconnect in time.

Each kit itself checks whether the program works (docs/how-to/update.md, "What happens during an
update"), and reports the result over its IP link. Only kits of the current wave get the offer.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

from fieldagent.hub.records import audit, kit_report, lease
from fieldagent.hub.store.contract import Db, insert, make_marks, select
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.wording import format_count, sentence
from fieldagent.wire.kit_note import ZIPAPP, OfferReport, ProgramOffer

STATES = ("waiting", "trial", "taken", "refused", "back")
"""States of an offer that a kit reports, with the meanings of `kit_report.STATES`. Before the first
report, the state is `offered`, or `planned` for a kit of a later wave. If the kit does not
reconnect in time, the hub sets the state `late`. If the kit cannot be updated, the hub sets
`left out`."""
UNDER_WAY, DONE, STOPPED = "under way", "done", "stopped"


class Candidate(NamedTuple):
    """A kit that may get an offer."""

    device: int
    name: str
    version: str
    """Version of the kit's agent; empty if the kit never reported a version."""
    installed: str
    disabled: float | None


class _OfferedKitRow(NamedTuple):
    device: int
    name: str
    state: str
    why: str
    since: float | None
    version: str | None
    installed: str | None
    disabled: float | None


class _RunningOffer(NamedTuple):
    number: int
    workspace: int
    version: str
    wave: int
    within: float


def explain_unfit(kit: Candidate) -> str:
    """Return the reason why a kit cannot be updated. The text is empty if the kit can be updated,
    or if the hub does not know yet.
    """
    if kit.disabled is not None:
        return sentence("it is disabled")
    if kit.installed == "package":
        # A kit with Debian packages is updated by apt, from another source and with other keys.
        return sentence(
            "fieldagent was installed as a Debian package: run `sudo fieldagent update` on the kit"
        )
    if kit.installed not in ("", ZIPAPP):
        return sentence(
            "only a zipapp can be replaced, and fieldagent was not installed as a zipapp"
        )
    if kit.version and not kit.installed:
        return sentence(
            "the kit's agent is too old for offered updates: run `fieldagent update` "
            "on the kit this time"
        )
    return ""


def list_candidates(db: Db, workspace: int, now: float) -> list[Candidate]:
    """Return all kits of the workspace: first the linked kits, then the others. In each group, kits
    that were heard recently come first.
    """
    rows = db.execute(
        "SELECT device.id, device.name, coalesce(contact.version, ''),"
        " coalesce(contact.installed, ''), device.disabled FROM device"
        " LEFT JOIN contact ON contact.device = device.id WHERE device.workspace = ?"
        f" ORDER BY {lease.IS_LINKED} DESC, coalesce(contact.at, 0) DESC, device.id",
        workspace,
        now,
    )
    return [Candidate(*row) for row in rows]


class PlannedKit(NamedTuple):
    device: int
    wave: int
    """Number of the wave, from 1. 0 if the kit is left out or already runs the version."""
    state: str
    why: str = ""


def offer(
    db: Db,
    workspace: int,
    version: str,
    url: str,
    kits: Sequence[PlannedKit],
    *,
    within: float,
    now: float,
) -> int:
    """Offer a program, and return the offer's number. The first wave begins immediately. `within`
    is the number of seconds in which a kit must report the new version.
    """
    ((last,),) = db.execute("SELECT coalesce(max(number), 0) FROM update_offer")
    number = max(int(now), int(last) + 1)
    columns = ("number", "workspace", "version", "url", "within", "wave", "state", "made")
    row = (number, workspace, version, url, within, 0, UNDER_WAY, now)
    insert(db, "update_offer", columns, [row])
    rows = [(number, *kit) for kit in kits]
    insert(db, "update_offer_kit", ("offer", "device", "wave", "state", "why"), rows)
    detail = f"{number}: {version} for {format_count(len(kits), 'kit')}, from {url}"
    audit.write_line(db, workspace, audit.ADMINISTRATION, "update offer", detail, now)
    continue_offers(db, now)
    return number


def find_active_offer(db: Db, workspace: int) -> int | None:
    """Return the number of the active offer in a workspace, or None if there is none."""
    open_ = "SELECT number FROM update_offer WHERE workspace = ? AND state = ?"
    rows = db.execute(open_, workspace, UNDER_WAY)
    return int(rows[0][0]) if rows else None


def stop_offer(db: Db, workspace: int, now: float) -> int | None:
    """Stop the active offer. Return its number, or None if there was none."""
    rows = db.execute(
        "UPDATE update_offer SET state = ?, why = 'by hand' WHERE workspace = ? AND state = ?"
        " RETURNING number",
        STOPPED,
        workspace,
        UNDER_WAY,
    )
    if not rows:
        return None
    audit.write_line(
        db, workspace, audit.ADMINISTRATION, "update stop", f"{rows[0][0]}: by hand", now
    )
    return int(rows[0][0])


def list_offers(db: Db, devices: Sequence[int]) -> dict[int, ProgramOffer]:
    """Return the active offers that these devices have not applied yet."""
    rows = db.execute(
        "SELECT kit.device, number, version, url FROM update_offer_kit AS kit"
        " JOIN update_offer ON number = kit.offer"
        f" WHERE kit.device IN ({make_marks(devices)}) AND kit.state IN ('offered', 'waiting')"
        " AND update_offer.state = ?",
        *devices,
        UNDER_WAY,
    )
    return {device: ProgramOffer(*fields) for device, *fields in rows}


def record_report(db: Db, device: int, report: OfferReport, now: float) -> None:
    """Store a kit's report about an offer, and the time of its first report. Ignore a state that is
    not in `STATES`.
    """
    if report.state in STATES:
        db.execute(
            "UPDATE update_offer_kit SET state = ?, why = ?, since = coalesce(since, ?)"
            " WHERE offer = ? AND device = ?",
            report.state,
            report.reason,
            now,
            report.number,
            device,
        )


def compute_next_due(db: Db) -> float:
    """Return 0 if an offer is active, so that `continue_offers` runs in the next round. Otherwise
    return infinity.
    """
    rows = db.execute("SELECT 1 FROM update_offer WHERE state = ? LIMIT 1", UNDER_WAY)
    return 0.0 if rows else inf


def continue_offers(db: Db, now: float) -> list[str]:
    """Continue each active offer: start its next wave, end it, or stop it after a failed kit.
    Return the warnings to log.
    """
    rows = db.execute(
        "SELECT number, workspace, version, wave, within FROM update_offer WHERE state = ?"
        f" ORDER BY number{db.skip_locked()}",
        UNDER_WAY,
    )
    lines = [_continue_offer(db, _RunningOffer(*row), now) for row in rows]
    return [text for text in lines if text]


def _continue_offer(db: Db, offer: _RunningOffer, now: float) -> str:
    while True:
        kits = _read_wave(db, offer, now)
        for kit in kits:
            if kit.state in ("back", "refused", "late"):
                return _stop(db, offer, kit, now)
        if not all(kit.state in ("taken", "left out") for kit in kits):
            return ""
        ((wave,),) = db.execute(
            "SELECT coalesce(min(wave), 0) FROM update_offer_kit WHERE offer = ? AND wave > ?",
            offer.number,
            offer.wave,
        )
        if not wave:
            _end_offer(db, offer, DONE, "", now)
            return ""
        offer = offer._replace(wave=wave)
        _begin(db, offer, now)


def _read_wave(db: Db, offer: _RunningOffer, now: float) -> list[_OfferedKitRow]:
    """Update and return the states of the offer's kits in all waves up to the current wave. The
    list is empty before the first wave.
    """
    rows = db.execute(
        "SELECT kit.device, device.name, kit.state, kit.why, kit.since, contact.version,"
        " contact.installed, device.disabled FROM update_offer_kit AS kit"
        " JOIN device ON device.id = kit.device LEFT JOIN contact ON contact.device = kit.device"
        " WHERE kit.offer = ? AND kit.wave BETWEEN 1 AND ? ORDER BY kit.wave, kit.device",
        offer.number,
        offer.wave,
    )
    return [_update_row(db, offer, _OfferedKitRow(*row), now) for row in rows]


def _update_row(db: Db, offer: _RunningOffer, kit: _OfferedKitRow, now: float) -> _OfferedKitRow:
    state, reason = kit.state, kit.why
    if kit.state == "offered":
        version = kit.version or ""
        # Compare versions only if the kind of installation is known. A kit that connects for the
        # first time has not reported the kind yet.
        candidate = Candidate(
            kit.device, kit.name, version if kit.installed else "", kit.installed or "",
            kit.disabled,
        )  # fmt: skip
        if version == offer.version:
            state, reason = "taken", "it already ran this version"
        elif reason := explain_unfit(candidate):
            state = "left out"
    elif kit.state in ("waiting", "trial") and kit.disabled is not None:
        # The hub ignores reports of a disabled kit, so it never learns the result.
        state, reason = "left out", sentence("it is disabled")
    elif kit.state in ("waiting", "trial") and now - (kit.since or now) > offer.within:
        state, reason = "late", f"it has not come back within {offer.within / 60:g} min"
    if state != kit.state:
        db.execute(
            "UPDATE update_offer_kit SET state = ?, why = ?"
            " WHERE offer = ? AND device = ? AND state = ?",
            state,
            reason,
            offer.number,
            kit.device,
            kit.state,
        )
    return kit._replace(state=state, why=reason)


def _begin(db: Db, offer: _RunningOffer, now: float) -> None:
    db.execute("UPDATE update_offer SET wave = ? WHERE number = ?", offer.wave, offer.number)
    rows = db.execute(
        "UPDATE update_offer_kit SET state = 'offered' WHERE offer = ? AND wave = ?"
        " AND state = 'planned' RETURNING device",
        offer.number,
        offer.wave,
    )
    for (device,) in rows:
        db.announce(kit_report.get_topic(device))
    detail = f"{offer.number}: wave {offer.wave}, {format_count(len(rows), 'kit')}"
    audit.write_line(db, offer.workspace, audit.HUB, "update wave", detail, now)


def _stop(db: Db, offer: _RunningOffer, kit: _OfferedKitRow, now: float) -> str:
    event = {"back": "fell back", "refused": "refused it", "late": "is late"}[kit.state]
    reason = f"{kit.name} {event}: {kit.why}"
    _end_offer(db, offer, STOPPED, reason, now)
    return f"The update to {offer.version} stopped: {reason}; `fieldagent hub update list`"


def _end_offer(db: Db, offer: _RunningOffer, state: str, reason: str, now: float) -> None:
    db.execute(
        "UPDATE update_offer SET state = ?, why = ? WHERE number = ?", state, reason, offer.number
    )
    action = "update stop" if state == STOPPED else "update done"
    detail = f"{offer.number}: {reason}" if reason else str(offer.number)
    audit.write_line(db, offer.workspace, audit.HUB, action, detail, now)


_KITS = "FROM update_offer_kit AS kit WHERE kit.offer = number"
_LISTED = {
    **{name: name for name in ("number", "made", "version", "state", "wave")},
    "waves": f"(SELECT max(kit.wave) {_KITS})",
    "taken": f"(SELECT count(*) {_KITS} AND kit.state = 'taken')",
    "kits": f"(SELECT count(*) {_KITS})",
    "why": "why",
    "url": "url",
}


def list_all(db: Db, workspace: int, limit: int) -> list[dict[str, Any]]:
    """Return the offers, newest first."""
    newest = "FROM update_offer WHERE workspace = ? ORDER BY number DESC LIMIT ?"
    return [
        each | {"made": float(each["made"]), "waves": each["waves"] or 0}
        for each in select(db, _LISTED, newest, workspace, limit)
    ]


def list_kits(db: Db, workspace: int, offer_number: int | None) -> list[dict[str, Any]]:
    """Return the kits of an offer for people. `offer_number` None means the last offer. The list is
    empty if there is no such offer.
    """
    rows = db.execute(
        "SELECT number, version FROM update_offer WHERE workspace = ? AND number >= ?"
        " AND number <= ? ORDER BY number DESC LIMIT 1",
        workspace,
        offer_number or 0,
        offer_number or 2**62,
    )
    if not rows:
        return []
    ((offered_at, version),) = rows
    kit_rows = db.execute(
        "SELECT kit.wave, device.name, kit.state, kit.why, coalesce(contact.version, ''),"
        " contact.at FROM update_offer_kit AS kit JOIN device ON device.id = kit.device"
        " LEFT JOIN contact ON contact.device = device.id WHERE kit.offer = ?"
        " ORDER BY CASE kit.wave WHEN 0 THEN 1 ELSE 0 END, kit.wave, kit.device",
        offered_at,
    )
    names = ("wave", "kit", "state", "why", "runs", "lastContact")
    return [{"offer": version, **dict(zip(names, row, strict=True))} for row in kit_rows]
