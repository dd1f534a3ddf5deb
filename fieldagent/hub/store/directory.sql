-- Workspaces, members, devices and their credentials.

CREATE TABLE workspace (
    id {id},
    name TEXT NOT NULL UNIQUE,
    created {real} NOT NULL,
    directory {int} NOT NULL DEFAULT 1, -- version of the directory for kits
    posted {int} NOT NULL DEFAULT 0, -- last place in the workspace's log
    quiet TEXT NOT NULL DEFAULT '', -- quiet hours; empty: no quiet hours
    tracked {int} NOT NULL DEFAULT 0 -- last place of a position (`newest`)
);

CREATE TABLE member ( -- its id is the userId of the push API and the origin number on air
    id {id},
    type TEXT NOT NULL,
    name TEXT NOT NULL,
    email TEXT NOT NULL DEFAULT '',
    password TEXT,
    created {real} NOT NULL,
    disabled {real},
    password_until {real} -- limit of a one-time password
);
CREATE UNIQUE INDEX member_by_email ON member (email) WHERE email <> '';

CREATE TABLE membership (
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    member {int} NOT NULL REFERENCES member ON DELETE CASCADE,
    over_satellite {int} NOT NULL DEFAULT 0, -- items for it may use satellite
    may_push {int} NOT NULL DEFAULT 1,
    role TEXT NOT NULL DEFAULT 'member', -- or dispatcher
    all_positions {int} NOT NULL DEFAULT 0, -- 1: its kits get each position of others
    PRIMARY KEY (workspace, member)
);
CREATE INDEX membership_over_satellite ON membership (workspace, member) WHERE over_satellite = 1;
CREATE INDEX membership_all_positions ON membership (workspace, member) WHERE all_positions = 1;

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
    key_trouble TEXT NOT NULL DEFAULT '', -- key error that its last message showed
    relay {int} NOT NULL DEFAULT 0, -- 1: may relay messages of other kits
    journal {int} NOT NULL DEFAULT 0, -- its number; 0: the agent does not send it
    modem TEXT NOT NULL DEFAULT '', -- its kind, such as sbd: reported by the operator
    thing TEXT NOT NULL DEFAULT '', -- the operator's name for it
    place {int} NOT NULL DEFAULT 0, -- last place of the log that it was given
    revoked {real}, -- time; null: not revoked
    revoked_why TEXT NOT NULL DEFAULT '',
    tracked {int} NOT NULL DEFAULT 0, -- last place of the positions that it has (`newest`)
    UNIQUE (workspace, name)
);
CREATE INDEX device_of_member ON device (member, workspace);
CREATE INDEX device_of_workspace ON device (workspace, id);

CREATE TABLE team ( -- a group of users, who get items together
    id {id},
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    name TEXT NOT NULL,
    over_satellite {int} NOT NULL DEFAULT 0, -- items from kits to it may use satellite
    created {real} NOT NULL,
    UNIQUE (workspace, name)
);

CREATE TABLE team_member (
    team {int} NOT NULL REFERENCES team ON DELETE CASCADE,
    member {int} NOT NULL REFERENCES member ON DELETE CASCADE,
    PRIMARY KEY (team, member)
);
CREATE INDEX team_member_of ON team_member (member, team);

CREATE TABLE handle ( -- a user's own radio, by its id on the air
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    handle TEXT NOT NULL,
    member {int} NOT NULL REFERENCES member ON DELETE CASCADE,
    PRIMARY KEY (workspace, handle)
);

CREATE TABLE credential (
    id {id},
    kind TEXT NOT NULL, -- key, token, or console session
    workspace {int} REFERENCES workspace ON DELETE CASCADE, -- of a key or session
    member {int} REFERENCES member ON DELETE CASCADE, -- of a token or session
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

CREATE TABLE passkey (
    id {id},
    member {int} NOT NULL REFERENCES member ON DELETE CASCADE,
    credential {blob} NOT NULL UNIQUE,
    public_key {blob} NOT NULL, -- COSE
    used_times {int} NOT NULL, -- counted by its device; 0: not counted
    name TEXT NOT NULL,
    created {real} NOT NULL,
    used {real}
);
CREATE INDEX passkey_of_member ON passkey (member);

CREATE TABLE signing_key ( -- name: purpose of its signatures
    name TEXT PRIMARY KEY,
    key {blob} NOT NULL
);

CREATE TABLE attempt ( -- failed calls of an address, an IPv6 /64 or an account
    who TEXT PRIMARY KEY,
    tat {real} NOT NULL
);

CREATE TABLE audit (
    id {id},
    at {real} NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    detail TEXT NOT NULL DEFAULT '',
    workspace {int} -- null: no workspace
);
CREATE INDEX audit_of_workspace ON audit (workspace, id) WHERE action <> 'push';

CREATE TABLE imei_claim ( -- claim to an IMEI that a device of another workspace has
    device {int} PRIMARY KEY REFERENCES device ON DELETE CASCADE,
    imei TEXT NOT NULL,
    at {real} NOT NULL
);
CREATE INDEX imei_claim_of_imei ON imei_claim (imei);
