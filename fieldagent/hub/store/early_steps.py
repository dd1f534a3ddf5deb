"""The first 13 steps of the hub's tables, and the tables of version 14, which they end in.

`{id}`, `{int}`, `{real}` and `{blob}` are each engine's own types.
"""

from __future__ import annotations

from fieldagent.hub.store.tables import DIRECTORY, EXCHANGE

_IDEMPOTENCY = """
CREATE TABLE idempotency ( -- a caller is a member with a key
    credential {int} NOT NULL REFERENCES credential ON DELETE CASCADE,
    member {int} NOT NULL REFERENCES member ON DELETE CASCADE,
    key TEXT NOT NULL,
    digest {blob} NOT NULL,
    at {real} NOT NULL,
    PRIMARY KEY (credential, member, key)
);
"""
_PUSHED = """
ALTER TABLE idempotency ADD COLUMN request_id TEXT NOT NULL DEFAULT ''; -- of the item
"""

_LEASES = """
CREATE TABLE process ( -- of the hub, that has links
    name TEXT PRIMARY KEY,
    until {real} NOT NULL -- when it is dead, unless it says meanwhile that it lives
);

CREATE TABLE lease ( -- whose IP link it is
    device {int} PRIMARY KEY REFERENCES device ON DELETE CASCADE,
    process TEXT NOT NULL REFERENCES process ON DELETE CASCADE,
    link {int} NOT NULL -- its number in that process
);
"""

_DEAD_LETTERS = """
CREATE TABLE dead_letter ( -- an MO message that could not be used
    id {id},
    imei TEXT NOT NULL DEFAULT '', -- empty is over IP
    device {int} REFERENCES device ON DELETE CASCADE, -- null: nobody had the IMEI
    way TEXT NOT NULL,
    body {blob} NOT NULL,
    reason TEXT NOT NULL,
    received {real} NOT NULL
);
CREATE INDEX dead_letter_by_imei ON dead_letter (imei);

CREATE TABLE dead_letter_tally ( -- since the database began
    one {int} PRIMARY KEY CHECK (one = 1),
    came {int} NOT NULL,
    dropped {int} NOT NULL
);
"""
_KEPT_BESIDE = (
    """
ALTER TABLE device ADD COLUMN key_trouble TEXT NOT NULL DEFAULT '';
ALTER TABLE item ADD COLUMN estimate TEXT NOT NULL DEFAULT '';
"""
    + _DEAD_LETTERS
)
"""From version 2, which lost what it could not use."""

_CALLERS = (
    """
ALTER TABLE attempt RENAME COLUMN address TO who;
ALTER TABLE idempotency RENAME TO idempotency_of_keys;
"""
    + _IDEMPOTENCY
    + """
INSERT INTO idempotency (credential, member, key, digest, at)
    SELECT old.credential, membership.member, old.key, old.digest, old.at
    FROM idempotency_of_keys AS old JOIN credential ON credential.id = old.credential
    JOIN membership ON membership.workspace = credential.workspace;
DROP TABLE idempotency_of_keys;
"""
)
"""From version 1, which did not tell apart who called with one key: a retry of anybody's counts."""


_DIGESTS = """
ALTER TABLE receipt ADD COLUMN digest {blob};
ALTER TABLE arrived ADD COLUMN sos {int} NOT NULL DEFAULT 0;
ALTER TABLE device ADD COLUMN journal {int} NOT NULL DEFAULT 0;
ALTER TABLE device ADD COLUMN relay {int} NOT NULL DEFAULT 0;
ALTER TABLE item ADD COLUMN unauthenticated {int} NOT NULL DEFAULT 0;
UPDATE device SET relay = 1;
"""
"""From version 4, which knew an item by its number alone, and let every device relay."""

