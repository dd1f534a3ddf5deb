"""The hub's tables: who there is, and what they exchange. Times are Unix seconds, whether-or-not is
0 or 1. What came to them later stands in `schema`, as steps from one version to the next.

`{id}`, `{int}`, `{real}` and `{blob}` are each engine's own types.
"""

from __future__ import annotations

DIRECTORY = """
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

EXCHANGE = """
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
