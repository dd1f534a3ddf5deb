"""How the hub's tables are made, and brought up from those of an earlier version.

`{id}`, `{int}`, `{real}` and `{blob}` are each engine's own types.
"""

from __future__ import annotations

from collections.abc import Mapping

from fieldagent.hub.store.early_steps import EARLY_STEPS, OF_VERSION_14
from fieldagent.hub.store.later_steps import FROM_35, FROM_36, FROM_37
from fieldagent.store.schema import Schema

VERSION = 38

_MUCH = """
ALTER TABLE delivery ADD COLUMN rank {int} NOT NULL DEFAULT 0; -- of what waits the least goes first
ALTER TABLE delivery ADD COLUMN expires {real}; -- as its item's
UPDATE delivery SET rank = (SELECT -priority FROM item WHERE id = item),
    expires = (SELECT item.expires FROM item WHERE id = item)
    WHERE state IN ('waiting', 'packed', 'sent');
DROP INDEX delivery_waiting;
CREATE INDEX delivery_waiting ON delivery (device, rank, sequence)
    WHERE state IN ('waiting', 'packed', 'sent');
DROP INDEX delivery_due;
CREATE INDEX delivery_due ON delivery (device, satellite_from) WHERE state = 'waiting';
DROP INDEX item_expires;
CREATE INDEX delivery_expires ON delivery (expires) WHERE state IN ('waiting', 'packed');

ALTER TABLE webhook_delivery ADD COLUMN sender {int} NOT NULL DEFAULT 0; -- of the item
UPDATE webhook_delivery SET sender = (SELECT item.sender FROM item WHERE id = item)
    WHERE state <> 'handed';
DROP INDEX webhook_delivery_waiting;
CREATE INDEX webhook_delivery_waiting ON webhook_delivery (webhook, sender, item)
    WHERE state = 'waiting';
CREATE INDEX webhook_delivery_dead ON webhook_delivery (webhook, item) WHERE state = 'dead';

CREATE INDEX arrived_at ON arrived (at) WHERE sos = 0;
CREATE INDEX idempotency_at ON idempotency (at);
CREATE INDEX slice_at ON slice (at);
CREATE INDEX receipt_at ON receipt (at);
"""
"""From version 14, in which a million items were looked through every 5 s for those that expire,
and a webhook with 50 000 to catch up with for minutes before each post."""

_SETTINGS_OFFER = """
CREATE TABLE settings_offer ( -- what a kit is to set, signed by its operator
    device {int} PRIMARY KEY REFERENCES device ON DELETE CASCADE,
    number {int} NOT NULL, -- rises
    text TEXT NOT NULL,
    signature TEXT NOT NULL,
    offered {real} NOT NULL,
    state TEXT NOT NULL, -- offered, waiting (on the kit), trial, taken, refused, back
    why TEXT NOT NULL DEFAULT ''
);
"""
"""From version 15, in which settings were set on the kit alone."""


_UPDATE_OFFERS = """
CREATE TABLE update_offer ( -- a program for many kits, in waves
    number {int} PRIMARY KEY, -- rises
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    version TEXT NOT NULL,
    url TEXT NOT NULL,
    within {real} NOT NULL, -- seconds in which a kit that has begun is to be back
    wave {int} NOT NULL, -- that is told now, and all before
    state TEXT NOT NULL, -- under way, done, stopped
    why TEXT NOT NULL DEFAULT '',
    made {real} NOT NULL
);
CREATE TABLE update_offer_kit (
    offer {int} NOT NULL REFERENCES update_offer ON DELETE CASCADE,
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    wave {int} NOT NULL, -- from 1; 0 of one that is not told
    state TEXT NOT NULL, -- planned, offered, waiting (on the kit), trial, taken, refused, back …
    why TEXT NOT NULL DEFAULT '',
    since {real}, -- that it has begun
    PRIMARY KEY (offer, device)
);
CREATE INDEX update_offer_kit_of_device ON update_offer_kit (device);
ALTER TABLE contact ADD COLUMN installed TEXT NOT NULL DEFAULT ''; -- how its program is
"""
"""From version 16, in which a program was brought to each kit by hand."""

_MODEMS = """
ALTER TABLE contact ADD COLUMN modems TEXT NOT NULL DEFAULT ''; -- JSON: how they hear, batteries
ALTER TABLE contact ADD COLUMN modems_at {real};
"""
"""From version 17, in which no kit told of its modems."""

