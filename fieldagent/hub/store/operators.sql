-- Satellite and SMS: messages to and from operators, and their cost.

CREATE TABLE mobile_terminated ( -- an MT message, on disk before the call to the operator
    id {id},
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    body {blob} NOT NULL,
    pieces TEXT NOT NULL,
    urgent {int} NOT NULL,
    state TEXT NOT NULL, -- ready, calling, doubtful
    tries {int} NOT NULL DEFAULT 0,
    not_before {real} NOT NULL DEFAULT 0,
    claimed_until {real} NOT NULL DEFAULT 0,
    created {real} NOT NULL,
    trouble TEXT NOT NULL DEFAULT '',
        -- cause of the last failed call: message, device, account, gateway
    code TEXT NOT NULL DEFAULT '', -- from the operator
    reason TEXT NOT NULL DEFAULT '',
    claimed_by {int} NOT NULL DEFAULT 0,
    receipts TEXT NOT NULL DEFAULT '[]' -- receipts in the message
);
CREATE INDEX mobile_terminated_of_device ON mobile_terminated (device, id);

CREATE TABLE mt_copy ( -- an accepted MT message, until its kit confirms it
    id {id},
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    at {real} NOT NULL,
    size {int} NOT NULL, -- bytes
    guard {int} NOT NULL, -- checksum in the modem
    items TEXT NOT NULL, -- JSON
    receipts TEXT NOT NULL,
    operator_id TEXT NOT NULL DEFAULT '',
    arrived {real} -- time when the operator reported it in the modem
);
CREATE INDEX mt_copy_of_device ON mt_copy (device, at);

CREATE TABLE handed_over ( -- an MT message that an operator has, by its own id
    operator TEXT NOT NULL,
    id TEXT NOT NULL,
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    at {real} NOT NULL,
    state TEXT NOT NULL, -- in the operator's words
    ended {int} NOT NULL, -- 1: it is in the modem
    PRIMARY KEY (operator, id)
);
CREATE INDEX handed_over_of_device ON handed_over (device, at);

CREATE TABLE ring_alert ( -- a modem with unfetched messages at the gateway
    device {int} PRIMARY KEY REFERENCES device ON DELETE CASCADE,
    waiting {int} NOT NULL, -- MT messages
    rung {int} NOT NULL, -- alerts since the last accepted or fetched message
    due {real} NOT NULL,
    until {real} NOT NULL
);

CREATE TABLE operator_message ( -- an MO message from an operator, by its own id
    operator TEXT NOT NULL,
    id TEXT NOT NULL,
    at {real} NOT NULL,
    PRIMARY KEY (operator, id)
);
CREATE INDEX operator_message_by_age ON operator_message (at);

CREATE TABLE operator_fetched ( -- end of the time whose kept MO messages were fetched
    operator TEXT PRIMARY KEY,
    until {real} NOT NULL
);

CREATE TABLE kit_sms ( -- a kit that sends by SMS
    device {int} PRIMARY KEY REFERENCES device ON DELETE CASCADE,
    number TEXT NOT NULL, -- sender of its last frame
    kind TEXT NOT NULL, -- kind of contact: the service
    at {real} NOT NULL, -- of the last frame
    seen TEXT NOT NULL DEFAULT '', -- tags of its last frames, hexadecimal
    owed TEXT NOT NULL DEFAULT '', -- tags still to be acknowledged to it
    tag TEXT NOT NULL DEFAULT '', -- of the last frame to it, until acknowledged
    load TEXT NOT NULL DEFAULT '', -- content of that frame: JSON; empty: only acknowledgements
    text TEXT NOT NULL DEFAULT '', -- of that SMS
    copies {int} NOT NULL DEFAULT 0, -- of it, accepted by the service
    attempts {int} NOT NULL DEFAULT 0, -- consecutive refusals by the service
    day TEXT NOT NULL DEFAULT '',
    today {int} NOT NULL DEFAULT 0, -- SMS to it on that day
    not_before {real} NOT NULL,
    claimed_until {real} NOT NULL DEFAULT 0,
    claimed_by {int} NOT NULL DEFAULT 0,
    workspace {int} NOT NULL DEFAULT 0 -- of the device
);
CREATE INDEX kit_sms_of_workspace ON kit_sms (workspace);

CREATE TABLE spent (
    day TEXT NOT NULL,
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    bytes {int} NOT NULL,
    credits {int} NOT NULL,
    PRIMARY KEY (day, device)
);

CREATE TABLE mo_session ( -- satellite session of a modem, from its operator
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    session TEXT NOT NULL, -- the operator's name for it
    day TEXT NOT NULL,
    bytes {int} NOT NULL,
    credits {int} NOT NULL,
    PRIMARY KEY (device, session)
);
CREATE INDEX mo_session_by_day ON mo_session (day, device);

CREATE TABLE operator_count ( -- an operator's own count
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    day TEXT NOT NULL,
    operator TEXT NOT NULL,
    messages {int} NOT NULL,
    credits {int} NOT NULL,
    bytes {int} NOT NULL,
    unknown TEXT NOT NULL, -- JSON: sessions that did not arrive here
    PRIMARY KEY (device, day)
);

CREATE TABLE operator_balance ( -- last reported balance of an account
    operator TEXT NOT NULL,
    plan TEXT NOT NULL,
    remaining {real} NOT NULL, -- in the plan's own unit
    at {real} NOT NULL,
    PRIMARY KEY (operator, plan)
);

CREATE TABLE operator_trouble ( -- trouble with an operator's account
    operator TEXT NOT NULL,
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    alarm {int}, -- its number in `sos`
    PRIMARY KEY (operator, workspace)
);
