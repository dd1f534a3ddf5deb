-- Items and their way from a push or a kit to the kits that store them.

CREATE TABLE item (
    id {id},
    request_id TEXT NOT NULL UNIQUE,
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    sender {int} NOT NULL REFERENCES member ON DELETE CASCADE,
    target {int},
    body {blob} NOT NULL, -- an envelope with one entry
    sos {int} NOT NULL DEFAULT 0, -- 1: an SOS; 2: an alarm of the hub's own
    priority {int} NOT NULL,
    collapse_key {int},
    accepted {real} NOT NULL,
    expires {real},
    source_device {int},
    source_sequence {int},
    unauthenticated {int} NOT NULL DEFAULT 0, -- 1: an SOS with unproved sender
    contact TEXT NOT NULL DEFAULT '',
    estimate TEXT NOT NULL DEFAULT '', -- JSON: the operator's position of the modem
    kind TEXT NOT NULL DEFAULT '', -- message, location, waypoint, data
    words TEXT NOT NULL DEFAULT '', -- text for searches
    incident {int}, -- its row in `sos`
    addressee TEXT NOT NULL DEFAULT '', -- JSON: addressee for people
    team {int}, -- addressed group; 0: no receiver on this hub
    asks {int} NOT NULL DEFAULT 0, -- 1: sender wants a read receipt
    place {int}, -- in the log of its workspace; null: not in it
    revoked {real}, -- time since which the kit of an SOS was revoked
    restored {real} -- time when a kit brought it back; null: was never lost
);
CREATE INDEX item_accepted ON item (accepted);
CREATE INDEX item_collapses ON item (workspace, sender, collapse_key)
    WHERE collapse_key IS NOT NULL;
CREATE INDEX item_of_workspace ON item (workspace, id);
CREATE INDEX item_of_sender ON item (workspace, sender, id);
CREATE INDEX item_of_kind ON item (workspace, kind, id);
CREATE INDEX item_sos ON item (workspace, id) WHERE sos = 1;
CREATE INDEX item_pushed ON item (workspace, id) WHERE source_device IS NULL;
CREATE INDEX item_by_incident ON item (incident, id) WHERE incident IS NOT NULL;
CREATE INDEX item_place ON item (workspace, place) WHERE place IS NOT NULL;
CREATE INDEX item_place_expires ON item (workspace, expires) WHERE place IS NOT NULL;
CREATE INDEX item_restored ON item (id) WHERE restored IS NOT NULL;
CREATE INDEX item_of_target ON item (target, sender) WHERE target IS NOT NULL;

CREATE TABLE newest ( -- newest position of a sender at a kit
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    sender {int} NOT NULL,
    workspace {int} NOT NULL,
    place {int} NOT NULL, -- among the workspace's positions
    item {int} NOT NULL, -- no reference: the item may be deleted earlier
    at {real} NOT NULL, -- time of the position
    PRIMARY KEY (device, sender)
);
CREATE INDEX newest_place ON newest (workspace, place);

CREATE TABLE idempotency ( -- requests of a member with a key
    credential {int} NOT NULL REFERENCES credential ON DELETE CASCADE,
    member {int} NOT NULL REFERENCES member ON DELETE CASCADE,
    key TEXT NOT NULL,
    digest {blob} NOT NULL,
    at {real} NOT NULL,
    request_id TEXT NOT NULL DEFAULT '', -- of the item
    PRIMARY KEY (credential, member, key)
);
CREATE INDEX idempotency_at ON idempotency (at);

CREATE TABLE delivery ( -- one item to one device
    item {int} NOT NULL REFERENCES item ON DELETE CASCADE,
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    sequence {int} NOT NULL, -- its number on air to this device
    state TEXT NOT NULL, -- waiting, packed, sent, stored, expired, collapsed
    way TEXT,
    not_before {real} NOT NULL DEFAULT 0,
    satellite_from {real}, -- time from which it may cost credits; null: never
    reason TEXT NOT NULL DEFAULT '',
    ended {real},
    rank {int} NOT NULL DEFAULT 0, -- lowest rank goes first
    expires {real}, -- same as the item's
    again {int} NOT NULL DEFAULT 0, -- number of repetitions
    unpaid {int} NOT NULL DEFAULT 0, -- 1: only free bearers
    from_log {int} NOT NULL DEFAULT 0, -- 1: made from the log at a contact of its device
    PRIMARY KEY (item, device)
);
CREATE UNIQUE INDEX delivery_by_sequence ON delivery (device, sequence);
CREATE INDEX delivery_waiting ON delivery (device, rank, sequence)
    WHERE state IN ('waiting', 'packed', 'sent');
CREATE INDEX delivery_expires ON delivery (expires) WHERE state IN ('waiting', 'packed');
CREATE INDEX delivery_at_once ON delivery (device, item) WHERE from_log = 0;
CREATE INDEX delivery_due ON delivery (device, satellite_from)
    WHERE state = 'waiting' AND satellite_from IS NOT NULL;