_TROUBLE = """
ALTER TABLE mobile_terminated ADD COLUMN trouble TEXT NOT NULL DEFAULT '';
    -- what its last call failed for: message, device, account, gateway
ALTER TABLE mobile_terminated ADD COLUMN code TEXT NOT NULL DEFAULT ''; -- the operator's
ALTER TABLE mobile_terminated ADD COLUMN reason TEXT NOT NULL DEFAULT '';
CREATE TABLE operator_trouble ( -- with an operator's account
    operator TEXT NOT NULL,
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    alarm {int}, -- its number among the SOS
    PRIMARY KEY (operator, workspace)
);
UPDATE delivery SET satellite_from = 0, reason = '' WHERE state = 'waiting'
    AND satellite_from IS NULL AND reason <> '';
"""
"""From version 18, in which what an operator refused never went over satellite again."""

_SIGNING_KEYS = """
CREATE TABLE signing_key (name TEXT PRIMARY KEY, key {blob} NOT NULL); -- what it signs for
"""
"""From version 19, in which no browser was known again."""

_PASSKEYS = """
CREATE TABLE passkey (
    id {id},
    member {int} NOT NULL REFERENCES member ON DELETE CASCADE,
    credential {blob} NOT NULL UNIQUE,
    public_key {blob} NOT NULL, -- COSE
    used_times {int} NOT NULL, -- as its device counts; 0 where it does not
    name TEXT NOT NULL,
    created {real} NOT NULL,
    used {real}
);
CREATE INDEX passkey_of_member ON passkey (member);
"""
"""From version 20, in which a password was the only way in."""

_IMEI_CLAIMS = """
CREATE TABLE imei_claim ( -- of an IMEI that a device of another workspace has
    device {int} PRIMARY KEY REFERENCES device ON DELETE CASCADE,
    imei TEXT NOT NULL,
    at {real} NOT NULL
);
CREATE INDEX imei_claim_of_imei ON imei_claim (imei);
"""
"""From version 21, in which an IMEI was whose who came first."""


_INCIDENTS = """
ALTER TABLE sos ADD COLUMN number {int}; -- by which its kit names it; NULL of an alarm
CREATE UNIQUE INDEX sos_by_number ON sos (device, number);
ALTER TABLE sos RENAME COLUMN acknowledged TO seen;
ALTER TABLE sos RENAME COLUMN acknowledged_by TO seen_by;
UPDATE sos SET state = 'seen' WHERE state = 'acknowledged';
UPDATE sos_event SET event = 'seen' WHERE event = 'acknowledged';
ALTER TABLE item ADD COLUMN incident {int}; -- the row of `sos` that it belongs to
CREATE INDEX item_by_incident ON item (incident, id) WHERE incident IS NOT NULL;
ALTER TABLE receipt DROP COLUMN person;
ALTER TABLE receipt ADD COLUMN says TEXT NOT NULL DEFAULT ''; -- of the incident `sequence`
ALTER TABLE receipt ADD COLUMN by_name TEXT NOT NULL DEFAULT '';
ALTER TABLE receipt ADD COLUMN text TEXT NOT NULL DEFAULT '';
"""
"""From version 22, in which each item of an SOS was one by itself."""

