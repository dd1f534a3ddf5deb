"""Steps of the tables from version 35 on; those before are in `schema`, and say how the types are
named."""

from __future__ import annotations

_STEPS = """
ALTER TABLE webhook ADD COLUMN steps {int} NOT NULL DEFAULT 0; -- 1: is told how far each item comes
ALTER TABLE webhook_delivery ADD COLUMN steps {int} NOT NULL DEFAULT 0; -- that its item has come
ALTER TABLE webhook_delivery ADD COLUMN told {int} NOT NULL DEFAULT -1; -- of those; -1: nothing yet
ALTER TABLE webhook_delivery ADD COLUMN telling {int} NOT NULL DEFAULT 0; -- in the post under way
ALTER TABLE sos ADD COLUMN asked {int} REFERENCES member ON DELETE SET NULL; -- to take it over
CREATE TABLE operator_balance ( -- what is left of an account, as its operator told last
    operator TEXT NOT NULL,
    plan TEXT NOT NULL,
    remaining {real} NOT NULL, -- in the plan's own unit
    at {real} NOT NULL,
    PRIMARY KEY (operator, plan)
);
"""
"""A webhook was told of an item once, and not how far it came, and nobody knew what is left of an
account before it was spent."""

_COMMANDS = """
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
"""A kit took none."""

_BRIDGES = """
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
"""No bridge was built."""

_DOWN_BY_RADIO = """
CREATE TABLE earshot ( -- a kit that another hears by radio, and brings what the hub has for it
    carrier {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    hops {int} NOT NULL, -- transmissions from the one to the other
    PRIMARY KEY (carrier, device)
);
CREATE INDEX earshot_device ON earshot (device);
CREATE TABLE parcel ( -- an item that a carrier was given for another kit
    item {int} NOT NULL REFERENCES item ON DELETE CASCADE,
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    carrier {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    journal {int} NOT NULL, -- the carrier's
    given {real} NOT NULL,
    PRIMARY KEY (item, device, carrier)
);
CREATE INDEX parcel_device ON parcel (device);
CREATE INDEX parcel_carrier ON parcel (carrier);
"""
"""What the hub had for a kit waited for a way of that kit's own."""

_TRACKERS = """
CREATE TABLE tracker ( -- a device that is a tracker of somebody else's, and no kit
    device {int} PRIMARY KEY REFERENCES device ON DELETE CASCADE,
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    ident TEXT NOT NULL, -- what it calls itself
    every {int} NOT NULL, -- seconds between two positions that people are told of
    alarm TEXT NOT NULL DEFAULT '', -- that its last report had
    at {real} NOT NULL DEFAULT 0, -- of its newest position
    told {real} NOT NULL DEFAULT 0, -- of the newest that people were told of
    UNIQUE (workspace, ident)
);
"""
"""Who carries no kit was not there."""

_SHIFTS = """
CREATE TABLE shift ( -- of a dispatcher on watch at the desk
    id {id},
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    member {int} NOT NULL REFERENCES member ON DELETE CASCADE,
    begun {real} NOT NULL,
    until {real} NOT NULL, -- when it ends by itself
    ended {real},
    heir {int} REFERENCES member ON DELETE SET NULL, -- who is asked to take it
    note TEXT NOT NULL DEFAULT '' -- what they must know
);
CREATE INDEX shift_of_workspace ON shift (workspace, id);
CREATE TABLE watch_hours ( -- in which somebody is to be on watch
    workspace {int} PRIMARY KEY REFERENCES workspace ON DELETE CASCADE,
    begins {int} NOT NULL, -- minutes of a UTC day
    ends {int} NOT NULL,
    alone {real}, -- since when nobody is
    alarm {int}, -- that was raised for it
    due {real} NOT NULL -- when to look again
);
"""
"""Nobody said who was on watch."""

_WORKSPACE_LOG = """
ALTER TABLE workspace ADD COLUMN posted {int} NOT NULL DEFAULT 0; -- the last place in its log
ALTER TABLE item ADD COLUMN place {int}; -- in the log of its workspace; null: it is in none
CREATE INDEX item_place ON item (workspace, place) WHERE place IS NOT NULL;
CREATE INDEX item_place_expires ON item (workspace, expires) WHERE place IS NOT NULL;
ALTER TABLE device ADD COLUMN place {int} NOT NULL DEFAULT 0; -- up to which it was given the log
ALTER TABLE delivery ADD COLUMN from_log {int} NOT NULL DEFAULT 0; -- made as its device came
CREATE INDEX delivery_at_once ON delivery (device, item) WHERE from_log = 0;
DROP INDEX delivery_due;
CREATE INDEX delivery_due ON delivery (device, satellite_from)
    WHERE state = 'waiting' AND satellite_from IS NOT NULL;
"""
"""What a kit sent became a row for each other kit as it came."""

