-- Workspaces, their members and devices, and the credentials of people, programs and devices.

CREATE TABLE workspace ( -- members, devices and webhooks of one organisation
    id {id},
    name TEXT NOT NULL UNIQUE,
    created {real} NOT NULL,
    directory {int} NOT NULL DEFAULT 1, -- version of the directory for kits. It only increases
    posted {int} NOT NULL DEFAULT 0, -- last used place in the log of the workspace, 0 if none
    quiet TEXT NOT NULL DEFAULT '', -- quiet hours of the workspace's contacts, or empty
    tracked {int} NOT NULL DEFAULT 0 -- last used place of a position (`newest`), 0 if none
);

CREATE TABLE member ( -- person or program. `id` is the userId of the push API and the origin on air
    id {id},
    type TEXT NOT NULL,
    name TEXT NOT NULL,
    email TEXT NOT NULL DEFAULT '',
    password TEXT,
    created {real} NOT NULL,
    disabled {real},
    password_until {real} -- end of a one-time password, NULL for any other password
);
CREATE UNIQUE INDEX member_by_email ON member (email) WHERE email <> '';

CREATE TABLE membership ( -- member of a workspace
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    member {int} NOT NULL REFERENCES member ON DELETE CASCADE,
    over_satellite {int} NOT NULL DEFAULT 0, -- 1 if items from kits to the member may use satellite
    may_push {int} NOT NULL DEFAULT 1, -- 1 if the member may push items
    role TEXT NOT NULL DEFAULT 'member', -- member, observer, dispatcher, administrator
    all_positions {int} NOT NULL DEFAULT 0, -- 1 for every position, 0 for the newest of each sender
    PRIMARY KEY (workspace, member)
);
CREATE INDEX membership_over_satellite ON membership (workspace, member) WHERE over_satellite = 1;
CREATE INDEX membership_all_positions ON membership (workspace, member) WHERE all_positions = 1;

CREATE TABLE device ( -- agent in the field, or a tracker
    id {id},
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    member {int} NOT NULL REFERENCES member ON DELETE CASCADE,
    name TEXT NOT NULL,
    imei TEXT UNIQUE,
    link_token TEXT UNIQUE, -- SHA-256 of the link token, hexadecimal, or NULL
    air_key {blob},
    operator TEXT, -- name of the satellite operator, such as directip, or NULL
    credits_per_day {int},
    sos_reserve {int} NOT NULL DEFAULT 0,
    next_sequence {int} NOT NULL DEFAULT 1, -- number on the air of the next item to the device
    created {real} NOT NULL,
    disabled {real},
    key_trouble TEXT NOT NULL DEFAULT '', -- key problem that the last message showed, or empty
    relay {int} NOT NULL DEFAULT 0, -- 1 if the device may relay items of other members
    journal {int} NOT NULL DEFAULT 0, -- number of the journal, 0 if the agent has not sent it
    modem TEXT NOT NULL DEFAULT '', -- kind of modem as reported by the operator, or empty
    thing TEXT NOT NULL DEFAULT '', -- operator's name for the modem, or empty
    place {int} NOT NULL DEFAULT 0, -- place in the workspace's log up to which the deliveries exist
    revoked {real}, -- time of the revocation, NULL if the device is not revoked
    revoked_why TEXT NOT NULL DEFAULT '',
    tracked {int} NOT NULL DEFAULT 0, -- last place of a position (`newest`) that the device has
    UNIQUE (workspace, name)
);
CREATE INDEX device_of_member ON device (member, workspace);
CREATE INDEX device_of_workspace ON device (workspace, id);

CREATE TABLE team ( -- group of users who get items together
    id {id},
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    name TEXT NOT NULL,
    over_satellite {int} NOT NULL DEFAULT 0, -- 1 if items from kits to the group may use satellite
    created {real} NOT NULL,
    UNIQUE (workspace, name)
);

CREATE TABLE team_member ( -- user in a group
    team {int} NOT NULL REFERENCES team ON DELETE CASCADE,
    member {int} NOT NULL REFERENCES member ON DELETE CASCADE,
    PRIMARY KEY (team, member)
);
CREATE INDEX team_member_of ON team_member (member, team);

CREATE TABLE handle ( -- handheld radio of a user
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    handle TEXT NOT NULL, -- id of the radio on the air, in lower case
    member {int} NOT NULL REFERENCES member ON DELETE CASCADE,
    PRIMARY KEY (workspace, handle)
);

CREATE TABLE credential ( -- API key, token of a user, or session of the console
    id {id},
    kind TEXT NOT NULL, -- key, token, session
    workspace {int} REFERENCES workspace ON DELETE CASCADE, -- NULL for a token
    member {int} REFERENCES member ON DELETE CASCADE, -- NULL for a key
    lookup TEXT NOT NULL UNIQUE, -- SHA-256 of the secret, hexadecimal
    name TEXT NOT NULL,
    scopes TEXT NOT NULL DEFAULT '', -- kinds that a key may push, and `read` or `acknowledge`
    per_minute {int} NOT NULL DEFAULT 60,
    burst {int} NOT NULL DEFAULT 60,
    tat {real} NOT NULL DEFAULT 0, -- theoretical arrival time of the next call (`system.rate`)
    created {real} NOT NULL,
    expires {real},
    revoked {real}
);

CREATE TABLE passkey ( -- passkey with which a member signs in
    id {id},
    member {int} NOT NULL REFERENCES member ON DELETE CASCADE,
    credential {blob} NOT NULL UNIQUE,
    public_key {blob} NOT NULL, -- COSE key
    used_times {int} NOT NULL, -- number of uses that the passkey reports, 0 if it does not count
    name TEXT NOT NULL,
    created {real} NOT NULL,
    used {real}
);
CREATE INDEX passkey_of_member ON passkey (member);

CREATE TABLE signing_key ( -- key for the signatures of one purpose
    name TEXT PRIMARY KEY, -- purpose of the signatures
    key {blob} NOT NULL
);

CREATE TABLE attempt ( -- failed attempts to authenticate, by source or account
    who TEXT PRIMARY KEY, -- address, IPv6 /64 network, or account
    tat {real} NOT NULL -- theoretical arrival time of the next attempt (`system.rate`)
);

CREATE TABLE audit ( -- line of the audit log
    id {id},
    at {real} NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    detail TEXT NOT NULL DEFAULT '',
    workspace {int} -- NULL if the line is about no workspace
);
CREATE INDEX audit_of_workspace ON audit (workspace, id) WHERE action <> 'push';

CREATE TABLE imei_claim ( -- claim to an IMEI that a device of another workspace has
    device {int} PRIMARY KEY REFERENCES device ON DELETE CASCADE,
    imei TEXT NOT NULL,
    at {real} NOT NULL
);
CREATE INDEX imei_claim_of_imei ON imei_claim (imei);