_ALARM_CONTACTS = """
CREATE TABLE alarm_contact ( -- who is told of an SOS beside the console: a person, a browser
    id {id},
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    member {int} REFERENCES member ON DELETE CASCADE, -- whose browser it is
    kind TEXT NOT NULL, -- email, apprise, push
    name TEXT NOT NULL,
    address TEXT NOT NULL, -- of mail, of apprise, or a browser's subscription as JSON
    after {int} NOT NULL, -- minutes without an answer; 0: at once
    created {real} NOT NULL,
    failing_since {real},
    reason TEXT NOT NULL DEFAULT '' -- of the last failure
);
CREATE INDEX alarm_contact_of_workspace ON alarm_contact (workspace);
CREATE TABLE alarm_message ( -- to one of them, about an SOS
    id {id},
    sos {int} NOT NULL REFERENCES sos ON DELETE CASCADE,
    contact {int} NOT NULL REFERENCES alarm_contact ON DELETE CASCADE,
    message_id TEXT NOT NULL, -- like no other's
    why TEXT NOT NULL, -- raised, escalated
    state TEXT NOT NULL, -- waiting, handed over, failed, not needed
    not_before {real} NOT NULL,
    claimed_until {real} NOT NULL DEFAULT 0,
    attempts {int} NOT NULL DEFAULT 0
);
CREATE INDEX alarm_message_due ON alarm_message (not_before) WHERE state = 'waiting';
CREATE INDEX alarm_message_of_sos ON alarm_message (sos);
CREATE TABLE alarm_link ( -- by which one who was told acknowledges it, once
    id {id},
    sos {int} NOT NULL REFERENCES sos ON DELETE CASCADE,
    name TEXT NOT NULL, -- of who was told
    message_id TEXT NOT NULL UNIQUE, -- what told them
    expires {real} NOT NULL,
    used {real}
);
CREATE INDEX alarm_link_of_sos ON alarm_link (sos);
CREATE TABLE console_stream ( -- a console that is open, and rings
    process TEXT NOT NULL REFERENCES process ON DELETE CASCADE,
    stream {int} NOT NULL, -- its number in that process
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    member {int} NOT NULL REFERENCES member ON DELETE CASCADE,
    until {real}, -- of one that has ended: it may be back by then
    PRIMARY KEY (process, stream)
);
CREATE INDEX console_stream_of_workspace ON console_stream (workspace);
ALTER TABLE sos ADD COLUMN seen_as TEXT NOT NULL DEFAULT ''; -- of a contact, who is no member
ALTER TABLE sos ADD COLUMN unreached {real}; -- since when nobody was there to be told
ALTER TABLE sos_event ADD COLUMN name TEXT NOT NULL DEFAULT ''; -- of a contact
"""
"""From version 23, which told of an SOS at the console and to webhooks alone."""

_WORKERS = """
CREATE TABLE worker ( -- a process of the hub, and the row by which it proves that it can write
    number {int} PRIMARY KEY,
    proved {real} NOT NULL,
    filler {blob} NOT NULL -- takes room where there may be none
);
"""
"""From version 24, in which a hub that could read was taken for one that can write."""

_CLAIMED_BY = """
ALTER TABLE webhook_delivery ADD COLUMN claimed_by {int} NOT NULL DEFAULT 0; -- a worker
ALTER TABLE alarm_message ADD COLUMN claimed_by {int} NOT NULL DEFAULT 0;
ALTER TABLE mobile_terminated ADD COLUMN claimed_by {int} NOT NULL DEFAULT 0;
"""
"""From version 25, in which the claims of a hub that was killed ran out after a minute or two."""

_BATCHES = """
ALTER TABLE webhook ADD COLUMN batch {int} NOT NULL DEFAULT 0; -- items in an array; 0: none
ALTER TABLE webhook ADD COLUMN quiet_until {real} NOT NULL DEFAULT 0; -- as Retry-After asked
ALTER TABLE webhook_delivery ADD COLUMN batch {int} NOT NULL DEFAULT 0; -- its first item
"""
"""From version 26, which posted each item by itself."""

_OPERATORS_OWN = """
ALTER TABLE device ADD COLUMN modem TEXT NOT NULL DEFAULT ''; -- as its operator told: sbd, imt
ALTER TABLE device ADD COLUMN thing TEXT NOT NULL DEFAULT ''; -- what its operator calls it
CREATE TABLE operator_message ( -- an MO message that an operator brought, by its own id
    operator TEXT NOT NULL,
    id TEXT NOT NULL,
    at {real} NOT NULL,
    PRIMARY KEY (operator, id)
);
CREATE INDEX operator_message_by_age ON operator_message (at);
CREATE TABLE operator_fetched ( -- until when MO messages were fetched that it kept
    operator TEXT PRIMARY KEY,
    until {real} NOT NULL
);
CREATE TABLE handed_over ( -- an MT message that an operator has, by its own id
    operator TEXT NOT NULL,
    id TEXT NOT NULL,
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    at {real} NOT NULL,
    state TEXT NOT NULL, -- in the operator's words
    ended {int} NOT NULL, -- it is in the modem
    PRIMARY KEY (operator, id)
);
CREATE INDEX handed_over_of_device ON handed_over (device, at);
"""
"""From version 28, in which every modem was one of SBD that its IMEI names."""


