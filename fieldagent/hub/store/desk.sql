-- The SOS desk: incidents, who is told, who is on watch, and where a kit is to be.

CREATE TABLE sos ( -- an SOS of a device, or the alarm that one has not been heard of
    id {id},
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    item {int} UNIQUE REFERENCES item ON DELETE CASCADE,
    kind TEXT NOT NULL, -- sos, overdue, operator
    state TEXT NOT NULL, -- open, seen, closed
    raised {real} NOT NULL,
    seen {real},
    seen_by {int}, -- a member
    closed {real},
    number {int}, -- by which its kit names it; NULL of an alarm
    seen_as TEXT NOT NULL DEFAULT '', -- of a contact, who is no member
    unreached {real}, -- since when nobody was there to be told
    asked {int} REFERENCES member ON DELETE SET NULL, -- to take it over
    latitude {real}, -- where it was: its own copy, which does not move once it is closed
    longitude {real},
    position_at {real} -- null: it has no position of its own yet
);
CREATE INDEX sos_of_workspace ON sos (workspace, id);
CREATE INDEX sos_by_state ON sos (workspace, state, id);
CREATE UNIQUE INDEX sos_by_number ON sos (device, number);

CREATE TABLE sos_event ( -- its timeline
    id {id},
    sos {int} NOT NULL REFERENCES sos ON DELETE CASCADE,
    at {real} NOT NULL,
    event TEXT NOT NULL, -- raised, webhook, agent, heard, seen, note, closed
    member {int}, -- who did it, where somebody did
    detail TEXT NOT NULL DEFAULT '',
    name TEXT NOT NULL DEFAULT '' -- of a contact
);
CREATE INDEX sos_event_of ON sos_event (sos, id);

CREATE TABLE sos_carrier ( -- a neighbour's device that brought something of it
    sos {int} NOT NULL REFERENCES sos ON DELETE CASCADE,
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    PRIMARY KEY (sos, device)
);
CREATE INDEX sos_carrier_device ON sos_carrier (device);

CREATE TABLE check_in ( -- until when a device is to be heard of
    device {int} PRIMARY KEY REFERENCES device ON DELETE CASCADE,
    every {real}, -- seconds
    by_minute {int}, -- or of the UTC day
    due {real} NOT NULL,
    warned {real}, -- that it is late
    sos {int}, -- the alarm
    kit_every {real} -- seconds: what the kit asks for itself
);
CREATE INDEX check_in_due ON check_in (due) WHERE sos IS NULL;

CREATE TABLE alarm_contact ( -- who is told of an SOS beside the console: a person, a browser
    id {id},
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    member {int} REFERENCES member ON DELETE CASCADE, -- whose browser it is
    kind TEXT NOT NULL, -- email, apprise, push
    name TEXT NOT NULL,
    address TEXT NOT NULL, -- of mail, of apprise, or a browser's subscription as JSON
    wait {int} NOT NULL, -- seconds without an answer; 0: at once
    created {real} NOT NULL,
    failing_since {real},
    reason TEXT NOT NULL DEFAULT '', -- of the last failure
    tries {int} NOT NULL DEFAULT 1, -- until somebody answers
    pause {int} NOT NULL DEFAULT 5, -- seconds between two tries
    about TEXT NOT NULL DEFAULT 'all', -- all, sos, alarms
    quiet TEXT NOT NULL DEFAULT '', -- empty: as the workspace
    language TEXT NOT NULL DEFAULT 'en' -- it is told in
);
CREATE INDEX alarm_contact_of_workspace ON alarm_contact (workspace);

CREATE TABLE alarm_message ( -- to one of them, about an SOS
    id {id},
    sos {int} NOT NULL REFERENCES sos ON DELETE CASCADE,
    contact {int} NOT NULL REFERENCES alarm_contact ON DELETE CASCADE,
    message_id TEXT NOT NULL, -- like no other's
    why TEXT NOT NULL, -- raised, escalated
    state TEXT NOT NULL, -- waiting, handed over, failed, not needed
    not_before {real} NOT NULL,
    claimed_until {real} NOT NULL DEFAULT 0,
    attempts {int} NOT NULL DEFAULT 0,
    claimed_by {int} NOT NULL DEFAULT 0,
    round {int} NOT NULL DEFAULT 1, -- which of the tries
    text TEXT NOT NULL DEFAULT '', -- of a reply
    reached TEXT NOT NULL DEFAULT '', -- delivered, failed: as told
    held {int} NOT NULL DEFAULT 0 -- 1: it waited for the morning
);
CREATE INDEX alarm_message_due ON alarm_message (not_before) WHERE state = 'waiting';
CREATE INDEX alarm_message_of_sos ON alarm_message (sos);
CREATE INDEX alarm_message_by_id ON alarm_message (message_id);