_TAK_SERVER = """
CREATE TABLE tak_certificate ( -- of a user's phone, for the hub's own TAK server
    serial TEXT PRIMARY KEY, -- in hexadecimal
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    member {int} NOT NULL REFERENCES member ON DELETE CASCADE,
    made {real} NOT NULL,
    expires {real} NOT NULL,
    revoked {real},
    uid TEXT NOT NULL DEFAULT '', -- of the phone that has it, once it has said so
    seen {real} -- when that came last
);
CREATE INDEX tak_certificate_of_member ON tak_certificate (member);
CREATE INDEX tak_certificate_of_uid ON tak_certificate (uid);
"""
"""The hub was at TAK servers of others alone."""

_REVOCATION = """
ALTER TABLE device ADD COLUMN revoked {real}; -- since when; null: it is not
ALTER TABLE device ADD COLUMN revoked_why TEXT NOT NULL DEFAULT '';
ALTER TABLE item ADD COLUMN revoked {real}; -- since when the kit of an SOS was
"""
"""What a stolen kit sent was its user's word, or nothing at all."""

_REBUILD = """
ALTER TABLE item ADD COLUMN restored {real}; -- when a kit brought it back; null: it was not lost
CREATE INDEX item_restored ON item (id) WHERE restored IS NOT NULL;
CREATE TABLE rebuild ( -- what a kit gives back to a database that was restored
    device {int} PRIMARY KEY REFERENCES device ON DELETE CASCADE,
    since {real} NOT NULL,
    state TEXT NOT NULL, -- open, done
    direction {int} NOT NULL DEFAULT 0, -- 0: what it sent, 1: what it got
    place {int} NOT NULL DEFAULT 0, -- of the kit's, up to which it has been asked
    listed {int} NOT NULL DEFAULT 0, -- items that it has
    missing {int} NOT NULL DEFAULT 0,
    back {int} NOT NULL DEFAULT 0,
    gone {int} NOT NULL DEFAULT 0,
    held {blob}, -- what it said as it was found out
    ended {real}
);
"""
"""What came after the copy that a database was restored from was lost."""

FROM_35 = (
    f"{_STEPS}{_COMMANDS}{_BRIDGES}{_DOWN_BY_RADIO}{_TRACKERS}{_SHIFTS}{_WORKSPACE_LOG}"
    f"{_TAK_SERVER}{_REVOCATION}{_REBUILD}"
)

_RADIO_KEY = """
CREATE TABLE radio_key ( -- which the kits of a workspace are to have
    workspace {int} PRIMARY KEY REFERENCES workspace ON DELETE CASCADE,
    key {blob} NOT NULL,
    step {int} NOT NULL, -- 1 to 3, as a kit takes them
    began {real} NOT NULL,
    stepped {real} NOT NULL,
    ended {real}, -- since when all have it alone
    bearer TEXT NOT NULL -- as a command's
);
CREATE TABLE radio_key_kit ( -- how far a kit has come with it
    device {int} PRIMARY KEY REFERENCES device ON DELETE CASCADE,
    step {int} NOT NULL DEFAULT 0,
    asked {int} NOT NULL DEFAULT 0, -- for which step last
    number {int} NOT NULL DEFAULT 0, -- by which command
    given {real} NOT NULL DEFAULT 0,
    outcome {int}, -- of that; null: it has not answered
    said TEXT NOT NULL DEFAULT '',
    left_out {int} NOT NULL DEFAULT 0, -- 1: nobody waits for it
    at {real} -- when it answered last
);
ALTER TABLE command ADD COLUMN carrier {int}; -- a kit that is to bring it down by radio
ALTER TABLE command ADD COLUMN journal {int}; -- that one's
ALTER TABLE command ADD COLUMN carried {real};
"""
"""The radio-key of a group was changed by hand on each kit, and no neighbour brought a command."""

_TAK_ENROLMENT = """
CREATE TABLE tak_invitation ( -- to fetch a phone's certificate
    token TEXT PRIMARY KEY, -- SHA-256, in hexadecimal
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    member {int} NOT NULL REFERENCES member ON DELETE CASCADE,
    expires {real} NOT NULL,
    key TEXT NOT NULL DEFAULT '', -- SHA-256 of that which has come with it
    serial TEXT NOT NULL DEFAULT '' -- of what was signed for that
);
CREATE INDEX tak_invitation_of_member ON tak_invitation (member);
"""
"""A phone was given a file, with the key that the hub had made for it."""