_PEOPLE = """
CREATE TABLE team ( -- a group of users, who are told of something together
    id {id},
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    name TEXT NOT NULL,
    over_satellite {int} NOT NULL DEFAULT 0, -- what kits send to it reaches it over satellite too
    created {real} NOT NULL,
    UNIQUE (workspace, name)
);
CREATE TABLE team_member (
    team {int} NOT NULL REFERENCES team ON DELETE CASCADE,
    member {int} NOT NULL REFERENCES member ON DELETE CASCADE,
    PRIMARY KEY (team, member)
);
CREATE INDEX team_member_of ON team_member (member, team);
CREATE TABLE handle ( -- a user's own radio, by the id that it has on its air
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    handle TEXT NOT NULL,
    member {int} NOT NULL REFERENCES member ON DELETE CASCADE,
    PRIMARY KEY (workspace, handle)
);
ALTER TABLE workspace ADD COLUMN directory {int} NOT NULL DEFAULT 1; -- its version, for kits
ALTER TABLE item ADD COLUMN addressee TEXT NOT NULL DEFAULT ''; -- JSON: for whom, in words
ALTER TABLE item ADD COLUMN team {int}; -- the group that it is for; 0: for nobody here
ALTER TABLE item ADD COLUMN asks {int} NOT NULL DEFAULT 0; -- when a person has read it
ALTER TABLE receipt ADD COLUMN rung {int} NOT NULL DEFAULT 0; -- of `package.reach`
CREATE TABLE outward ( -- an item for an address, which a service brings there
    id {id},
    item {int} NOT NULL REFERENCES item ON DELETE CASCADE,
    address TEXT NOT NULL,
    text TEXT NOT NULL DEFAULT '', -- what its writer is told of an answer; empty of the item itself
    message_id TEXT NOT NULL UNIQUE,
    state TEXT NOT NULL, -- waiting, handed over, failed
    attempts {int} NOT NULL DEFAULT 0,
    not_before {real} NOT NULL,
    claimed_until {real} NOT NULL DEFAULT 0,
    claimed_by {int} NOT NULL DEFAULT 0
);
CREATE INDEX outward_waiting ON outward (not_before) WHERE state = 'waiting';
CREATE INDEX outward_of_item ON outward (item);
CREATE INDEX outward_of_address ON outward (address, item);
CREATE TABLE reached ( -- how far an item has come with a member, beyond the disk of their kit
    item {int} NOT NULL REFERENCES item ON DELETE CASCADE,
    member {int} NOT NULL, -- 0: somebody who is no member, whom `text` names
    rung {int} NOT NULL,
    text TEXT NOT NULL,
    at {real} NOT NULL,
    PRIMARY KEY (item, member, rung, text)
);
"""
"""From version 27, in which what a kit sent was for everybody."""


_TELEPHONES = """
ALTER TABLE alarm_contact ADD COLUMN tries {int} NOT NULL DEFAULT 1; -- until somebody answers
ALTER TABLE alarm_contact ADD COLUMN every {int} NOT NULL DEFAULT 5; -- minutes between two tries
ALTER TABLE alarm_contact ADD COLUMN about TEXT NOT NULL DEFAULT 'all'; -- all, sos, alarms
ALTER TABLE alarm_message ADD COLUMN round {int} NOT NULL DEFAULT 1; -- which of the tries
ALTER TABLE alarm_message ADD COLUMN text TEXT NOT NULL DEFAULT ''; -- of a reply
ALTER TABLE alarm_message ADD COLUMN reached TEXT NOT NULL DEFAULT ''; -- delivered, failed: as told
CREATE INDEX alarm_message_by_id ON alarm_message (message_id);
ALTER TABLE alarm_link ADD COLUMN contact {int}; -- who was told
ALTER TABLE alarm_link ADD COLUMN code TEXT NOT NULL DEFAULT ''; -- that an answer proves it by
CREATE TABLE contact_answer ( -- what came back, once for each identity that a service gives it
    id {id},
    kind TEXT NOT NULL, -- of contact
    service_id TEXT NOT NULL,
    at {real} NOT NULL,
    sender TEXT NOT NULL, -- the address it says it is from
    outcome TEXT NOT NULL,
    UNIQUE (kind, service_id)
);
CREATE INDEX contact_answer_of_sender ON contact_answer (kind, sender, at);
CREATE INDEX contact_answer_at ON contact_answer (at);
"""
"""From version 29, which told contacts once, and heard nothing of them but by a link."""


_MT_COPIES = """
ALTER TABLE mobile_terminated ADD COLUMN receipts TEXT NOT NULL DEFAULT '[]'; -- that are in it
ALTER TABLE delivery ADD COLUMN again {int} NOT NULL DEFAULT 0; -- how often it went once more
ALTER TABLE receipt ADD COLUMN again {int} NOT NULL DEFAULT 0;
CREATE TABLE mt_copy ( -- an MT message that an operator has taken, until its kit has confirmed it
    id {id},
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    at {real} NOT NULL,
    size {int} NOT NULL, -- bytes
    guard {int} NOT NULL, -- by which the modem checks it
    items TEXT NOT NULL, -- JSON
    receipts TEXT NOT NULL,
    operator_id TEXT NOT NULL DEFAULT '',
    arrived {real} -- when the operator told that the modem has it
);
CREATE INDEX mt_copy_of_device ON mt_copy (device, at);
"""
"""From version 30, in which what a kit could not read was lost."""

