-- The SOS desk: incidents, contacts, watches, fences and planned routes.

CREATE TABLE sos ( -- incident, which is an SOS of a device or an alarm about it
    id {id},
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    item {int} UNIQUE REFERENCES item ON DELETE CASCADE, -- item that raised the incident, or NULL
    kind TEXT NOT NULL, -- sos, overdue, operator, watch, fence
    state TEXT NOT NULL, -- open, seen, closed
    raised {real} NOT NULL,
    seen {real},
    seen_by {int}, -- member who has acknowledged the incident, or NULL
    closed {real},
    number {int}, -- number that the kit gave the incident, NULL for an alarm
    seen_as TEXT NOT NULL DEFAULT '', -- name of a contact who acknowledged the incident, or empty
    unreached {real}, -- time when the hub notified all contacts at once, or NULL
    asked {int} REFERENCES member ON DELETE SET NULL, -- member who is asked to take over, or NULL
    latitude {real}, -- newest position that belongs to the incident, or NULL
    longitude {real},
    position_at {real} -- time of that position, NULL if the incident has none yet
);
CREATE INDEX sos_of_workspace ON sos (workspace, id);
CREATE INDEX sos_by_state ON sos (workspace, state, id);
CREATE UNIQUE INDEX sos_by_number ON sos (device, number);

CREATE TABLE sos_event ( -- event in the timeline of an incident
    id {id},
    sos {int} NOT NULL REFERENCES sos ON DELETE CASCADE,
    at {real} NOT NULL,
    event TEXT NOT NULL, -- name of the event in the API, such as raised, seen, closed
    member {int}, -- member who caused the event, or NULL
    detail TEXT NOT NULL DEFAULT '',
    name TEXT NOT NULL DEFAULT '' -- name of the contact who caused the event, or empty
);
CREATE INDEX sos_event_of ON sos_event (sos, id);

CREATE TABLE sos_carrier ( -- neighbour's device that has relayed a part of an incident
    sos {int} NOT NULL REFERENCES sos ON DELETE CASCADE,
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    PRIMARY KEY (sos, device)
);
CREATE INDEX sos_carrier_device ON sos_carrier (device);

CREATE TABLE check_in ( -- time by which the hub must hear a device again
    device {int} PRIMARY KEY REFERENCES device ON DELETE CASCADE,
    every {real}, -- seconds after the last item, or NULL
    by_minute {int}, -- minute of the UTC day for a daily check-in, or NULL
    due {real} NOT NULL,
    warned {real}, -- time of the warning, NULL if the device is not late
    sos {int}, -- incident of the alarm, or NULL
    kit_every {real} -- seconds after the last item, as requested by the kit, or NULL
);
CREATE INDEX check_in_due ON check_in (due) WHERE sos IS NULL;

CREATE TABLE alarm_contact ( -- receiver of alarms outside the console: a person or a browser
    id {id},
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    member {int} REFERENCES member ON DELETE CASCADE, -- user of the browser, or NULL
    kind TEXT NOT NULL, -- kind of contact, such as email, apprise or push (browser)
    name TEXT NOT NULL,
    address TEXT NOT NULL, -- address, or JSON with the subscription of a browser
    wait {int} NOT NULL, -- seconds without an answer before the first message, 0 for at once
    created {real} NOT NULL,
    failing_since {real},
    reason TEXT NOT NULL DEFAULT '', -- reason of the last failure, or empty
    tries {int} NOT NULL DEFAULT 1, -- largest number of messages until someone answers
    pause {int} NOT NULL DEFAULT 5, -- seconds between two messages
    about TEXT NOT NULL DEFAULT 'all', -- all, sos, alarms
    quiet TEXT NOT NULL DEFAULT '', -- quiet hours, `none`, or empty for those of the workspace
    language TEXT NOT NULL DEFAULT 'en' -- language of the messages
);
CREATE INDEX alarm_contact_of_workspace ON alarm_contact (workspace);

CREATE TABLE alarm_message ( -- message to a contact about an incident
    id {id},
    sos {int} NOT NULL REFERENCES sos ON DELETE CASCADE,
    contact {int} NOT NULL REFERENCES alarm_contact ON DELETE CASCADE,
    message_id TEXT NOT NULL, -- globally unique id
    why TEXT NOT NULL, -- raised, escalated, again, reply, asked
    state TEXT NOT NULL, -- waiting, handed over, failed, not needed
    not_before {real} NOT NULL,
    claimed_until {real} NOT NULL DEFAULT 0,
    attempts {int} NOT NULL DEFAULT 0,
    claimed_by {int} NOT NULL DEFAULT 0, -- number in `worker`
    round {int} NOT NULL DEFAULT 1, -- number of the message to the contact, from 1
    text TEXT NOT NULL DEFAULT '', -- text for `reply` and `asked`, or empty
    reached TEXT NOT NULL DEFAULT '', -- report of the service: delivered, failed, or empty
    held {int} NOT NULL DEFAULT 0 -- 1 if quiet hours delay or have delayed the message
);
CREATE INDEX alarm_message_due ON alarm_message (not_before) WHERE state = 'waiting';
CREATE INDEX alarm_message_of_sos ON alarm_message (sos);
CREATE INDEX alarm_message_by_id ON alarm_message (message_id);