_FENCES = """
CREATE TABLE fence ( -- a shape on the map that kits come into, or go out of
    id {id},
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    name TEXT NOT NULL,
    shape TEXT NOT NULL, -- JSON
    tells TEXT NOT NULL, -- enter, leave, both
    named {int} NOT NULL DEFAULT 0, -- 1: it is for the kits in fence_kit alone
    team {int} REFERENCES team ON DELETE SET NULL, -- it is for kits of its users; null: of all
    created {real} NOT NULL
);
CREATE INDEX fence_of_workspace ON fence (workspace, id);
CREATE TABLE fence_kit (
    fence {int} NOT NULL REFERENCES fence ON DELETE CASCADE,
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    PRIMARY KEY (fence, device)
);
CREATE INDEX fence_kit_of_device ON fence_kit (device);
CREATE TABLE fence_standing ( -- where a kit stands to a fence, by its positions
    fence {int} NOT NULL REFERENCES fence ON DELETE CASCADE,
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    inside {int}, -- by the newest position that was clear; null: there was none
    clear {real} NOT NULL DEFAULT 0, -- the time of that one, by its kit
    newest {real} NOT NULL DEFAULT 0, -- of the newest one, clear or not
    alarm {int}, -- the last incident about it
    PRIMARY KEY (fence, device)
);
CREATE INDEX fence_standing_of_device ON fence_standing (device);
"""
"""Nobody was told that a kit had come or gone."""

_ROUTES = """
CREATE TABLE route ( -- a kit is to be at a place by a time
    id {id},
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    name TEXT NOT NULL, -- of the place
    shape TEXT NOT NULL, -- JSON
    due {real} NOT NULL, -- by when
    margin {int} NOT NULL, -- seconds after that until it is overdue
    created {real} NOT NULL,
    arrived {real}, -- the time of the position that was within the place, by its kit
    alarm {int}, -- the incident that it is overdue
    ended {real}, -- by arrival or by a person
    ended_by TEXT NOT NULL DEFAULT '',
    why TEXT NOT NULL DEFAULT ''
);
CREATE INDEX route_of_workspace ON route (workspace, id);
CREATE INDEX route_under_way ON route (device) WHERE ended IS NULL;
"""
"""A check-in was due wherever the kit was."""

_QUIET = """
ALTER TABLE workspace ADD COLUMN quiet TEXT NOT NULL DEFAULT ''; -- hours; empty: none
ALTER TABLE alarm_contact ADD COLUMN quiet TEXT NOT NULL DEFAULT ''; -- empty: as the workspace
ALTER TABLE alarm_message ADD COLUMN held {int} NOT NULL DEFAULT 0; -- 1: it waited for the morning
"""
"""Every alarm was told at any hour."""

_LANGUAGE = """
ALTER TABLE alarm_contact ADD COLUMN language TEXT NOT NULL DEFAULT 'en'; -- it is told in
"""

_CONDITION = """
CREATE TABLE kit_condition ( -- how a kit is, as it told last
    device {int} PRIMARY KEY REFERENCES device ON DELETE CASCADE,
    at {real} NOT NULL, -- when its status came
    way TEXT NOT NULL, -- as of command.way
    status {blob} NOT NULL, -- as it answers the command of that name
    about TEXT NOT NULL DEFAULT '', -- JSON: what it tells over its link alone; empty: nothing yet
    about_at {real}
);
"""
"""Each kit was asked by itself."""

_MQTT = """
ALTER TABLE bridge ADD COLUMN happened {int} NOT NULL DEFAULT 0; -- to incidents, as `place`
CREATE TABLE mqtt_item ( -- whose way a broker is told of
    item {int} PRIMARY KEY REFERENCES item ON DELETE CASCADE,
    topic TEXT NOT NULL,
    steps {int} NOT NULL DEFAULT 0, -- of its way, that the broker has
    at {real} NOT NULL
);
CREATE TABLE mqtt_command ( -- that a broker has brought
    sender TEXT NOT NULL,
    key TEXT NOT NULL, -- its own, or one that we gave it
    digest {blob} NOT NULL, -- of its body
    outcome TEXT NOT NULL, -- JSON: what its sender is told
    credits {int} NOT NULL DEFAULT 0, -- that it may cost
    at {real} NOT NULL,
    PRIMARY KEY (sender, key)
);
CREATE INDEX mqtt_command_at ON mqtt_command (at);
"""
"""The hub was at no MQTT broker."""

FROM_36 = f"{_RADIO_KEY}{_TAK_ENROLMENT}{_FENCES}{_ROUTES}{_QUIET}{_LANGUAGE}{_CONDITION}{_MQTT}"

_ALONG_INDEXES = """
CREATE INDEX receipt_sent ON receipt (device, sequence) WHERE state = 'sent';
CREATE INDEX item_of_target ON item (target, sender) WHERE target IS NOT NULL;
"""
"""All receipts were looked through for those of one device, and all items for those to a user."""

FROM_37 = _ALONG_INDEXES