CREATE TABLE alarm_link ( -- by which one who was told acknowledges it, once
    id {id},
    sos {int} NOT NULL REFERENCES sos ON DELETE CASCADE,
    name TEXT NOT NULL, -- of who was told
    message_id TEXT NOT NULL UNIQUE, -- what told them
    expires {real} NOT NULL,
    used {real},
    contact {int}, -- who was told
    code TEXT NOT NULL DEFAULT '' -- that an answer proves it by
);
CREATE INDEX alarm_link_of_sos ON alarm_link (sos);

CREATE TABLE sending ( -- a message that left for an address within a day, to count it
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    address TEXT NOT NULL,
    what TEXT NOT NULL, -- test, letter, reply
    at {real} NOT NULL
);
CREATE INDEX sending_of_workspace ON sending (workspace);
CREATE INDEX sending_at ON sending (at);

CREATE TABLE contact_answer ( -- what came back, once for each identity that a service gives it
    id {id},
    kind TEXT NOT NULL, -- of contact
    service_id TEXT NOT NULL,
    at {real} NOT NULL,
    sender TEXT NOT NULL, -- the address it says it is from
    outcome TEXT NOT NULL,
    UNIQUE (kind, service_id)
);
CREATE INDEX contact_answer_of_sender ON contact_answer (kind, sender, at);
CREATE INDEX contact_answer_at ON contact_answer (at);

CREATE TABLE console_stream ( -- a console that is open, and rings
    process TEXT NOT NULL REFERENCES process ON DELETE CASCADE,
    stream {int} NOT NULL, -- its number in that process
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    member {int} NOT NULL REFERENCES member ON DELETE CASCADE,
    until {real}, -- of one that has ended: it may be back by then
    PRIMARY KEY (process, stream)
);
CREATE INDEX console_stream_of_workspace ON console_stream (workspace);

CREATE TABLE shift ( -- of a dispatcher on watch at the desk
    id {id},
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    member {int} NOT NULL REFERENCES member ON DELETE CASCADE,
    begun {real} NOT NULL,
    until {real} NOT NULL, -- when it ends by itself
    ended {real},
    heir {int} REFERENCES member ON DELETE SET NULL, -- who is asked to take it
    note TEXT NOT NULL DEFAULT '' -- what they must know
);
CREATE INDEX shift_of_workspace ON shift (workspace, id);

CREATE TABLE watch_hours ( -- in which somebody is to be on watch
    workspace {int} PRIMARY KEY REFERENCES workspace ON DELETE CASCADE,
    begins {int} NOT NULL, -- minutes of a UTC day
    ends {int} NOT NULL,
    alone {real}, -- since when nobody is
    alarm {int}, -- that was raised for it
    due {real} NOT NULL -- when to look again
);

CREATE TABLE fence ( -- a shape on the map that kits come into, or go out of
    id {id},
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    name TEXT NOT NULL,
    shape TEXT NOT NULL, -- JSON
    tells TEXT NOT NULL, -- enter, leave, both
    named {int} NOT NULL DEFAULT 0, -- 1: it is for the kits in fence_kit alone
    team {int} REFERENCES team ON DELETE SET NULL, -- it is for kits of its users; null: of all
    created {real} NOT NULL
);
CREATE INDEX fence_of_workspace ON fence (workspace, id);

CREATE TABLE fence_kit (
    fence {int} NOT NULL REFERENCES fence ON DELETE CASCADE,
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    PRIMARY KEY (fence, device)
);
CREATE INDEX fence_kit_of_device ON fence_kit (device);

CREATE TABLE fence_standing ( -- where a kit stands to a fence, by its positions
    fence {int} NOT NULL REFERENCES fence ON DELETE CASCADE,
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    inside {int}, -- by the newest position that was clear; null: there was none
    clear {real} NOT NULL DEFAULT 0, -- the time of that one, by its kit
    newest {real} NOT NULL DEFAULT 0, -- of the newest one, clear or not
    alarm {int}, -- the last incident about it
    PRIMARY KEY (fence, device)
);
CREATE INDEX fence_standing_of_device ON fence_standing (device);

CREATE TABLE route ( -- a kit is to be at a place by a time
    id {id},
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    name TEXT NOT NULL, -- of the place
    shape TEXT NOT NULL, -- JSON
    due {real} NOT NULL, -- by when
    margin {int} NOT NULL, -- seconds after that until it is overdue
    created {real} NOT NULL,
    arrived {real}, -- the time of the position that was within the place, by its kit
    alarm {int}, -- the incident that it is overdue
    ended {real}, -- by arrival or by a person
    ended_by TEXT NOT NULL DEFAULT '',
    why TEXT NOT NULL DEFAULT ''
);
CREATE INDEX route_of_workspace ON route (workspace, id);
CREATE INDEX route_under_way ON route (device) WHERE ended IS NULL;