_RING_ALERTS = """
CREATE TABLE ring_alert ( -- a modem for which the gateway keeps what nobody has fetched
    device {int} PRIMARY KEY REFERENCES device ON DELETE CASCADE,
    waiting {int} NOT NULL, -- MT messages
    rung {int} NOT NULL, -- how often since the last was taken or fetched
    due {real} NOT NULL,
    until {real} NOT NULL
);
"""
"""From version 5, which left a ring that was missed at that."""


_NEW_LEASES = "DROP TABLE lease;" + _LEASES
"""From version 6, in which each link said every ten seconds that it lives."""


_READABLE = """
ALTER TABLE receipt ADD COLUMN person {int} NOT NULL DEFAULT 0; -- of an SOS they acknowledged
ALTER TABLE webhook ADD COLUMN after {int} NOT NULL DEFAULT 0; -- minutes: of an SOS nobody answers
ALTER TABLE membership ADD COLUMN role TEXT NOT NULL DEFAULT 'member'; -- or dispatcher
ALTER TABLE item ADD COLUMN kind TEXT NOT NULL DEFAULT ''; -- empty: not read yet, of before
ALTER TABLE item ADD COLUMN words TEXT NOT NULL DEFAULT ''; -- that are searched
CREATE INDEX item_to_read ON item (id) WHERE kind = '';
CREATE INDEX item_of_workspace ON item (workspace, id);
CREATE INDEX item_of_sender ON item (workspace, sender, id);
CREATE INDEX item_of_kind ON item (workspace, kind, id);
CREATE INDEX item_sos ON item (workspace, id) WHERE sos = 1;
CREATE INDEX item_pushed ON item (workspace, id) WHERE source_device IS NULL;
CREATE INDEX device_of_workspace ON device (workspace, id);

CREATE TABLE contact ( -- what was heard of a device last; apart: device rows are locked in order
    device {int} PRIMARY KEY REFERENCES device ON DELETE CASCADE,
    at {real} NOT NULL,
    way TEXT NOT NULL, -- ip, satellite, radio (another device brought it)
    version TEXT NOT NULL DEFAULT '',
    latitude {real},
    longitude {real},
    position_at {real}
);

CREATE TABLE sos ( -- an SOS of a device, or the alarm that one has not been heard of
    id {id},
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    item {int} UNIQUE REFERENCES item ON DELETE CASCADE,
    kind TEXT NOT NULL, -- sos, overdue, operator
    state TEXT NOT NULL, -- open, acknowledged, closed
    raised {real} NOT NULL,
    acknowledged {real},
    acknowledged_by {int}, -- a member
    closed {real}
);
CREATE INDEX sos_of_workspace ON sos (workspace, id);
CREATE INDEX sos_by_state ON sos (workspace, state, id);

CREATE TABLE check_in ( -- until when a device is to be heard of
    device {int} PRIMARY KEY REFERENCES device ON DELETE CASCADE,
    every {real}, -- seconds
    by_minute {int}, -- or of the UTC day
    due {real} NOT NULL,
    warned {real}, -- that it is late
    sos {int} -- the alarm
);
CREATE INDEX check_in_due ON check_in (due) WHERE sos IS NULL;

CREATE TABLE session ( -- of the console; in the database, so that any hub serves it
    lookup TEXT PRIMARY KEY, -- SHA-256 of the cookie, hexadecimal
    member {int} NOT NULL REFERENCES member ON DELETE CASCADE,
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    expires {real} NOT NULL
);

CREATE TABLE sos_event ( -- its timeline
    id {id},
    sos {int} NOT NULL REFERENCES sos ON DELETE CASCADE,
    at {real} NOT NULL,
    event TEXT NOT NULL, -- raised, webhook, agent, heard, acknowledged, note, closed
    member {int}, -- who did it, where somebody did
    detail TEXT NOT NULL DEFAULT ''
);
CREATE INDEX sos_event_of ON sos_event (sos, id);
INSERT INTO sos (workspace, device, item, kind, state, raised)
    SELECT item.workspace, item.source_device, item.id, 'sos', 'open', item.accepted FROM item
    JOIN device ON device.id = item.source_device WHERE item.sos = 1 ORDER BY item.id;
UPDATE sos SET state = 'closed', closed = raised WHERE EXISTS (SELECT 1 FROM item
    JOIN receipt ON receipt.device = item.source_device AND receipt.sequence = item.source_sequence
    WHERE item.id = sos.item);
INSERT INTO sos_event (sos, at, event) SELECT id, raised, 'raised' FROM sos ORDER BY id;
INSERT INTO sos_event (sos, at, event, detail)
    SELECT id, closed, 'closed', 'it was confirmed before the hub kept a list' FROM sos
    WHERE state = 'closed' ORDER BY id;
"""
"""From version 7, in which nothing could be read, and nobody acknowledged an SOS."""

