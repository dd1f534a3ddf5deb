"""The hub's tables, for both engines. Times are Unix seconds, whether-or-not is 0 or 1.

`{id}`, `{int}`, `{real}` and `{blob}` are each engine's own types.
"""

from __future__ import annotations

from collections.abc import Mapping

from fieldagent.store.schema import Schema

VERSION = 14

_DIRECTORY = """
CREATE TABLE workspace (id {id}, name TEXT NOT NULL UNIQUE, created {real} NOT NULL);

CREATE TABLE member ( -- its id is the userId of the push API, and the origin number on air
    id {id},
    type TEXT NOT NULL,
    name TEXT NOT NULL,
    email TEXT NOT NULL DEFAULT '',
    password TEXT,
    created {real} NOT NULL,
    disabled {real}
);
CREATE UNIQUE INDEX member_by_email ON member (email) WHERE email <> '';

CREATE TABLE membership (
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    member {int} NOT NULL REFERENCES member ON DELETE CASCADE,
    over_satellite {int} NOT NULL DEFAULT 0, -- what others send reaches it over satellite too
    may_push {int} NOT NULL DEFAULT 1,
    PRIMARY KEY (workspace, member)
);

CREATE TABLE device (
    id {id},
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    member {int} NOT NULL REFERENCES member ON DELETE CASCADE,
    name TEXT NOT NULL,
    imei TEXT UNIQUE,
    link_token TEXT UNIQUE, -- SHA-256, hexadecimal
    air_key {blob},
    operator TEXT, -- directip or rockblock
    credits_per_day {int},
    sos_reserve {int} NOT NULL DEFAULT 0,
    next_sequence {int} NOT NULL DEFAULT 1,
    created {real} NOT NULL,
    disabled {real},
    key_trouble TEXT NOT NULL DEFAULT '', -- what its last message showed to be wrong with its key
    relay {int} NOT NULL DEFAULT 0, -- whether it may bring what others of the workspace sent
    journal {int} NOT NULL DEFAULT 0, -- its number; 0 is of an agent that does not tell it
    UNIQUE (workspace, name)
);
CREATE INDEX device_of_member ON device (member, workspace);

CREATE TABLE credential (
    id {id},
    kind TEXT NOT NULL, -- key, token, or session of the console
    workspace {int} REFERENCES workspace ON DELETE CASCADE, -- of a key and a session
    member {int} REFERENCES member ON DELETE CASCADE, -- of a token and a session
    lookup TEXT NOT NULL UNIQUE, -- SHA-256 of the secret, hexadecimal
    name TEXT NOT NULL,
    scopes TEXT NOT NULL DEFAULT '', -- kinds that a key may push
    per_minute {int} NOT NULL DEFAULT 60,
    burst {int} NOT NULL DEFAULT 60,
    tat {real} NOT NULL DEFAULT 0,
    created {real} NOT NULL,
    expires {real},
    revoked {real}
);

CREATE TABLE attempt ( -- of failed calls: by an address, a /64 of IPv6, an account
    who TEXT PRIMARY KEY,
    tat {real} NOT NULL
);

CREATE TABLE audit (
    id {id},
    at {real} NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    detail TEXT NOT NULL DEFAULT ''
);
"""

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

