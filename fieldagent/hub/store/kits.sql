-- State of each kit, and the commands, settings and updates for kits.

CREATE TABLE contact ( -- last contact with a device. Not in `device`, whose locks have an order
    device {int} PRIMARY KEY REFERENCES device ON DELETE CASCADE,
    at {real} NOT NULL,
    way TEXT NOT NULL, -- bearer: ip, satellite, sms, radio (relayed by another kit), tracker, APRS
    version TEXT NOT NULL DEFAULT '', -- version of the agent, or empty
    latitude {real},
    longitude {real},
    position_at {real}, -- time of the position
    check_in_word {int}, -- number of the item with the last check-in request, or NULL
    last_update TEXT NOT NULL DEFAULT '', -- result of the last update for people, or empty
    installed TEXT NOT NULL DEFAULT '', -- kind of installation, such as zipapp, or empty
    modems TEXT NOT NULL DEFAULT '', -- JSON with signals and batteries, or empty
    modems_at {real}, -- arrival time of `modems`
    altitude {real}, -- metres
    speed {real}, -- metres per second over ground
    course {real} -- degrees from true north
);

CREATE TABLE kit_condition ( -- last condition that a kit has reported
    device {int} PRIMARY KEY REFERENCES device ON DELETE CASCADE,
    at {real} NOT NULL, -- arrival time of the status
    way TEXT NOT NULL, -- bearer of the status, as in `command`
    status {blob} NOT NULL, -- status, encoded as in the answer to the command `status`
    about TEXT NOT NULL DEFAULT '', -- JSON with details that kits report only over IP, or empty
    about_at {real} -- arrival time of `about`
);

CREATE TABLE tracker ( -- third-party tracker, which is a device without an agent
    device {int} PRIMARY KEY REFERENCES device ON DELETE CASCADE,
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    ident TEXT NOT NULL, -- id that the tracker reports
    every {int} NOT NULL, -- smallest number of seconds between two published positions
    alarm TEXT NOT NULL DEFAULT '', -- alarms in the last report, separated by commas
    at {real} NOT NULL DEFAULT 0, -- time of the newest report
    told {real} NOT NULL DEFAULT 0, -- time of the last published position, 0 if none
    UNIQUE (workspace, ident)
);

CREATE TABLE settings_offer ( -- settings for a kit, signed by the kit's operator
    device {int} PRIMARY KEY REFERENCES device ON DELETE CASCADE,
    number {int} NOT NULL, -- number, which is higher than the number of each earlier offer
    text TEXT NOT NULL,
    signature TEXT NOT NULL,
    offered {real} NOT NULL,
    state TEXT NOT NULL, -- offered, waiting (on the kit), trial, taken, refused, back
    why TEXT NOT NULL DEFAULT ''
);

CREATE TABLE update_offer ( -- program for many kits, offered in waves
    number {int} PRIMARY KEY, -- number, which is higher than the number of each earlier offer
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    version TEXT NOT NULL,
    url TEXT NOT NULL,
    within {real} NOT NULL, -- seconds in which an updating kit must reconnect
    wave {int} NOT NULL, -- current wave, 0 before the first wave. Earlier waves are included
    state TEXT NOT NULL, -- under way, done, stopped
    why TEXT NOT NULL DEFAULT '',
    made {real} NOT NULL
);

CREATE TABLE update_offer_kit ( -- kit of an update offer
    offer {int} NOT NULL REFERENCES update_offer ON DELETE CASCADE,
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    wave {int} NOT NULL, -- number of the wave from 1, 0 if the kit gets no offer
    state TEXT NOT NULL, -- planned, late, left out, or a state as in `settings_offer`
    why TEXT NOT NULL DEFAULT '',
    since {real}, -- time of the kit's first report, or NULL
    PRIMARY KEY (offer, device)
);
CREATE INDEX update_offer_kit_of_device ON update_offer_kit (device);

CREATE TABLE command ( -- command from the hub to a kit (`records.commands`)
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    number {int} NOT NULL,
    verb {int} NOT NULL, -- number in `wire.command`
    body {blob} NOT NULL, -- envelope with one entry
    bearer TEXT NOT NULL, -- only bearer that may be used: ip, satellite, or empty for any bearer
    given {real} NOT NULL,
    expires {real} NOT NULL,
    satellite_from {real}, -- time from which the command may cost credits, NULL for never
    not_before {real} NOT NULL DEFAULT 0,
    state TEXT NOT NULL, -- waiting, packed, stored, answered
    reason TEXT NOT NULL DEFAULT '',
    outcome {int}, -- CommandOutcome of `package.package`, NULL without an answer
    answer {blob},
    answered {real},
    way TEXT, -- bearer of the answer, as shown to people, or NULL
    carrier {int}, -- kit that relays the command by radio, or NULL
    journal {int}, -- number of the carrier's journal
    carried {real},
    PRIMARY KEY (device, number)
);
CREATE INDEX command_waiting ON command (device, number) WHERE state IN ('waiting', 'packed');

CREATE TABLE radio_key ( -- last change of the radio key of a workspace
    workspace {int} PRIMARY KEY REFERENCES workspace ON DELETE CASCADE,
    key {blob} NOT NULL, -- new key
    step {int} NOT NULL, -- 1 to 3, the step that the kits are asked for
    began {real} NOT NULL,
    stepped {real} NOT NULL, -- beginning of the step
    ended {real}, -- time when the last kit confirmed the last step, or NULL
    bearer TEXT NOT NULL -- bearer as in `command`
);

CREATE TABLE radio_key_kit ( -- progress of one kit in the change of the radio key
    device {int} PRIMARY KEY REFERENCES device ON DELETE CASCADE,
    step {int} NOT NULL DEFAULT 0, -- last confirmed step, 0 if none
    asked {int} NOT NULL DEFAULT 0, -- last requested step, 0 if none
    number {int} NOT NULL DEFAULT 0, -- number of the command with this request, 0 if none
    given {real} NOT NULL DEFAULT 0,
    outcome {int}, -- CommandOutcome of this command, NULL without an answer
    said TEXT NOT NULL DEFAULT '', -- answer for people, or empty
    left_out {int} NOT NULL DEFAULT 0, -- 1 if the change does not wait for the kit
    at {real} -- time of the last answer, or NULL
);

CREATE TABLE rebuild ( -- recovery of items from a kit, after the database was restored
    device {int} PRIMARY KEY REFERENCES device ON DELETE CASCADE,
    since {real} NOT NULL,
    state TEXT NOT NULL, -- open, done
    direction {int} NOT NULL DEFAULT 0, -- 0 for items that the kit sent, 1 for received items
    place {int} NOT NULL DEFAULT 0, -- place on the kit up to which the hub has all items
    listed {int} NOT NULL DEFAULT 0, -- number of items that the kit has listed
    missing {int} NOT NULL DEFAULT 0, -- number of items that the hub did not have
    back {int} NOT NULL DEFAULT 0, -- number of recovered items
    gone {int} NOT NULL DEFAULT 0, -- number of missing items that the kit no longer has
    held {blob}, -- the kit's summary when the loss was detected, or NULL
    ended {real}
);
