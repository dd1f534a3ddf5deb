-- How each kit is, and what it is told to be.

CREATE TABLE contact ( -- what was heard of a device last; apart: device rows are locked in order
    device {int} PRIMARY KEY REFERENCES device ON DELETE CASCADE,
    at {real} NOT NULL,
    way TEXT NOT NULL, -- ip, satellite, radio (another device brought it)
    version TEXT NOT NULL DEFAULT '',
    latitude {real},
    longitude {real},
    position_at {real},
    check_in_word {int}, -- the number of what it asked with last
    last_update TEXT NOT NULL DEFAULT '', -- how it ended, for people
    installed TEXT NOT NULL DEFAULT '', -- how its program is
    modems TEXT NOT NULL DEFAULT '', -- JSON: how they hear, batteries
    modems_at {real}
);

CREATE TABLE kit_condition ( -- how a kit is, as it told last
    device {int} PRIMARY KEY REFERENCES device ON DELETE CASCADE,
    at {real} NOT NULL, -- when its status came
    way TEXT NOT NULL, -- as of command.way
    status {blob} NOT NULL, -- as it answers the command of that name
    about TEXT NOT NULL DEFAULT '', -- JSON: what it tells over its link alone; empty: nothing yet
    about_at {real}
);

CREATE TABLE tracker ( -- a device that is a tracker of somebody else's, and no kit
    device {int} PRIMARY KEY REFERENCES device ON DELETE CASCADE,
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    ident TEXT NOT NULL, -- what it calls itself
    every {int} NOT NULL, -- seconds between two positions that people are told of
    alarm TEXT NOT NULL DEFAULT '', -- that its last report had
    at {real} NOT NULL DEFAULT 0, -- of its newest position
    told {real} NOT NULL DEFAULT 0, -- of the newest that people were told of
    UNIQUE (workspace, ident)
);

CREATE TABLE settings_offer ( -- what a kit is to set, signed by its operator
    device {int} PRIMARY KEY REFERENCES device ON DELETE CASCADE,
    number {int} NOT NULL, -- rises
    text TEXT NOT NULL,
    signature TEXT NOT NULL,
    offered {real} NOT NULL,
    state TEXT NOT NULL, -- offered, waiting (on the kit), trial, taken, refused, back
    why TEXT NOT NULL DEFAULT ''
);

CREATE TABLE update_offer ( -- a program for many kits, in waves
    number {int} PRIMARY KEY, -- rises
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    version TEXT NOT NULL,
    url TEXT NOT NULL,
    within {real} NOT NULL, -- seconds in which a kit that has begun is to be back
    wave {int} NOT NULL, -- that is told now, and all before
    state TEXT NOT NULL, -- under way, done, stopped
    why TEXT NOT NULL DEFAULT '',
    made {real} NOT NULL
);

CREATE TABLE update_offer_kit (
    offer {int} NOT NULL REFERENCES update_offer ON DELETE CASCADE,
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    wave {int} NOT NULL, -- from 1; 0 of one that is not told
    state TEXT NOT NULL, -- planned, offered, waiting (on the kit), trial, taken, refused, back …
    why TEXT NOT NULL DEFAULT '',
    since {real}, -- that it has begun
    PRIMARY KEY (offer, device)
);
CREATE INDEX update_offer_kit_of_device ON update_offer_kit (device);

CREATE TABLE command ( -- to a kit (`records.commands`)
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    number {int} NOT NULL,
    verb {int} NOT NULL,
    body {blob} NOT NULL, -- an envelope with its entry
    bearer TEXT NOT NULL, -- by which alone it goes: ip, satellite; empty: either
    given {real} NOT NULL,
    expires {real} NOT NULL,
    satellite_from {real}, -- when it may be paid for; null is never
    not_before {real} NOT NULL DEFAULT 0,
    state TEXT NOT NULL, -- waiting, packed, stored, answered
    reason TEXT NOT NULL DEFAULT '',
    outcome {int},
    answer {blob},
    answered {real},
    way TEXT, -- by which its answer came
    carrier {int}, -- a kit that is to bring it down by radio
    journal {int}, -- that one's
    carried {real},
    PRIMARY KEY (device, number)
);
CREATE INDEX command_waiting ON command (device, number) WHERE state IN ('waiting', 'packed');

CREATE TABLE radio_key ( -- which the kits of a workspace are to have
    workspace {int} PRIMARY KEY REFERENCES workspace ON DELETE CASCADE,
    key {blob} NOT NULL,
    step {int} NOT NULL, -- 1 to 3, as a kit takes them
    began {real} NOT NULL,
    stepped {real} NOT NULL,
    ended {real}, -- since when all have it alone
    bearer TEXT NOT NULL -- as a command's
);

CREATE TABLE radio_key_kit ( -- how far a kit has come with it
    device {int} PRIMARY KEY REFERENCES device ON DELETE CASCADE,
    step {int} NOT NULL DEFAULT 0,
    asked {int} NOT NULL DEFAULT 0, -- for which step last
    number {int} NOT NULL DEFAULT 0, -- by which command
    given {real} NOT NULL DEFAULT 0,
    outcome {int}, -- of that; null: it has not answered
    said TEXT NOT NULL DEFAULT '',
    left_out {int} NOT NULL DEFAULT 0, -- 1: nobody waits for it
    at {real} -- when it answered last
);

CREATE TABLE rebuild ( -- what a kit gives back to a database that was restored
    device {int} PRIMARY KEY REFERENCES device ON DELETE CASCADE,
    since {real} NOT NULL,
    state TEXT NOT NULL, -- open, done
    direction {int} NOT NULL DEFAULT 0, -- 0: what it sent, 1: what it got
    place {int} NOT NULL DEFAULT 0, -- of the kit's, up to which it has been asked
    listed {int} NOT NULL DEFAULT 0, -- items that it has
    missing {int} NOT NULL DEFAULT 0,
    back {int} NOT NULL DEFAULT 0,
    gone {int} NOT NULL DEFAULT 0,
    held {blob}, -- what it said as it was found out
    ended {real}
);