CREATE TABLE alarm_link ( -- link with which a contact acknowledges an SOS once
    id {id},
    sos {int} NOT NULL REFERENCES sos ON DELETE CASCADE,
    name TEXT NOT NULL, -- name of the notified person
    message_id TEXT NOT NULL UNIQUE, -- id of the message with the link
    expires {real} NOT NULL,
    used {real}, -- time of use, or NULL
    contact {int}, -- notified contact, NULL for a webhook
    code TEXT NOT NULL DEFAULT '' -- six digits that replace the link in a reply
);
CREATE INDEX alarm_link_of_sos ON alarm_link (sos);

CREATE TABLE sending ( -- message to an address in the last day, counted for the daily limits
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    address TEXT NOT NULL, -- address, or the host of a webhook
    what TEXT NOT NULL, -- test, letter, reply, webhook
    at {real} NOT NULL
);
CREATE INDEX sending_of_workspace ON sending (workspace);
CREATE INDEX sending_at ON sending (at);

CREATE TABLE contact_answer ( -- incoming answer. Each id of a service is stored once
    id {id},
    kind TEXT NOT NULL, -- kind of contact
    service_id TEXT NOT NULL, -- id that the service gave the answer
    at {real} NOT NULL,
    sender TEXT NOT NULL, -- address of the sender, not authenticated
    outcome TEXT NOT NULL, -- result in a few words
    UNIQUE (kind, service_id)
);
CREATE INDEX contact_answer_of_sender ON contact_answer (kind, sender, at);
CREATE INDEX contact_answer_at ON contact_answer (at);

CREATE TABLE console_stream ( -- console that is open or was closed recently
    process TEXT NOT NULL REFERENCES process ON DELETE CASCADE,
    stream {int} NOT NULL, -- number of the console in the process
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    member {int} NOT NULL REFERENCES member ON DELETE CASCADE,
    until {real}, -- time by which a closed console must return, NULL while it is open
    PRIMARY KEY (process, stream)
);
CREATE INDEX console_stream_of_workspace ON console_stream (workspace);

CREATE TABLE shift ( -- watch of a dispatcher at the desk
    id {id},
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    member {int} NOT NULL REFERENCES member ON DELETE CASCADE,
    begun {real} NOT NULL,
    until {real} NOT NULL, -- time of the automatic end
    ended {real}, -- time when the dispatcher ended or handed over the watch, or NULL
    heir {int} REFERENCES member ON DELETE SET NULL, -- member who is asked to take over, or NULL
    note TEXT NOT NULL DEFAULT '' -- note for the next dispatcher, or empty
);
CREATE INDEX shift_of_workspace ON shift (workspace, id);

CREATE TABLE watch_hours ( -- hours in which a dispatcher must be on watch
    workspace {int} PRIMARY KEY REFERENCES workspace ON DELETE CASCADE,
    begins {int} NOT NULL, -- minute of the UTC day
    ends {int} NOT NULL, -- minute of the UTC day
    alone {real}, -- beginning of the time without a dispatcher, or NULL
    alarm {int}, -- incident of the alarm, or NULL
    due {real} NOT NULL -- time of the next check
);

CREATE TABLE fence ( -- shape on the map. Kits that cross its border raise an alarm
    id {id},
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    name TEXT NOT NULL,
    shape TEXT NOT NULL, -- JSON
    tells TEXT NOT NULL, -- crossings that raise an alarm: enter, leave, both
    named {int} NOT NULL DEFAULT 0, -- 1 if the fence applies only to the kits in `fence_kit`
    team {int} REFERENCES team ON DELETE SET NULL, -- only for kits of this group, NULL for all kits
    created {real} NOT NULL
);
CREATE INDEX fence_of_workspace ON fence (workspace, id);

CREATE TABLE fence_kit ( -- kit to which a fence applies
    fence {int} NOT NULL REFERENCES fence ON DELETE CASCADE,
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    PRIMARY KEY (fence, device)
);
CREATE INDEX fence_kit_of_device ON fence_kit (device);

CREATE TABLE fence_standing ( -- side of a fence on which a kit is
    fence {int} NOT NULL REFERENCES fence ON DELETE CASCADE,
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    inside {int}, -- 1 if the newest clear position is inside, 0 if outside, NULL if none
    clear {real} NOT NULL DEFAULT 0, -- time of that position by the kit's clock, 0 if none
    newest {real} NOT NULL DEFAULT 0, -- time of the newest position, clear or not, 0 if none
    alarm {int}, -- last incident about a crossing, or NULL
    PRIMARY KEY (fence, device)
);
CREATE INDEX fence_standing_of_device ON fence_standing (device);

CREATE TABLE route ( -- plan that a kit is at a place by a time
    id {id},
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    name TEXT NOT NULL, -- name of the place
    shape TEXT NOT NULL, -- JSON with the shape of the place
    due {real} NOT NULL, -- time of arrival
    margin {int} NOT NULL, -- seconds after `due` until the kit is overdue
    created {real} NOT NULL,
    arrived {real}, -- time of the position at the place, by the kit's clock, or NULL
    alarm {int}, -- incident because the kit is overdue, or NULL
    ended {real}, -- time when the kit arrived or a person ended the route, or NULL
    ended_by TEXT NOT NULL DEFAULT '', -- name of the person who ended the route, or empty
    why TEXT NOT NULL DEFAULT '' -- reason for the end, or empty
);
CREATE INDEX route_of_workspace ON route (workspace, id);
CREATE INDEX route_under_way ON route (device) WHERE ended IS NULL;
