"""The tables of bridges, as `schema` makes them; the types are each engine's own."""

from __future__ import annotations

BRIDGES = """
ALTER TABLE delivery ADD COLUMN unpaid {int} NOT NULL DEFAULT 0; -- it goes over nothing that costs
CREATE TABLE bridge ( -- to somebody else's server, which one process works at
    name TEXT PRIMARY KEY,
    identity TEXT NOT NULL, -- which tells this hub from others there
    place {int} NOT NULL, -- items up to here have been looked at
    holder TEXT NOT NULL DEFAULT '', -- a process
    until {real} NOT NULL DEFAULT 0 -- when it is free, unless that says meanwhile that it lives
);
CREATE TABLE tak_person ( -- somebody at a TAK server, who is a member here without a way in
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    callsign TEXT NOT NULL,
    member {int} NOT NULL UNIQUE REFERENCES member ON DELETE CASCADE,
    uid TEXT NOT NULL, -- of the phone that they were heard by last
    PRIMARY KEY (workspace, callsign)
);
CREATE INDEX tak_person_of_uid ON tak_person (uid);
CREATE TABLE tak_event ( -- an item on its way to a TAK server, or from there
    id {id},
    item {int} REFERENCES item ON DELETE CASCADE, -- null: nothing became of it
    member {int} NOT NULL REFERENCES member ON DELETE CASCADE, -- whose kit it is from, or for
    person {int} REFERENCES member ON DELETE CASCADE, -- the other; null: everybody there
    inward {int} NOT NULL,
    uid TEXT NOT NULL DEFAULT '', -- of their phone
    message_id TEXT NOT NULL,
    state TEXT NOT NULL, -- waiting, sent, delivered, read; over
    attempts {int} NOT NULL DEFAULT 0,
    not_before {real} NOT NULL,
    credits {int} NOT NULL DEFAULT 0, -- that it may have cost
    at {real} NOT NULL,
    UNIQUE (inward, message_id, uid)
);
CREATE INDEX tak_event_of_item ON tak_event (item);
CREATE INDEX tak_event_under_way ON tak_event (at) WHERE state IN ('waiting', 'sent', 'delivered');
CREATE INDEX tak_event_paid ON tak_event (at) WHERE credits > 0;
CREATE TABLE tak_alert ( -- an incident that a TAK server was told of
    sos {int} PRIMARY KEY REFERENCES sos ON DELETE CASCADE,
    cancels {int} NOT NULL DEFAULT 0 -- how often its end was told
);
"""
"""From version 35, in which no bridge was built."""
