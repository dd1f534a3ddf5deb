-- Satellite and SMS: messages to and from operators, and their cost.

CREATE TABLE mobile_terminated ( -- MT message, which is on disk before the call to the operator
    id {id},
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    body {blob} NOT NULL,
    pieces TEXT NOT NULL, -- JSON: item, position and number of fragments
    urgent {int} NOT NULL,
    state TEXT NOT NULL, -- ready, calling, doubtful
    tries {int} NOT NULL DEFAULT 0,
    not_before {real} NOT NULL DEFAULT 0,
    claimed_until {real} NOT NULL DEFAULT 0,
    created {real} NOT NULL,
    trouble TEXT NOT NULL DEFAULT '',
        -- scope of the last failed call: message, device, account, gateway, or empty
    code TEXT NOT NULL DEFAULT '', -- code of the failure, or empty
    reason TEXT NOT NULL DEFAULT '',
    claimed_by {int} NOT NULL DEFAULT 0, -- number in `worker`
    receipts TEXT NOT NULL DEFAULT '[]' -- JSON: ids in `receipt`
);
CREATE INDEX mobile_terminated_of_device ON mobile_terminated (device, id);

CREATE TABLE mt_copy ( -- MT message that an operator has accepted, until its kit confirms it
    id {id},
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    at {real} NOT NULL,
    size {int} NOT NULL, -- bytes
    guard {int} NOT NULL, -- checksum that the modem appends
    items TEXT NOT NULL, -- JSON: ids in `item`
    receipts TEXT NOT NULL, -- JSON: ids in `receipt`
    operator_id TEXT NOT NULL DEFAULT '', -- the operator's id of the message, or empty
    arrived {real} -- time of the operator's report that the modem has the message, or NULL
);
CREATE INDEX mt_copy_of_device ON mt_copy (device, at);

CREATE TABLE handed_over ( -- MT message that an operator has accepted, by the operator's id
    operator TEXT NOT NULL,
    id TEXT NOT NULL,
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    at {real} NOT NULL,
    state TEXT NOT NULL, -- state as the operator reports it, or empty
    ended {int} NOT NULL, -- 1 if the message is in the modem
    PRIMARY KEY (operator, id)
);
CREATE INDEX handed_over_of_device ON handed_over (device, at);

CREATE TABLE ring_alert ( -- modem that has not fetched its messages from the gateway
    device {int} PRIMARY KEY REFERENCES device ON DELETE CASCADE,
    waiting {int} NOT NULL, -- number of MT messages at the gateway
    rung {int} NOT NULL, -- number of ring alerts since the last accepted or fetched message
    due {real} NOT NULL, -- time of the next ring alert
    until {real} NOT NULL -- end of the ring alerts
);

CREATE TABLE operator_message ( -- MO message that an operator has delivered, by the operator's id
    operator TEXT NOT NULL,
    id TEXT NOT NULL,
    at {real} NOT NULL,
    PRIMARY KEY (operator, id)
);
CREATE INDEX operator_message_by_age ON operator_message (at);

CREATE TABLE operator_fetched ( -- end of the time whose stored MO messages the hub has fetched
    operator TEXT PRIMARY KEY,
    until {real} NOT NULL
);

CREATE TABLE kit_sms ( -- kit that sends by SMS
    device {int} PRIMARY KEY REFERENCES device ON DELETE CASCADE,
    number TEXT NOT NULL, -- telephone number that sent the last frame
    kind TEXT NOT NULL, -- service of the last frame, as a kind of contact
    at {real} NOT NULL, -- time of the last frame, or earlier after three unconfirmed copies
    seen TEXT NOT NULL DEFAULT '', -- tags of the last frames from the kit, hexadecimal
    owed TEXT NOT NULL DEFAULT '', -- tags that the hub must still acknowledge to the kit
    tag TEXT NOT NULL DEFAULT '', -- tag of the last frame to the kit, empty once acknowledged
    load TEXT NOT NULL DEFAULT '', -- JSON with the content of that frame, or empty
    text TEXT NOT NULL DEFAULT '', -- text of that frame
    copies {int} NOT NULL DEFAULT 0, -- number of copies of that frame, without failed copies
    attempts {int} NOT NULL DEFAULT 0, -- number of consecutive failures
    day TEXT NOT NULL DEFAULT '', -- UTC day of `today`
    today {int} NOT NULL DEFAULT 0, -- number of SMS to the kit on that day
    not_before {real} NOT NULL,
    claimed_until {real} NOT NULL DEFAULT 0,
    claimed_by {int} NOT NULL DEFAULT 0, -- number in `worker`
    workspace {int} NOT NULL DEFAULT 0 -- workspace of the device
);
CREATE INDEX kit_sms_of_workspace ON kit_sms (workspace);

CREATE TABLE spent ( -- size and cost of the MT messages to a device on a UTC day
    day TEXT NOT NULL,
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    bytes {int} NOT NULL,
    credits {int} NOT NULL,
    PRIMARY KEY (day, device)
);

CREATE TABLE mo_session ( -- MO session of a modem, as reported by its operator
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    session TEXT NOT NULL, -- the operator's id of the session
    day TEXT NOT NULL,
    bytes {int} NOT NULL,
    credits {int} NOT NULL, -- 0 for a modem that is billed by bytes
    PRIMARY KEY (device, session)
);
CREATE INDEX mo_session_by_day ON mo_session (day, device);

CREATE TABLE operator_count ( -- usage of a device on a UTC day, as counted by its operator
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    day TEXT NOT NULL,
    operator TEXT NOT NULL,
    messages {int} NOT NULL,
    credits {int} NOT NULL,
    bytes {int} NOT NULL,
    unknown TEXT NOT NULL, -- JSON: sessions that the hub did not receive
    PRIMARY KEY (device, day)
);

CREATE TABLE operator_balance ( -- last reported balance of one plan of an account
    operator TEXT NOT NULL,
    plan TEXT NOT NULL,
    remaining {real} NOT NULL, -- amount in the plan's own unit
    at {real} NOT NULL,
    PRIMARY KEY (operator, plan)
);

CREATE TABLE operator_trouble ( -- problem with an operator's account, for one workspace
    operator TEXT NOT NULL, -- operator, followed by ` balance` if the balance is low
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    alarm {int}, -- incident in `sos`
    PRIMARY KEY (operator, workspace)
);
