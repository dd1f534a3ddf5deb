-- State of each kit, and orders to it.

CREATE TABLE contact ( -- last contact of a device; apart: device rows are locked in order
    device {int} PRIMARY KEY REFERENCES device ON DELETE CASCADE,
    at {real} NOT NULL,
    way TEXT NOT NULL, -- ip, satellite, radio (another device brought it)
    version TEXT NOT NULL DEFAULT '',
    latitude {real},
    longitude {real},
    position_at {real},
    check_in_word {int}, -- number of its last check-in request
    last_update TEXT NOT NULL DEFAULT '', -- result, for people
    installed TEXT NOT NULL DEFAULT '', -- state of its program
    modems TEXT NOT NULL DEFAULT '', -- JSON: signal, batteries
    modems_at {real},
    altitude {real}, -- metres, of the position
    speed {real}, -- metres per second over ground
    course {real} -- degrees from true north
);

CREATE TABLE kit_condition ( -- last reported state of a kit
    device {int} PRIMARY KEY REFERENCES device ON DELETE CASCADE,
    at {real} NOT NULL, -- arrival of the status
    way TEXT NOT NULL, -- as in command.way
    status {blob} NOT NULL, -- as in the answer to `status`
    about TEXT NOT NULL DEFAULT '', -- JSON: details sent only over IP; empty: none yet
    about_at {real}
);

CREATE TABLE tracker ( -- a third-party tracker instead of a kit
    device {int} PRIMARY KEY REFERENCES device ON DELETE CASCADE,
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    ident TEXT NOT NULL, -- its own name
    every {int} NOT NULL, -- seconds between two published positions
    alarm TEXT NOT NULL DEFAULT '', -- in its last report
    at {real} NOT NULL DEFAULT 0, -- time of its newest position
    told {real} NOT NULL DEFAULT 0, -- time of the last published position
    UNIQUE (workspace, ident)
);

CREATE TABLE settings_offer ( -- settings for a kit, signed by its operator
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
    within {real} NOT NULL, -- seconds in which an updating kit must return
    wave {int} NOT NULL, -- current wave; earlier ones are included
    state TEXT NOT NULL, -- under way, done, stopped
    why TEXT NOT NULL DEFAULT '',
    made {real} NOT NULL
);

CREATE TABLE update_offer_kit (
    offer {int} NOT NULL REFERENCES update_offer ON DELETE CASCADE,
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    wave {int} NOT NULL, -- from 1; 0: not offered
    state TEXT NOT NULL, -- planned, offered, waiting (on the kit), trial, taken, refused, back …
    why TEXT NOT NULL DEFAULT '',
    since {real}, -- start of its update
    PRIMARY KEY (offer, device)
);
CREATE INDEX update_offer_kit_of_device ON update_offer_kit (device);

CREATE TABLE command ( -- to a kit (`records.commands`)
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    number {int} NOT NULL,
    verb {int} NOT NULL,
    body {blob} NOT NULL, -- an envelope with its entry
    bearer TEXT NOT NULL, -- only bearer allowed: ip, satellite; empty: either
    given {real} NOT NULL,
    expires {real} NOT NULL,
    satellite_from {real}, -- time from which it may cost credits; null: never
    not_before {real} NOT NULL DEFAULT 0,
    state TEXT NOT NULL, -- waiting, packed, stored, answered
    reason TEXT NOT NULL DEFAULT '',
    outcome {int},
    answer {blob},
    answered {real},
    way TEXT, -- bearer of its answer
    carrier {int}, -- a kit that brings it by radio
    journal {int}, -- of the carrier
    carried {real},
    PRIMARY KEY (device, number)
);
CREATE INDEX command_waiting ON command (device, number) WHERE state IN ('waiting', 'packed');

CREATE TABLE radio_key ( -- new key for the kits of a workspace
    workspace {int} PRIMARY KEY REFERENCES workspace ON DELETE CASCADE,
    key {blob} NOT NULL,
    step {int} NOT NULL, -- 1 to 3: steps of each kit
    began {real} NOT NULL,
    stepped {real} NOT NULL,
    ended {real}, -- time since which kits have only this key
    bearer TEXT NOT NULL -- as in `command`
);

CREATE TABLE radio_key_kit ( -- progress of a kit with it
    device {int} PRIMARY KEY REFERENCES device ON DELETE CASCADE,
    step {int} NOT NULL DEFAULT 0,
    asked {int} NOT NULL DEFAULT 0, -- step of the last request
    number {int} NOT NULL DEFAULT 0, -- of that command
    given {real} NOT NULL DEFAULT 0,
    outcome {int}, -- of that command; null: not answered
    said TEXT NOT NULL DEFAULT '',
    left_out {int} NOT NULL DEFAULT 0, -- 1: the change does not wait for it
    at {real} -- last answer
);

CREATE TABLE rebuild ( -- items that a kit returns to a restored database
    device {int} PRIMARY KEY REFERENCES device ON DELETE CASCADE,
    since {real} NOT NULL,
    state TEXT NOT NULL, -- open, done
    direction {int} NOT NULL DEFAULT 0, -- 0: items it sent, 1: items it got
    place {int} NOT NULL DEFAULT 0, -- last place of the kit that was asked for
    listed {int} NOT NULL DEFAULT 0, -- items that it has
    missing {int} NOT NULL DEFAULT 0,
    back {int} NOT NULL DEFAULT 0,
    gone {int} NOT NULL DEFAULT 0,
    held {blob}, -- its answer when the restore was detected
    ended {real}
);