_EXCHANGE = """
CREATE TABLE item (
    id {id},
    request_id TEXT NOT NULL UNIQUE,
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    sender {int} NOT NULL REFERENCES member ON DELETE CASCADE,
    target {int},
    body {blob} NOT NULL, -- an envelope with one entry
    sos {int} NOT NULL DEFAULT 0,
    priority {int} NOT NULL,
    collapse_key {int},
    accepted {real} NOT NULL,
    expires {real},
    source_device {int},
    source_sequence {int},
    unauthenticated {int} NOT NULL DEFAULT 0, -- an SOS that nobody has proved to be its sender's
    contact TEXT NOT NULL DEFAULT '',
    estimate TEXT NOT NULL DEFAULT '' -- JSON of where the operator saw the modem
);
CREATE INDEX item_accepted ON item (accepted);
CREATE INDEX item_expires ON item (expires) WHERE expires IS NOT NULL;
CREATE INDEX item_collapses ON item (workspace, sender, collapse_key)
    WHERE collapse_key IS NOT NULL;

CREATE TABLE delivery ( -- one item to one device
    item {int} NOT NULL REFERENCES item ON DELETE CASCADE,
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    sequence {int} NOT NULL, -- its number on air to this device
    state TEXT NOT NULL, -- waiting, packed, sent, stored, expired, collapsed
    way TEXT,
    not_before {real} NOT NULL DEFAULT 0,
    satellite_from {real}, -- when it may be paid for; null is never
    reason TEXT NOT NULL DEFAULT '',
    ended {real},
    PRIMARY KEY (item, device)
);
CREATE UNIQUE INDEX delivery_by_sequence ON delivery (device, sequence);
CREATE INDEX delivery_waiting ON delivery (device, item)
    WHERE state IN ('waiting', 'packed', 'sent');
CREATE INDEX delivery_due ON delivery (satellite_from, device) WHERE state = 'waiting';

CREATE TABLE mobile_terminated ( -- an MT message: on disk before the operator is called
    id {id},
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    body {blob} NOT NULL,
    pieces TEXT NOT NULL,
    urgent {int} NOT NULL,
    state TEXT NOT NULL, -- ready, calling, doubtful
    tries {int} NOT NULL DEFAULT 0,
    not_before {real} NOT NULL DEFAULT 0,
    claimed_until {real} NOT NULL DEFAULT 0,
    created {real} NOT NULL
);
CREATE INDEX mobile_terminated_of_device ON mobile_terminated (device, id);

CREATE TABLE fragment_sent (
    item {int} NOT NULL REFERENCES item ON DELETE CASCADE,
    device {int} NOT NULL,
    count {int} NOT NULL,
    position {int} NOT NULL,
    PRIMARY KEY (item, device, count, position)
);

CREATE TABLE introduced ( -- whom a device knows by number
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    member {int} NOT NULL,
    digest {blob} NOT NULL,
    PRIMARY KEY (device, member)
);

CREATE TABLE receipt ( -- for a device: `member` has stored its Package
    id {id},
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    sequence {int} NOT NULL,
    member {int} NOT NULL,
    at {real} NOT NULL,
    urgent {int} NOT NULL DEFAULT 0,
    state TEXT NOT NULL, -- waiting, sent
    sent {real},
    digest {blob} -- of the Package: its number may have been another's
);
CREATE INDEX receipt_waiting ON receipt (device, id) WHERE state = 'waiting';

CREATE TABLE spent (
    day TEXT NOT NULL,
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    bytes {int} NOT NULL,
    credits {int} NOT NULL,
    PRIMARY KEY (day, device)
);

CREATE TABLE arrived ( -- what a device sent, to recognise it when it comes again
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    origin {int} NOT NULL,
    sequence {int} NOT NULL,
    digest {blob} NOT NULL,
    at {real} NOT NULL,
    sos {int} NOT NULL DEFAULT 0,
    PRIMARY KEY (device, origin, sequence, digest)
);

CREATE TABLE slice (
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    origin {int} NOT NULL,
    sequence {int} NOT NULL,
    count {int} NOT NULL,
    position {int} NOT NULL,
    slice {blob} NOT NULL,
    at {real} NOT NULL,
    asked {real} NOT NULL DEFAULT 0, -- when those that are missing were asked for
    PRIMARY KEY (device, origin, sequence, count, position)
);


CREATE TABLE webhook (
    id {id},
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    url TEXT NOT NULL,
    secrets TEXT NOT NULL DEFAULT '',
    username TEXT,
    password TEXT,
    headers TEXT NOT NULL DEFAULT '{{}}',
    created {real} NOT NULL,
    failing_since {real},
    disabled {real},
    reason TEXT NOT NULL DEFAULT ''
);

CREATE TABLE webhook_delivery (
    webhook {int} NOT NULL REFERENCES webhook ON DELETE CASCADE,
    item {int} NOT NULL REFERENCES item ON DELETE CASCADE,
    state TEXT NOT NULL, -- waiting, handed, dead
    attempts {int} NOT NULL DEFAULT 0,
    not_before {real} NOT NULL DEFAULT 0,
    claimed_until {real} NOT NULL DEFAULT 0,
    reason TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (webhook, item)
);
CREATE INDEX webhook_delivery_waiting ON webhook_delivery (webhook, item)
    WHERE state = 'waiting';
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
    kind TEXT NOT NULL, -- sos, overdue
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


def hub_schema(types: Mapping[str, str]) -> Schema:
    tables = (
        _DIRECTORY
        + _IDEMPOTENCY
        + _PUSHED
        + _EXCHANGE
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
    steps = {
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
    of_engine = {at: step.format_map(types) for at, step in steps.items()}
    return Schema(VERSION, tables.format_map(types), of_engine)