_USAGE = """
CREATE TABLE mo_session ( -- of a modem, as its operator brought it
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    session TEXT NOT NULL, -- the operator's name for it
    day TEXT NOT NULL,
    bytes {int} NOT NULL,
    credits {int} NOT NULL,
    PRIMARY KEY (device, session)
);
CREATE INDEX mo_session_by_day ON mo_session (day, device);
CREATE TABLE operator_count ( -- what an operator has counted
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    day TEXT NOT NULL,
    operator TEXT NOT NULL,
    messages {int} NOT NULL,
    credits {int} NOT NULL,
    bytes {int} NOT NULL,
    unknown TEXT NOT NULL, -- JSON: sessions that did not come here
    PRIMARY KEY (device, day)
);
"""
"""From version 31, in which nobody knew whether the bill agrees."""

_KIT_SMS = """
CREATE TABLE kit_sms ( -- a kit that writes by SMS
    device {int} PRIMARY KEY REFERENCES device ON DELETE CASCADE,
    number TEXT NOT NULL, -- that its last frame came from
    kind TEXT NOT NULL, -- of contact: by which service
    at {real} NOT NULL, -- when that was
    seen TEXT NOT NULL DEFAULT '', -- tags of its last frames, hexadecimal
    owed TEXT NOT NULL DEFAULT '', -- those that it is to be told are here
    tag TEXT NOT NULL DEFAULT '', -- of what went to it last and it has not acknowledged
    load TEXT NOT NULL DEFAULT '', -- what is in that: JSON; empty: nothing but acknowledgements
    text TEXT NOT NULL DEFAULT '', -- of that SMS
    copies {int} NOT NULL DEFAULT 0, -- of it, handed to the service
    attempts {int} NOT NULL DEFAULT 0, -- that the service refused, in a row
    day TEXT NOT NULL DEFAULT '',
    today {int} NOT NULL DEFAULT 0, -- SMS to it on that day
    not_before {real} NOT NULL,
    claimed_until {real} NOT NULL DEFAULT 0,
    claimed_by {int} NOT NULL DEFAULT 0
);
"""
"""From version 32, in which kits sent no SMS."""

_WAITS = """
ALTER TABLE alarm_contact RENAME COLUMN after TO wait; -- seconds without an answer; 0: at once
ALTER TABLE alarm_contact RENAME COLUMN every TO pause; -- seconds between two tries
UPDATE alarm_contact SET wait = wait * 60, pause = pause * 60;
"""
"""From version 33, in which both were minutes."""

_CARRIED_DOWN = """
ALTER TABLE receipt ADD COLUMN about {int} NOT NULL DEFAULT 0; -- the device whose incident it is
CREATE TABLE sos_carrier ( -- a neighbour's device that brought something of it
    sos {int} NOT NULL REFERENCES sos ON DELETE CASCADE,
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    PRIMARY KEY (sos, device)
);
CREATE INDEX sos_carrier_device ON sos_carrier (device);
"""
"""From version 34, in which a word about an incident went to its own kit alone."""

_SINCE_14 = (
    _MUCH,
    _SETTINGS_OFFER,
    _UPDATE_OFFERS,
    _MODEMS,
    _TROUBLE,
    _SIGNING_KEYS,
    _PASSKEYS,
    _IMEI_CLAIMS,
    _INCIDENTS,
    _ALARM_CONTACTS,
    _WORKERS,
    _CLAIMED_BY,
    _BATCHES,
    _PEOPLE,
    _OPERATORS_OWN,
    _TELEPHONES,
    _MT_COPIES,
    _USAGE,
    _KIT_SMS,
    _WAITS,
    _CARRIED_DOWN,
    FROM_35,
    FROM_36,
    FROM_37,
)
"""New tables are made by these steps, too."""


def hub_schema(types: Mapping[str, str]) -> Schema:
    tables = OF_VERSION_14 + "".join(_SINCE_14)
    steps = {**EARLY_STEPS, **dict(enumerate(_SINCE_14, 14))}
    of_engine = {at: step.format_map(types) for at, step in steps.items()}
    return Schema(VERSION, tables.format_map(types), of_engine)
