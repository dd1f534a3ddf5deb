"""Steps of the tables from version 35 on; those before are in `schema`."""

from __future__ import annotations

COMMANDS = """
CREATE TABLE command ( -- to a kit (`records.commands`)
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    number {int} NOT NULL,
    verb {int} NOT NULL,
    body {blob} NOT NULL, -- an envelope with its entry
    bearer TEXT NOT NULL, -- by which alone it goes: ip, satellite; empty: either
    given {real} NOT NULL,
    expires {real} NOT NULL,
    satellite_from {real}, -- when it may be paid for; null is never
    not_before {real} NOT NULL DEFAULT 0,
    state TEXT NOT NULL, -- waiting, packed, stored, answered
    reason TEXT NOT NULL DEFAULT '',
    outcome {int},
    answer {blob},
    answered {real},
    way TEXT, -- by which its answer came
    PRIMARY KEY (device, number)
);
CREATE INDEX command_waiting ON command (device, number) WHERE state IN ('waiting', 'packed');
"""
"""From version 35, in which a kit took none."""