_BY_ITEM = """
CREATE INDEX webhook_delivery_of_item ON webhook_delivery (item);
"""
"""From version 8, in which each item that was forgotten looked through all of these: 500 of them
took 11 s where there were 100 000 deliveries, and 0.03 s since."""

_KIT_CHECK_IN = """
ALTER TABLE check_in ADD COLUMN kit_every {real}; -- seconds: what the kit asks for itself
ALTER TABLE contact ADD COLUMN check_in_word {int}; -- the number of what it asked with last
"""
"""From version 9, in which administrators alone asked for a check-in."""

_SESSIONS = """
INSERT INTO credential (kind, workspace, member, lookup, name, created, expires)
    SELECT 'session', workspace, member, lookup, 'console', expires - 43200, expires FROM session;
DROP TABLE session;
"""
"""From version 10, in which who had signed in could push nothing."""

_PACKED_TEXT = """
ALTER TABLE device ADD COLUMN packs_text {int} NOT NULL DEFAULT 0;
    -- whether it has sent packed text over satellite, and so reads it
"""
"""From version 11, which knew plain text alone."""

_LAST_UPDATE = """
ALTER TABLE contact ADD COLUMN last_update TEXT NOT NULL DEFAULT ''; -- how it ended, for people
"""
"""From version 12, in which a kit told of an update as a message, where it told at all."""

_ADMINISTRATORS = """
ALTER TABLE audit ADD COLUMN workspace {int}; -- null: of none
CREATE INDEX audit_of_workspace ON audit (workspace, id) WHERE action <> 'push';
ALTER TABLE member ADD COLUMN password_until {real}; -- of one for the next sign-in alone
"""
_WHOSE_AUDIT = (
    _ADMINISTRATORS
    + """
UPDATE audit SET workspace = (SELECT min(id) FROM workspace)
    WHERE (SELECT count(*) FROM workspace) = 1
    AND NOT EXISTS (SELECT 1 FROM audit AS other WHERE other.action = 'workspace delete');
"""
)
"""From version 13, whose lines belonged to nobody. Where there was one workspace, they are its."""

EARLY_STEPS = {
    1: _CALLERS,
    2: _KEPT_BESIDE,
    3: _PUSHED,
    4: _DIGESTS,
    5: _RING_ALERTS,
    6: _NEW_LEASES,
    7: _READABLE,
    8: _BY_ITEM,
    9: _KIT_CHECK_IN,
    10: _SESSIONS,
    11: _PACKED_TEXT,
    12: _LAST_UPDATE,
    13: _WHOSE_AUDIT,
}
"""By the version that each begins from."""

OF_VERSION_14 = (
    DIRECTORY
    + _IDEMPOTENCY
    + _PUSHED
    + EXCHANGE
    + _LEASES
    + _DEAD_LETTERS
    + _RING_ALERTS
    + _READABLE
    + _BY_ITEM
    + _KIT_CHECK_IN
    + _SESSIONS
    + _PACKED_TEXT
    + _LAST_UPDATE
    + _ADMINISTRATORS
)