CREATE TABLE receipt ( -- for a device: `member` has stored its Package
    id {id},
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    sequence {int} NOT NULL,
    member {int} NOT NULL,
    at {real} NOT NULL,
    urgent {int} NOT NULL DEFAULT 0,
    state TEXT NOT NULL, -- waiting, sent
    sent {real},
    digest {blob}, -- of the Package: the number may have been reused
    says TEXT NOT NULL DEFAULT '', -- news about the incident `sequence`
    by_name TEXT NOT NULL DEFAULT '',
    text TEXT NOT NULL DEFAULT '',
    rung {int} NOT NULL DEFAULT 0, -- stage of `package.delivery`
    again {int} NOT NULL DEFAULT 0,
    about {int} NOT NULL DEFAULT 0 -- the device of the incident
);
CREATE INDEX receipt_waiting ON receipt (device, id) WHERE state = 'waiting';
CREATE INDEX receipt_at ON receipt (at);
CREATE INDEX receipt_sent ON receipt (device, sequence) WHERE state = 'sent';

CREATE TABLE reached ( -- stages of an item beyond the disk of a member's kit
    item {int} NOT NULL REFERENCES item ON DELETE CASCADE,
    member {int} NOT NULL, -- 0: no member; `text` has the name
    rung {int} NOT NULL,
    text TEXT NOT NULL,
    at {real} NOT NULL,
    PRIMARY KEY (item, member, rung, text)
);

CREATE TABLE introduced ( -- members that a device knows by number
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    member {int} NOT NULL,
    digest {blob} NOT NULL,
    PRIMARY KEY (device, member)
);

CREATE TABLE arrived ( -- items from a device, to recognise repetitions
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    origin {int} NOT NULL, -- 1: unproved sender
    sequence {int} NOT NULL,
    digest {blob} NOT NULL,
    at {real} NOT NULL,
    sos {int} NOT NULL DEFAULT 0,
    PRIMARY KEY (device, origin, sequence, digest)
);
CREATE INDEX arrived_at ON arrived (at) WHERE sos = 0;

CREATE TABLE slice (
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    origin {int} NOT NULL,
    sequence {int} NOT NULL,
    count {int} NOT NULL,
    position {int} NOT NULL,
    slice {blob} NOT NULL,
    at {real} NOT NULL,
    asked {real} NOT NULL DEFAULT 0, -- time of the request for missing slices
    PRIMARY KEY (device, origin, sequence, count, position)
);
CREATE INDEX slice_at ON slice (at);

CREATE TABLE fragment_sent (
    item {int} NOT NULL REFERENCES item ON DELETE CASCADE,
    device {int} NOT NULL,
    count {int} NOT NULL,
    position {int} NOT NULL,
    PRIMARY KEY (item, device, count, position)
);

CREATE TABLE outward ( -- an item for an external address, sent by a service
    id {id},
    item {int} NOT NULL REFERENCES item ON DELETE CASCADE,
    address TEXT NOT NULL,
    text TEXT NOT NULL DEFAULT '', -- news for the writer about an answer; empty: the item
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

CREATE TABLE dead_letter ( -- an MO message that could not be used
    id {id},
    imei TEXT NOT NULL DEFAULT '', -- empty: came over IP
    device {int} REFERENCES device ON DELETE CASCADE, -- null: unknown IMEI
    way TEXT NOT NULL,
    body {blob} NOT NULL,
    reason TEXT NOT NULL,
    received {real} NOT NULL
);
CREATE INDEX dead_letter_by_imei ON dead_letter (imei);

CREATE TABLE dead_letter_tally ( -- since the database was made
    one {int} PRIMARY KEY CHECK (one = 1),
    came {int} NOT NULL,
    dropped {int} NOT NULL
);

CREATE TABLE process ( -- a process of the hub with links
    name TEXT PRIMARY KEY,
    until {real} NOT NULL -- end of life, if not renewed
);

CREATE TABLE lease ( -- holder of a device's IP link
    device {int} PRIMARY KEY REFERENCES device ON DELETE CASCADE,
    process TEXT NOT NULL REFERENCES process ON DELETE CASCADE,
    link {int} NOT NULL -- its number in that process
);

CREATE TABLE worker ( -- a process of the hub, and the row that proves it can write
    number {int} PRIMARY KEY,
    proved {real} NOT NULL,
    filler {blob} NOT NULL -- occupies space, to detect a full disk
);

CREATE TABLE earshot ( -- a kit in radio range of a carrier, which brings it items
    carrier {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    hops {int} NOT NULL, -- transmissions between the two
    PRIMARY KEY (carrier, device)
);
CREATE INDEX earshot_device ON earshot (device);

CREATE TABLE parcel ( -- an item that a carrier got for another kit
    item {int} NOT NULL REFERENCES item ON DELETE CASCADE,
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    carrier {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    journal {int} NOT NULL, -- of the carrier
    given {real} NOT NULL,
    PRIMARY KEY (item, device, carrier)
);
CREATE INDEX parcel_device ON parcel (device);
CREATE INDEX parcel_carrier ON parcel (carrier);
