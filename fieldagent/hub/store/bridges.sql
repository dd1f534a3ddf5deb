-- Bridges to TAK and MQTT, and the hub's own TAK server.

CREATE TABLE bridge ( -- connection to an external server, which one process runs at a time
    name TEXT PRIMARY KEY,
    identity TEXT NOT NULL, -- name of this hub at the server. Each hub has a different name
    place {int} NOT NULL, -- last processed item
    holder TEXT NOT NULL DEFAULT '', -- process that runs the bridge, or empty
    until {real} NOT NULL DEFAULT 0, -- end of the process's claim, if the process does not renew it
    happened {int} NOT NULL DEFAULT 0 -- last processed event in `sos_event`
);

CREATE TABLE tak_person ( -- person at a TAK server, and the member that represents the person
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    callsign TEXT NOT NULL,
    member {int} NOT NULL UNIQUE REFERENCES member ON DELETE CASCADE,
    uid TEXT NOT NULL, -- uid of the phone that gets messages for the person, or empty
    PRIMARY KEY (workspace, callsign)
);
CREATE INDEX tak_person_of_uid ON tak_person (uid);

CREATE TABLE tak_event ( -- event that the hub sends to a TAK server or has received from it
    id {id},
    item {int} REFERENCES item ON DELETE CASCADE, -- NULL if the event has created no item
    member {int} NOT NULL REFERENCES member ON DELETE CASCADE, -- member at the hub's end
    person {int} REFERENCES member ON DELETE CASCADE, -- person at the server, NULL for everyone
    inward {int} NOT NULL, -- 1 if the event is from the server
    uid TEXT NOT NULL DEFAULT '', -- uid of the person's phone, or empty
    message_id TEXT NOT NULL,
    state TEXT NOT NULL, -- waiting, sent, delivered, read, over
    attempts {int} NOT NULL DEFAULT 0,
    not_before {real} NOT NULL,
    credits {int} NOT NULL DEFAULT 0, -- largest possible cost
    at {real} NOT NULL,
    UNIQUE (member, inward, message_id, uid)
);
CREATE INDEX tak_event_of_item ON tak_event (item);
CREATE INDEX tak_event_under_way ON tak_event (at) WHERE state IN ('waiting', 'sent', 'delivered');
CREATE INDEX tak_event_paid ON tak_event (at) WHERE credits > 0;

CREATE TABLE tak_alert ( -- incident that the hub has sent to a TAK server
    sos {int} PRIMARY KEY REFERENCES sos ON DELETE CASCADE,
    cancels {int} NOT NULL DEFAULT 0 -- number of "end" events that were sent
);

CREATE TABLE tak_certificate ( -- certificate of a user's phone for the hub's own TAK server
    serial TEXT PRIMARY KEY, -- serial number, hexadecimal
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    member {int} NOT NULL REFERENCES member ON DELETE CASCADE,
    made {real} NOT NULL,
    expires {real} NOT NULL,
    revoked {real},
    uid TEXT NOT NULL DEFAULT '', -- uid of the phone, empty before its first connection
    seen {real} -- time of the phone's last connection, or NULL
);
CREATE INDEX tak_certificate_of_member ON tak_certificate (member);
CREATE INDEX tak_certificate_of_uid ON tak_certificate (uid);

CREATE TABLE tak_invitation ( -- permission to fetch a certificate for a phone
    token TEXT PRIMARY KEY, -- SHA-256 of the secret, hexadecimal
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    member {int} NOT NULL REFERENCES member ON DELETE CASCADE,
    expires {real} NOT NULL,
    key TEXT NOT NULL DEFAULT '', -- SHA-256 of the phone's public key, empty before use
    serial TEXT NOT NULL DEFAULT '' -- serial number of the certificate, empty before use
);
CREATE INDEX tak_invitation_of_member ON tak_invitation (member);

CREATE TABLE mqtt_item ( -- item whose delivery steps the hub publishes to a broker
    item {int} PRIMARY KEY REFERENCES item ON DELETE CASCADE,
    topic TEXT NOT NULL,
    steps {int} NOT NULL DEFAULT 0, -- number of published steps
    at {real} NOT NULL
);

CREATE TABLE mqtt_command ( -- command from a broker
    sender TEXT NOT NULL,
    key TEXT NOT NULL, -- key in the command, or a key that the hub has assigned
    digest {blob} NOT NULL, -- digest of the body
    outcome TEXT NOT NULL, -- JSON with the result for the sender
    credits {int} NOT NULL DEFAULT 0, -- largest possible cost
    at {real} NOT NULL,
    PRIMARY KEY (sender, key)
);
CREATE INDEX mqtt_command_at ON mqtt_command (at);
