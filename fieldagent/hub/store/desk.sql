-- The SOS desk: incidents, contacts, watches, fences and planned routes.

CREATE TABLE sos ( -- an SOS of a device, or an alarm about it
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
    number {int}, -- the kit's number for it; null for an alarm
    seen_as TEXT NOT NULL DEFAULT '', -- name of a contact, who is no member
    unreached {real}, -- start of the time without a reachable person
    asked {int} REFERENCES member ON DELETE SET NULL, -- to take it over
    latitude {real}, -- its own copy of the position, fixed once it is closed
    longitude {real},
    position_at {real} -- null: it has no position of its own yet
);
CREATE INDEX sos_of_workspace ON sos (workspace, id);
CREATE INDEX sos_by_state ON sos (workspace, state, id);
CREATE UNIQUE INDEX sos_by_number ON sos (device, number);

CREATE TABLE sos_event ( -- timeline of an incident
    id {id},
    sos {int} NOT NULL REFERENCES sos ON DELETE CASCADE,
    at {real} NOT NULL,
    event TEXT NOT NULL, -- raised, webhook, agent, heard, seen, note, closed
    member {int}, -- who did it; null if no member
    detail TEXT NOT NULL DEFAULT '',
    name TEXT NOT NULL DEFAULT '' -- of a contact
);
CREATE INDEX sos_event_of ON sos_event (sos, id);

CREATE TABLE sos_carrier ( -- a neighbour's device that brought part of an incident
    sos {int} NOT NULL REFERENCES sos ON DELETE CASCADE,
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    PRIMARY KEY (sos, device)
);
CREATE INDEX sos_carrier_device ON sos_carrier (device);

CREATE TABLE check_in ( -- deadline for the next contact with a device
    device {int} PRIMARY KEY REFERENCES device ON DELETE CASCADE,
    every {real}, -- seconds
    by_minute {int}, -- or minute of the UTC day
    due {real} NOT NULL,
    warned {real}, -- time of the warning that it is late
    sos {int}, -- the alarm
    kit_every {real} -- seconds: the kit's own request
);
CREATE INDEX check_in_due ON check_in (due) WHERE sos IS NULL;

CREATE TABLE alarm_contact ( -- receiver of alarms outside the console: a person, a browser
    id {id},
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    member {int} REFERENCES member ON DELETE CASCADE, -- owner of the browser
    kind TEXT NOT NULL, -- email, apprise, push
    name TEXT NOT NULL,
    address TEXT NOT NULL, -- for email or apprise, or a browser's subscription as JSON
    wait {int} NOT NULL, -- seconds without an answer; 0: at once
    created {real} NOT NULL,
    failing_since {real},
    reason TEXT NOT NULL DEFAULT '', -- of the last failure
    tries {int} NOT NULL DEFAULT 1, -- until an answer comes
    pause {int} NOT NULL DEFAULT 5, -- seconds between two tries
    about TEXT NOT NULL DEFAULT 'all', -- all, sos, alarms
    quiet TEXT NOT NULL DEFAULT '', -- quiet hours; empty: the workspace's
    language TEXT NOT NULL DEFAULT 'en' -- of the messages
);
CREATE INDEX alarm_contact_of_workspace ON alarm_contact (workspace);

CREATE TABLE alarm_message ( -- a message to a contact about an SOS
    id {id},
    sos {int} NOT NULL REFERENCES sos ON DELETE CASCADE,
    contact {int} NOT NULL REFERENCES alarm_contact ON DELETE CASCADE,
    message_id TEXT NOT NULL, -- globally unique
    why TEXT NOT NULL, -- raised, escalated
    state TEXT NOT NULL, -- waiting, handed over, failed, not needed
    not_before {real} NOT NULL,
    claimed_until {real} NOT NULL DEFAULT 0,
    attempts {int} NOT NULL DEFAULT 0,
    claimed_by {int} NOT NULL DEFAULT 0,
    round {int} NOT NULL DEFAULT 1, -- number of the try
    text TEXT NOT NULL DEFAULT '', -- of a reply
    reached TEXT NOT NULL DEFAULT '', -- delivered, failed: reported by the service
    held {int} NOT NULL DEFAULT 0 -- 1: it waited for the morning
);
CREATE INDEX alarm_message_due ON alarm_message (not_before) WHERE state = 'waiting';
CREATE INDEX alarm_message_of_sos ON alarm_message (sos);
CREATE INDEX alarm_message_by_id ON alarm_message (message_id);

