"""Settings that the hub offers to kits, and reports of kits about themselves.

The kit's operator has signed the settings. A kit reports the result of these settings, the result
of its last update, and the signal of its modems.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from fieldagent.hub.records.stored_entry import load_stored_objects
from fieldagent.hub.store.contract import Db, make_marks
from fieldagent.wire.kit_note import KitReport, SettingsOffer
from fieldagent.wire.settings_change import SettingsChange

INSTALLED_MAX = 20
"""Largest number of characters that the hub stores of an installed version."""
STATES = ("waiting", "trial", "taken", "refused", "back")
"""States that a kit reports for offered settings. Waiting: root's systemd unit has not processed
the settings yet. Trial: they are on trial. Taken: they are in force. Refused: they were rejected.
Back: they were rolled back."""

SETTINGS = (
    "(SELECT number || ' ' || state || CASE why WHEN '' THEN '' ELSE ': ' || why END"
    " FROM settings_offer WHERE settings_offer.device = device.id)"
)
"""SQL on a device: number, state and reason of the settings that were offered last, for people."""


def get_topic(device: int) -> str:
    """Return the topic that is announced when the hub has new settings or names for a device."""
    return f"offers {device}"


def store_report(db: Db, device: int, report: KitReport, now: float) -> None:
    """Store the report of a device. Call `contact.record_contact` first."""
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
            report.settings.reason,
            device,
            report.settings.number,
        )


def list_modems(text: str, at: float | None) -> list[dict[str, Any]]:
    """Return the modems as in the API, from the columns of `contact`. Empty if the kit reported
    none.
    """
    return [{**each, "at": at} for each in load_stored_objects(text, "the modems of a kit")]


def offer_settings(db: Db, device: int, change: SettingsChange, signature: str, now: float) -> None:
    """Offer settings to a device. A new offer replaces the earlier offer."""
    db.execute("DELETE FROM settings_offer WHERE device = ?", device)
    db.execute(
        "INSERT INTO settings_offer (device, number, text, signature, offered, state)"
        " VALUES (?, ?, ?, ?, ?, 'offered')",
        device,
        change.number,
        change.format_text(),
        signature,
        now,
    )
    db.announce(get_topic(device))


def list_offers(db: Db, devices: Sequence[int]) -> dict[int, SettingsOffer]:
    """Return the offers that these devices have not applied yet."""
    rows = db.execute(
        "SELECT device, text, signature FROM settings_offer"
        f" WHERE state IN ('offered', 'waiting') AND device IN ({make_marks(devices)})",
        *devices,
    )
    return {device: SettingsOffer(text, signature) for device, text, signature in rows}


def read_last_number(db: Db, device: int) -> int:
    """Return the number of the last offered settings, or 0 if there is no offer."""
    rows = db.execute("SELECT number FROM settings_offer WHERE device = ?", device)
    return int(rows[0][0]) if rows else 0


def touch_directory(db: Db, workspace: int) -> None:
    """Record a change in a workspace's directory. Linked kits get the change now, other kits when
    they connect.
    """
    db.execute("UPDATE workspace SET directory = directory + 1 WHERE id = ?", workspace)
    for (device,) in db.execute(
        "SELECT lease.device FROM lease JOIN device ON device.id = lease.device"
        " WHERE device.workspace = ?",
        workspace,
    ):
        db.announce(get_topic(device))
