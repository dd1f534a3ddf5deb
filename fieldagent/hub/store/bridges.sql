-- Bridges to TAK and MQTT, and the hub's own TAK server.

CREATE TABLE bridge ( -- a connection to an external server, run by one process at a time
    name TEXT PRIMARY KEY,
    identity TEXT NOT NULL, -- distinguishes this hub from others on that server
    place {int} NOT NULL, -- last item that was processed
    holder TEXT NOT NULL DEFAULT '', -- process that runs it
    until {real} NOT NULL DEFAULT 0, -- end of the holder's lease, if it is not renewed
    happened {int} NOT NULL DEFAULT 0 -- like `place`, for incidents
);

CREATE TABLE tak_person ( -- person on a TAK server: a member that cannot sign in
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    callsign TEXT NOT NULL,
    member {int} NOT NULL UNIQUE REFERENCES member ON DELETE CASCADE,
    uid TEXT NOT NULL, -- of the last phone that sent for this person
    PRIMARY KEY (workspace, callsign)
);
CREATE INDEX tak_person_of_uid ON tak_person (uid);

CREATE TABLE tak_event ( -- an item on its way to or from a TAK server
    id {id},
    item {int} REFERENCES item ON DELETE CASCADE, -- null: the event produced no item
    member {int} NOT NULL REFERENCES member ON DELETE CASCADE, -- user of the kit at our end
    person {int} REFERENCES member ON DELETE CASCADE, -- person at the other end; null: all
    inward {int} NOT NULL,
    uid TEXT NOT NULL DEFAULT '', -- of the person's phone
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

CREATE TABLE tak_alert ( -- an incident that was sent to a TAK server
    sos {int} PRIMARY KEY REFERENCES sos ON DELETE CASCADE,
    cancels {int} NOT NULL DEFAULT 0 -- number of "end" events sent
);

CREATE TABLE tak_certificate ( -- of a user's phone, for the hub's own TAK server
    serial TEXT PRIMARY KEY, -- hexadecimal
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    member {int} NOT NULL REFERENCES member ON DELETE CASCADE,
    made {real} NOT NULL,
    expires {real} NOT NULL,
    revoked {real},
    uid TEXT NOT NULL DEFAULT '', -- of the phone, once known
    seen {real} -- last time of that uid
);
CREATE INDEX tak_certificate_of_member ON tak_certificate (member);
CREATE INDEX tak_certificate_of_uid ON tak_certificate (uid);

CREATE TABLE tak_invitation ( -- permission to download a phone's certificate
    token TEXT PRIMARY KEY, -- SHA-256, hexadecimal
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    member {int} NOT NULL REFERENCES member ON DELETE CASCADE,
    expires {real} NOT NULL,
    key TEXT NOT NULL DEFAULT '', -- SHA-256 of the public key that came with it
    serial TEXT NOT NULL DEFAULT '' -- of the certificate that was signed for it
);
CREATE INDEX tak_invitation_of_member ON tak_invitation (member);

CREATE TABLE mqtt_item ( -- an item whose progress is published to a broker
    item {int} PRIMARY KEY REFERENCES item ON DELETE CASCADE,
    topic TEXT NOT NULL,
    steps {int} NOT NULL DEFAULT 0, -- number of steps that the broker has
    at {real} NOT NULL
);

CREATE TABLE mqtt_command ( -- a command that came from a broker
    sender TEXT NOT NULL,
    key TEXT NOT NULL, -- from the command, or assigned by us
    digest {blob} NOT NULL, -- of the body
    outcome TEXT NOT NULL, -- JSON: answer to the sender
    credits {int} NOT NULL DEFAULT 0, -- that it may cost
    at {real} NOT NULL,
    PRIMARY KEY (sender, key)
);
CREATE INDEX mqtt_command_at ON mqtt_command (at);