CREATE TABLE alarm_link ( -- link by which a contact acknowledges an SOS, once
    id {id},
    sos {int} NOT NULL REFERENCES sos ON DELETE CASCADE,
    name TEXT NOT NULL, -- of the contact
    message_id TEXT NOT NULL UNIQUE, -- of the message with the link
    expires {real} NOT NULL,
    used {real},
    contact {int}, -- receiver of the link
    code TEXT NOT NULL DEFAULT '' -- code that authenticates an answer
);
CREATE INDEX alarm_link_of_sos ON alarm_link (sos);

CREATE TABLE sending ( -- a message to an address within the last day, for the daily limits
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    address TEXT NOT NULL,
    what TEXT NOT NULL, -- test, letter, reply, webhook
    at {real} NOT NULL
);
CREATE INDEX sending_of_workspace ON sending (workspace);
CREATE INDEX sending_at ON sending (at);

CREATE TABLE contact_answer ( -- an incoming answer, once per id of the service
    id {id},
    kind TEXT NOT NULL, -- of contact
    service_id TEXT NOT NULL,
    at {real} NOT NULL,
    sender TEXT NOT NULL, -- claimed sender address
    outcome TEXT NOT NULL,
    UNIQUE (kind, service_id)
);
CREATE INDEX contact_answer_of_sender ON contact_answer (kind, sender, at);
CREATE INDEX contact_answer_at ON contact_answer (at);

CREATE TABLE console_stream ( -- an open console that can ring
    process TEXT NOT NULL REFERENCES process ON DELETE CASCADE,
    stream {int} NOT NULL, -- its number in that process
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    member {int} NOT NULL REFERENCES member ON DELETE CASCADE,
    until {real}, -- ended stream: time limit for its return
    PRIMARY KEY (process, stream)
);
CREATE INDEX console_stream_of_workspace ON console_stream (workspace);

CREATE TABLE shift ( -- watch of a dispatcher at the desk
    id {id},
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    member {int} NOT NULL REFERENCES member ON DELETE CASCADE,
    begun {real} NOT NULL,
    until {real} NOT NULL, -- automatic end
    ended {real},
    heir {int} REFERENCES member ON DELETE SET NULL, -- asked to take it over
    note TEXT NOT NULL DEFAULT '' -- handover note
);
CREATE INDEX shift_of_workspace ON shift (workspace, id);

CREATE TABLE watch_hours ( -- hours in which a dispatcher must be on watch
    workspace {int} PRIMARY KEY REFERENCES workspace ON DELETE CASCADE,
    begins {int} NOT NULL, -- minutes of a UTC day
    ends {int} NOT NULL,
    alone {real}, -- start of the time without a watch
    alarm {int}, -- raised because of that
    due {real} NOT NULL -- time of the next check
);

CREATE TABLE fence ( -- a shape on the map whose border is watched
    id {id},
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    name TEXT NOT NULL,
    shape TEXT NOT NULL, -- JSON
    tells TEXT NOT NULL, -- enter, leave, both
    named {int} NOT NULL DEFAULT 0, -- 1: only for the kits in fence_kit
    team {int} REFERENCES team ON DELETE SET NULL, -- only for kits of its users; null: all
    created {real} NOT NULL
);
CREATE INDEX fence_of_workspace ON fence (workspace, id);

CREATE TABLE fence_kit (
    fence {int} NOT NULL REFERENCES fence ON DELETE CASCADE,
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    PRIMARY KEY (fence, device)
);
CREATE INDEX fence_kit_of_device ON fence_kit (device);

CREATE TABLE fence_standing ( -- side of a fence on which a kit is
    fence {int} NOT NULL REFERENCES fence ON DELETE CASCADE,
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    inside {int}, -- by the newest clear position; null: none yet
    clear {real} NOT NULL DEFAULT 0, -- time of that position by the kit's clock
    newest {real} NOT NULL DEFAULT 0, -- time of the newest position, clear or not
    alarm {int}, -- last incident about it
    PRIMARY KEY (fence, device)
);
CREATE INDEX fence_standing_of_device ON fence_standing (device);

CREATE TABLE route ( -- a plan: a kit must be at a place by a time
    id {id},
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    name TEXT NOT NULL, -- of the place
    shape TEXT NOT NULL, -- JSON
    due {real} NOT NULL, -- time of arrival
    margin {int} NOT NULL, -- seconds after that until it is overdue
    created {real} NOT NULL,
    arrived {real}, -- time of the position at the place, by the kit's clock
    alarm {int}, -- incident: overdue
    ended {real}, -- by arrival or by a person
    ended_by TEXT NOT NULL DEFAULT '',
    why TEXT NOT NULL DEFAULT ''
);
CREATE INDEX route_of_workspace ON route (workspace, id);
CREATE INDEX route_under_way ON route (device) WHERE ended IS NULL;
