-- Items, and their deliveries from pushes and kits to the kits that store them.

CREATE TABLE item ( -- item that a program has pushed, a kit has sent, or the hub has created
    id {id},
    request_id TEXT NOT NULL UNIQUE,
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    sender {int} NOT NULL REFERENCES member ON DELETE CASCADE,
    target {int}, -- addressed member, or NULL
    body {blob} NOT NULL, -- envelope with one entry
    sos {int} NOT NULL DEFAULT 0, -- 1 for an SOS, 2 for an alarm of the hub, 0 for any other item
    priority {int} NOT NULL,
    collapse_key {int},
    accepted {real} NOT NULL,
    expires {real},
    source_device {int}, -- device that sent the item, or that the item is about, or NULL
    source_sequence {int}, -- number that the kit gave the item, or NULL
    unauthenticated {int} NOT NULL DEFAULT 0, -- 1 if the sender is not authenticated
    contact TEXT NOT NULL DEFAULT '', -- JSON with contact data of the author, or empty
    estimate TEXT NOT NULL DEFAULT '', -- JSON with the operator's position of the modem, or empty
    kind TEXT NOT NULL DEFAULT '', -- name of the kind in the API, such as message or location
    words TEXT NOT NULL DEFAULT '', -- text for searches, case-folded
    incident {int}, -- incident in `sos` to which the item belongs, or NULL
    addressee TEXT NOT NULL DEFAULT '', -- JSON that describes the addressee to people, or empty
    team {int}, -- addressed group, 0 for a group without a member on this hub, or NULL
    asks {int} NOT NULL DEFAULT 0, -- 1 if the sender wants a read receipt
    place {int}, -- place in the log of the workspace, NULL if the item is not in the log
    revoked {real}, -- time when the kit of an SOS was revoked, or NULL
    restored {real} -- time when a kit returned the lost item, NULL if it was not lost
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

CREATE TABLE newest ( -- newest position that a device has sent for a person
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    sender {int} NOT NULL,
    workspace {int} NOT NULL,
    place {int} NOT NULL, -- place among the positions of the workspace
    item {int} NOT NULL, -- item with the position. No reference: the item may be deleted earlier
    at {real} NOT NULL, -- time of the position
    PRIMARY KEY (device, sender)
);
CREATE INDEX newest_place ON newest (workspace, place);

CREATE TABLE idempotency ( -- request of a member with an Idempotency-Key
    credential {int} NOT NULL REFERENCES credential ON DELETE CASCADE, -- API key
    member {int} NOT NULL REFERENCES member ON DELETE CASCADE,
    key TEXT NOT NULL,
    digest {blob} NOT NULL, -- digest of the request
    at {real} NOT NULL,
    request_id TEXT NOT NULL DEFAULT '', -- requestId of the pushed item, or id of a new object
    PRIMARY KEY (credential, member, key)
);
CREATE INDEX idempotency_at ON idempotency (at);

CREATE TABLE delivery ( -- delivery of one item to one device
    item {int} NOT NULL REFERENCES item ON DELETE CASCADE,
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    sequence {int} NOT NULL, -- number of the item on the air to this device
    state TEXT NOT NULL, -- waiting, packed, sent, stored, expired, collapsed
    way TEXT, -- bearer over which the item was sent, or NULL
    not_before {real} NOT NULL DEFAULT 0,
    satellite_from {real}, -- time from which the delivery may cost credits, NULL for never
    reason TEXT NOT NULL DEFAULT '',
    ended {real},
    rank {int} NOT NULL DEFAULT 0, -- negative priority. The lowest rank goes first
    expires {real}, -- same time as in `item`
    again {int} NOT NULL DEFAULT 0, -- number of times that the item was queued again
    unpaid {int} NOT NULL DEFAULT 0, -- 1 if only free bearers may deliver the item
    from_log {int} NOT NULL DEFAULT 0, -- 1 if the row was created from the log of the workspace
    PRIMARY KEY (item, device)
);
CREATE UNIQUE INDEX delivery_by_sequence ON delivery (device, sequence);
CREATE INDEX delivery_waiting ON delivery (device, rank, sequence)
    WHERE state IN ('waiting', 'packed', 'sent');
CREATE INDEX delivery_expires ON delivery (expires) WHERE state IN ('waiting', 'packed');
CREATE INDEX delivery_at_once ON delivery (device, item) WHERE from_log = 0;
CREATE INDEX delivery_due ON delivery (device, satellite_from)
    WHERE state = 'waiting' AND satellite_from IS NOT NULL;

CREATE TABLE receipt ( -- receipt or incident update that the hub must send to a device
    id {id},
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    sequence {int} NOT NULL, -- number of the Package, or of the incident in an update
    member {int} NOT NULL, -- member who has reached the stage, 0 for the hub or a service
    at {real} NOT NULL,
    urgent {int} NOT NULL DEFAULT 0, -- 1 if the hub may pay for a separate satellite message
    state TEXT NOT NULL, -- waiting, sent
    sent {real},
    digest {blob}, -- digest of the Package, because its number may have been reused
    says TEXT NOT NULL DEFAULT '', -- state of the incident in an update, empty for a receipt
    by_name TEXT NOT NULL DEFAULT '', -- author of the update, or empty
    text TEXT NOT NULL DEFAULT '', -- text of the update or the stage, or empty
    rung {int} NOT NULL DEFAULT 0, -- Stage of `package.delivery`
    again {int} NOT NULL DEFAULT 0, -- number of times that the row was queued again
    about {int} NOT NULL DEFAULT 0 -- device of the incident, 0 for the receiving device itself
);
CREATE INDEX receipt_waiting ON receipt (device, id) WHERE state = 'waiting';
CREATE INDEX receipt_at ON receipt (at);
CREATE INDEX receipt_sent ON receipt (device, sequence) WHERE state = 'sent';

CREATE TABLE reached ( -- stage that an item has reached with a person, other than storage by a kit
    item {int} NOT NULL REFERENCES item ON DELETE CASCADE,
    member {int} NOT NULL, -- member who has reached the stage, 0 for a person who is not a member
    rung {int} NOT NULL, -- Stage of `package.delivery`
    text TEXT NOT NULL,
    at {real} NOT NULL,
    PRIMARY KEY (item, member, rung, text)
);

CREATE TABLE introduced ( -- member whose name and number a device knows
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    member {int} NOT NULL,
    digest {blob} NOT NULL, -- digest of the introduction
    PRIMARY KEY (device, member)
);

CREATE TABLE arrived ( -- item from a device, to recognise repetitions
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    origin {int} NOT NULL, -- 1 if the sender is not authenticated
    sequence {int} NOT NULL, -- number that the kit gave the item
    digest {blob} NOT NULL,
    at {real} NOT NULL,
    sos {int} NOT NULL DEFAULT 0, -- 1 for an SOS
    PRIMARY KEY (device, origin, sequence, digest)
);
CREATE INDEX arrived_at ON arrived (at) WHERE sos = 0;

CREATE TABLE slice ( -- fragment of an incomplete item from a device
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    origin {int} NOT NULL, -- 1 if the sender is not authenticated
    sequence {int} NOT NULL,
    count {int} NOT NULL, -- number of fragments of the item
    position {int} NOT NULL,
    slice {blob} NOT NULL, -- content of the fragment
    at {real} NOT NULL,
    asked {real} NOT NULL DEFAULT 0, -- time of the last request for missing fragments, 0 if none
    PRIMARY KEY (device, origin, sequence, count, position)
);
CREATE INDEX slice_at ON slice (at);

CREATE TABLE fragment_sent ( -- fragment that the satellite operator has accepted
    item {int} NOT NULL REFERENCES item ON DELETE CASCADE,
    device {int} NOT NULL,
    count {int} NOT NULL,
    position {int} NOT NULL,
    PRIMARY KEY (item, device, count, position)
);

CREATE TABLE outward ( -- item or reply that a service sends to an external address
    id {id},
    item {int} NOT NULL REFERENCES item ON DELETE CASCADE,
    address TEXT NOT NULL,
    text TEXT NOT NULL DEFAULT '', -- reply to an answer, empty for the item itself
    message_id TEXT NOT NULL UNIQUE,
    state TEXT NOT NULL, -- waiting, handed over, failed
    attempts {int} NOT NULL DEFAULT 0,
    not_before {real} NOT NULL,
    claimed_until {real} NOT NULL DEFAULT 0,
    claimed_by {int} NOT NULL DEFAULT 0 -- number in `worker`
);
CREATE INDEX outward_waiting ON outward (not_before) WHERE state = 'waiting';
CREATE INDEX outward_of_item ON outward (item);
CREATE INDEX outward_of_address ON outward (address, item);

CREATE TABLE dead_letter ( -- message from a device that the hub could not use
    id {id},
    imei TEXT NOT NULL DEFAULT '', -- IMEI of the modem, empty if the message arrived over IP
    device {int} REFERENCES device ON DELETE CASCADE, -- NULL if no device has the IMEI
    way TEXT NOT NULL, -- bearer of the message
    body {blob} NOT NULL,
    reason TEXT NOT NULL,
    received {real} NOT NULL
);
CREATE INDEX dead_letter_by_imei ON dead_letter (imei);

CREATE TABLE dead_letter_tally ( -- numbers of dead letters since the database was created
    one {int} PRIMARY KEY CHECK (one = 1),
    came {int} NOT NULL, -- number of stored letters
    dropped {int} NOT NULL -- number of letters that were deleted to make space
);

CREATE TABLE process ( -- process of the hub that has links or open consoles
    name TEXT PRIMARY KEY,
    until {real} NOT NULL -- end of the process's life, if the process does not renew it
);

CREATE TABLE lease ( -- IP link of a device, and the process that has the link
    device {int} PRIMARY KEY REFERENCES device ON DELETE CASCADE,
    process TEXT NOT NULL REFERENCES process ON DELETE CASCADE,
    link {int} NOT NULL -- number of the link in the process
);

CREATE TABLE worker ( -- process of the hub. A write to its row proves that the database is writable
    number {int} PRIMARY KEY,
    proved {real} NOT NULL, -- time of the last write
    filler {blob} NOT NULL -- bytes that occupy space, to detect a full disk
);

CREATE TABLE earshot ( -- kit in radio range of a carrier, which relays items to the kit
    carrier {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    hops {int} NOT NULL, -- number of transmissions between the two
    PRIMARY KEY (carrier, device)
);
CREATE INDEX earshot_device ON earshot (device);

CREATE TABLE parcel ( -- item that a carrier has stored to relay it to another kit
    item {int} NOT NULL REFERENCES item ON DELETE CASCADE,
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE, -- addressed kit
    carrier {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    journal {int} NOT NULL, -- number of the carrier's journal
    given {real} NOT NULL,
    PRIMARY KEY (item, device, carrier)
);
CREATE INDEX parcel_device ON parcel (device);
CREATE INDEX parcel_carrier ON parcel (carrier);
