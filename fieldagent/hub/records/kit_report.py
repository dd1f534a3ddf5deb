"""What the hub has for kits beside messages, and what they tell of themselves: settings that their
operator has signed, what came of those, how the last update ended, how its modems hear."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from fieldagent.hub.records.stored_entry import stored_objects
from fieldagent.hub.store.contract import Db, marks
from fieldagent.wire.kit_note import KitReport, SettingsOffer
from fieldagent.wire.settings_change import SettingsChange

INSTALLED_MAX = 20
"""Characters."""
STATES = ("waiting", "trial", "taken", "refused", "back")
"""What a kit tells of settings that were offered: they wait there for root's unit, are on trial, in
force, were never put in place, or were taken back."""

SETTINGS = (
    "(SELECT number || ' ' || state || CASE why WHEN '' THEN '' ELSE ': ' || why END"
    " FROM settings_offer WHERE settings_offer.device = device.id)"
)
"""Of a device, for people: number, state and reason of what was offered last."""


def topic(device: int) -> str:
    """Return what is announced where there is something new for it."""
    return f"offers {device}"


def note(db: Db, device: int, report: KitReport, now: float) -> None:
    """Note what a device tells of itself that was heard of (`contact.note`)."""
    if report.modems:
        text = json.dumps([asdict(each) for each in report.modems])
        db.execute(
            "UPDATE contact SET modems = ?, modems_at = ? WHERE device = ?", text, now, device
        )
    installed = report.installed
    db.execute(
        "UPDATE contact SET installed = ? WHERE device = ? AND installed <> ?",
        installed[:INSTALLED_MAX],
        device,
        installed,
    )
    if report.update is not None:
        db.execute(
            "UPDATE contact SET last_update = ? WHERE device = ?", str(report.update), device
        )
    if report.settings is not None and report.settings.state in STATES:
        db.execute(
            "UPDATE settings_offer SET state = ?, why = ? WHERE device = ? AND number = ?",
            report.settings.state,
            report.settings.why,
            device,
            report.settings.number,
        )


def modems(text: str, at: float | None) -> list[dict[str, Any]]:
    """Return the modems as the API tells them, from the columns of `contact`; none where the kit
    told nothing."""
    return [{**each, "at": at} for each in stored_objects(text, "the modems of a kit")]


def offer(db: Db, device: int, change: SettingsChange, signature: str, now: float) -> None:
    """Offer settings, in place of what was offered before."""
    db.execute("DELETE FROM settings_offer WHERE device = ?", device)
    db.execute(
        "INSERT INTO settings_offer (device, number, text, signature, offered, state)"
        " VALUES (?, ?, ?, ?, ?, 'offered')",
        device,
        change.number,
        change.text(),
        signature,
        now,
    )
    db.announce(topic(device))


def offers(db: Db, devices: Sequence[int]) -> dict[int, SettingsOffer]:
    """Return those that these have not taken yet."""
    rows = db.execute(
        "SELECT device, text, signature FROM settings_offer"
        f" WHERE state IN ('offered', 'waiting') AND device IN ({marks(devices)})",
        *devices,
    )
    return {device: SettingsOffer(text, signature) for device, text, signature in rows}


def last_number(db: Db, device: int) -> int:
    """Return the last number of what was offered; 0 where nothing was."""
    rows = db.execute("SELECT number FROM settings_offer WHERE device = ?", device)
    return int(rows[0][0]) if rows else 0


def touch_directory(db: Db, workspace: int) -> None:
    """Note that who there is in a workspace has changed: kits that are linked are told now, others
    when they are."""
    db.execute("UPDATE workspace SET directory = directory + 1 WHERE id = ?", workspace)
    for (device,) in db.execute(
        "SELECT lease.device FROM lease JOIN device ON device.id = lease.device"
        " WHERE device.workspace = ?",
        workspace,
    ):
        db.announce(topic(device))
