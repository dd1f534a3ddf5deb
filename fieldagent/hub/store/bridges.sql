-- TAK and MQTT, and the hub's own TAK server.

CREATE TABLE bridge ( -- to somebody else's server, which one process works at
    name TEXT PRIMARY KEY,
    identity TEXT NOT NULL, -- which tells this hub from others there
    place {int} NOT NULL, -- items up to here have been looked at
    holder TEXT NOT NULL DEFAULT '', -- a process
    until {real} NOT NULL DEFAULT 0, -- when it is free, unless that says meanwhile that it lives
    happened {int} NOT NULL DEFAULT 0 -- to incidents, as `place`
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
    UNIQUE (member, inward, message_id, uid)
);
CREATE INDEX tak_event_of_item ON tak_event (item);
CREATE INDEX tak_event_under_way ON tak_event (at) WHERE state IN ('waiting', 'sent', 'delivered');
CREATE INDEX tak_event_paid ON tak_event (at) WHERE credits > 0;

CREATE TABLE tak_alert ( -- an incident that a TAK server was told of
    sos {int} PRIMARY KEY REFERENCES sos ON DELETE CASCADE,
    cancels {int} NOT NULL DEFAULT 0 -- how often its end was told
);

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

CREATE TABLE tak_invitation ( -- to fetch a phone's certificate
    token TEXT PRIMARY KEY, -- SHA-256, in hexadecimal
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    member {int} NOT NULL REFERENCES member ON DELETE CASCADE,
    expires {real} NOT NULL,
    key TEXT NOT NULL DEFAULT '', -- SHA-256 of that which has come with it
    serial TEXT NOT NULL DEFAULT '' -- of what was signed for that
);
CREATE INDEX tak_invitation_of_member ON tak_invitation (member);

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
