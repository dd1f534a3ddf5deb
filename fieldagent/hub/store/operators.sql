-- Satellite and SMS: what operators were given, brought, and ask money for.

CREATE TABLE mobile_terminated ( -- an MT message: on disk before the operator is called
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
        -- what its last call failed for: message, device, account, gateway
    code TEXT NOT NULL DEFAULT '', -- the operator's
    reason TEXT NOT NULL DEFAULT '',
    claimed_by {int} NOT NULL DEFAULT 0,
    receipts TEXT NOT NULL DEFAULT '[]' -- that are in it
);
CREATE INDEX mobile_terminated_of_device ON mobile_terminated (device, id);

CREATE TABLE mt_copy ( -- an MT message that an operator has taken, until its kit has confirmed it
    id {id},
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    at {real} NOT NULL,
    size {int} NOT NULL, -- bytes
    guard {int} NOT NULL, -- by which the modem checks it
    items TEXT NOT NULL, -- JSON
    receipts TEXT NOT NULL,
    operator_id TEXT NOT NULL DEFAULT '',
    arrived {real} -- when the operator told that the modem has it
);
CREATE INDEX mt_copy_of_device ON mt_copy (device, at);

CREATE TABLE handed_over ( -- an MT message that an operator has, by its own id
    operator TEXT NOT NULL,
    id TEXT NOT NULL,
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    at {real} NOT NULL,
    state TEXT NOT NULL, -- in the operator's words
    ended {int} NOT NULL, -- it is in the modem
    PRIMARY KEY (operator, id)
);
CREATE INDEX handed_over_of_device ON handed_over (device, at);

CREATE TABLE ring_alert ( -- a modem for which the gateway keeps what nobody has fetched
    device {int} PRIMARY KEY REFERENCES device ON DELETE CASCADE,
    waiting {int} NOT NULL, -- MT messages
    rung {int} NOT NULL, -- how often since the last was taken or fetched
    due {real} NOT NULL,
    until {real} NOT NULL
);

CREATE TABLE operator_message ( -- an MO message that an operator brought, by its own id
    operator TEXT NOT NULL,
    id TEXT NOT NULL,
    at {real} NOT NULL,
    PRIMARY KEY (operator, id)
);
CREATE INDEX operator_message_by_age ON operator_message (at);

CREATE TABLE operator_fetched ( -- until when MO messages were fetched that it kept
    operator TEXT PRIMARY KEY,
    until {real} NOT NULL
);

CREATE TABLE kit_sms ( -- a kit that writes by SMS
    device {int} PRIMARY KEY REFERENCES device ON DELETE CASCADE,
    number TEXT NOT NULL, -- that its last frame came from
    kind TEXT NOT NULL, -- of contact: by which service
    at {real} NOT NULL, -- when that was
    seen TEXT NOT NULL DEFAULT '', -- tags of its last frames, hexadecimal
    owed TEXT NOT NULL DEFAULT '', -- those that it is to be told are here
    tag TEXT NOT NULL DEFAULT '', -- of what went to it last and it has not acknowledged
    load TEXT NOT NULL DEFAULT '', -- what is in that: JSON; empty: nothing but acknowledgements
    text TEXT NOT NULL DEFAULT '', -- of that SMS
    copies {int} NOT NULL DEFAULT 0, -- of it, handed to the service
    attempts {int} NOT NULL DEFAULT 0, -- that the service refused, in a row
    day TEXT NOT NULL DEFAULT '',
    today {int} NOT NULL DEFAULT 0, -- SMS to it on that day
    not_before {real} NOT NULL,
    claimed_until {real} NOT NULL DEFAULT 0,
    claimed_by {int} NOT NULL DEFAULT 0
);

CREATE TABLE spent (
    day TEXT NOT NULL,
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    bytes {int} NOT NULL,
    credits {int} NOT NULL,
    PRIMARY KEY (day, device)
);

CREATE TABLE mo_session ( -- of a modem, as its operator brought it
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    session TEXT NOT NULL, -- the operator's name for it
    day TEXT NOT NULL,
    bytes {int} NOT NULL,
    credits {int} NOT NULL,
    PRIMARY KEY (device, session)
);
CREATE INDEX mo_session_by_day ON mo_session (day, device);

CREATE TABLE operator_count ( -- what an operator has counted
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    day TEXT NOT NULL,
    operator TEXT NOT NULL,
    messages {int} NOT NULL,
    credits {int} NOT NULL,
    bytes {int} NOT NULL,
    unknown TEXT NOT NULL, -- JSON: sessions that did not come here
    PRIMARY KEY (device, day)
);

CREATE TABLE operator_balance ( -- what is left of an account, as its operator told last
    operator TEXT NOT NULL,
    plan TEXT NOT NULL,
    remaining {real} NOT NULL, -- in the plan's own unit
    at {real} NOT NULL,
    PRIMARY KEY (operator, plan)
);

CREATE TABLE operator_trouble ( -- with an operator's account
    operator TEXT NOT NULL,
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    alarm {int}, -- its number among the SOS
    PRIMARY KEY (operator, workspace)
);
