"""Tables of the journal. Times are seconds of elapsed time (`system.elapsed_time`) unless stated
otherwise. Places in an order are row numbers.

A later version keeps the tables and columns of earlier versions, with the same meaning, so that the
earlier program can take over a trial's content (`carry_over`). So a step to a new version may add a
table, an index, a trigger, or a column that is NULL or has a default. It must not remove or rename
anything, unless it leaves a view with the old name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fieldagent.package.delivery import Stage
from fieldagent.package.package import Channel, CommandOutcome, IncidentState, Status
from fieldagent.store.schema import Schema

OUTBOUND_TABLES_SQL = """
CREATE TABLE package (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT, -- number of the Package on the air
    id INTEGER NOT NULL,
    body TEXT NOT NULL,
    digest BLOB NOT NULL,
    idempotency_key TEXT,
    accepted REAL NOT NULL,
    expires REAL,
    status TEXT,
    ended REAL,
    crc INTEGER, -- checksum of the accepted content (`records.compute_crc`)
    dated REAL -- Unix time in the sent Package, or NULL for the time of `accepted`
) STRICT;
CREATE INDEX package_by_id ON package (id, sequence);
CREATE UNIQUE INDEX package_by_idempotency_key ON package (idempotency_key)
    WHERE idempotency_key IS NOT NULL;
CREATE INDEX package_ended ON package (ended) WHERE ended IS NOT NULL;

CREATE TABLE leg ( -- delivery of one Package on one channel
    sequence INTEGER NOT NULL REFERENCES package ON DELETE CASCADE,
    channel TEXT NOT NULL,
    status TEXT,
    reason TEXT NOT NULL DEFAULT '',
    tries INTEGER NOT NULL DEFAULT 0,
    ended REAL,
    priority INTEGER NOT NULL DEFAULT 0,
    begins REAL NOT NULL DEFAULT 0, -- earliest start in seconds after the acceptance
    PRIMARY KEY (sequence, channel)
) STRICT, WITHOUT ROWID;
CREATE INDEX leg_pending ON leg (-priority, sequence) WHERE status IS NULL;

CREATE TABLE undated ( -- unsent Packages with a date from an untrusted clock
    sequence INTEGER PRIMARY KEY REFERENCES package ON DELETE CASCADE
) STRICT;

CREATE TABLE story ( -- events of a Package on a channel before it ended there
    number INTEGER PRIMARY KEY,
    sequence INTEGER NOT NULL REFERENCES package ON DELETE CASCADE,
    channel TEXT NOT NULL,
    event TEXT NOT NULL,
    detail TEXT NOT NULL,
    at REAL NOT NULL, -- time of the last such event
    times INTEGER NOT NULL DEFAULT 1
) STRICT;
CREATE INDEX story_of ON story (sequence, channel);

CREATE TABLE intent (
    channel TEXT PRIMARY KEY,
    body BLOB NOT NULL,
    urgent INTEGER NOT NULL,
    tries INTEGER NOT NULL,
    pieces TEXT NOT NULL,
    modem TEXT NOT NULL,
    momsn INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE fragment_held ( -- fragments of a Package that a receiver has
    sequence INTEGER NOT NULL REFERENCES package ON DELETE CASCADE,
    channel TEXT NOT NULL,
    holder INTEGER NOT NULL, -- station on the air, or 0 if the channel has only one peer
    count INTEGER NOT NULL,
    position INTEGER NOT NULL,
    PRIMARY KEY (sequence, channel, holder, count, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE receipt ( -- agents that have stored a Package. `by` is an origin in `identity`
    sequence INTEGER NOT NULL REFERENCES package ON DELETE CASCADE,
    by INTEGER NOT NULL,
    at REAL NOT NULL,
    proved INTEGER NOT NULL DEFAULT 1, -- 1 if the receipt is authenticated
    PRIMARY KEY (sequence, by)
) STRICT, WITHOUT ROWID;

CREATE TABLE reached ( -- stages that a Package has reached with people, after storage on a kit
    sequence INTEGER NOT NULL REFERENCES package ON DELETE CASCADE,
    by INTEGER NOT NULL, -- origin in `identity`
    rung INTEGER NOT NULL, -- Stage of `package.delivery`
    text TEXT NOT NULL,
    at REAL NOT NULL, -- Unix time
    PRIMARY KEY (sequence, by, rung, text)
) STRICT, WITHOUT ROWID;

CREATE TABLE carried ( -- Packages of neighbours, with the numbers that the neighbours gave them
    sequence INTEGER PRIMARY KEY REFERENCES package ON DELETE CASCADE,
    origin INTEGER NOT NULL,
    origin_sequence INTEGER NOT NULL,
    back INTEGER NOT NULL DEFAULT 0 -- see `envelope.Entry.items_back`
) STRICT;
CREATE INDEX carried_by_origin ON carried (origin, origin_sequence);

CREATE TABLE forgotten ( -- highest id of the deleted Packages
    one INTEGER PRIMARY KEY CHECK (one = 1),
    id INTEGER NOT NULL
) STRICT;

CREATE TABLE spent (
    day TEXT NOT NULL,
    channel TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    credits INTEGER NOT NULL,
    doubtful INTEGER NOT NULL DEFAULT 0, -- additional credits that may have been paid
    PRIMARY KEY (day, channel)
) STRICT, WITHOUT ROWID;

CREATE TABLE budget_day ( -- day whose budget is in use (`spending.BudgetDay`)
    one INTEGER PRIMARY KEY CHECK (one = 1),
    day TEXT NOT NULL,
    since REAL NOT NULL,
    trusted INTEGER NOT NULL,
    carried TEXT NOT NULL -- day whose costs also count for this day, or empty
) STRICT;

CREATE TABLE air_time ( -- time for which the radio has transmitted
    minute INTEGER PRIMARY KEY, -- minute of elapsed time
    seconds REAL NOT NULL
) STRICT;
"""
"""Posted Packages, and their state on each channel."""

BOOKING_TABLE_SQL = """
CREATE TABLE booking ( -- cost that a budget has booked for a Package. It may still be free
    sequence INTEGER NOT NULL REFERENCES package ON DELETE CASCADE,
    channel TEXT NOT NULL,
    budget TEXT NOT NULL,
    credits INTEGER NOT NULL, -- credits, or number of SMS
    day TEXT NOT NULL, -- day of the booking. The next columns are as in `budget_day`
    since REAL NOT NULL,
    trusted INTEGER NOT NULL,
    carried TEXT NOT NULL,
    PRIMARY KEY (sequence, channel, budget)
) STRICT, WITHOUT ROWID;
"""

INBOUND_TABLES_SQL = """
CREATE TABLE arrived ( -- received items and fragments, to recognise repetitions
    origin INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    digest BLOB NOT NULL,
    at REAL NOT NULL,
    whole BLOB, -- for a fragment, the digest of its item
    sos INTEGER NOT NULL DEFAULT 0,
    on_air BLOB, -- data to repeat an item of a station (`journal.on_air`)
    PRIMARY KEY (origin, sequence, digest)
) STRICT, WITHOUT ROWID;

CREATE TABLE slice (
    origin INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    count INTEGER NOT NULL,
    position INTEGER NOT NULL,
    slice BLOB NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (origin, sequence, count, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE identity (
    origin INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    type TEXT NOT NULL,
    email TEXT NOT NULL,
    account TEXT NOT NULL
) STRICT;

CREATE TABLE inbound (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    request_id TEXT NOT NULL UNIQUE,
    sender TEXT NOT NULL,
    body TEXT NOT NULL,
    received REAL NOT NULL,
    origin INTEGER, -- origin of `sequence`, or NULL if the sender expects no receipts
    sequence INTEGER,
    digest BLOB,
    asks INTEGER NOT NULL DEFAULT 0, -- 1 if the sender requests receipts
    read_by TEXT, -- person who has read the payload, or NULL
    copy BLOB -- for an item from the hub, the item as received
) STRICT;

CREATE TABLE handover ( -- delivery of one payload to one hook
    hook TEXT NOT NULL,
    number INTEGER NOT NULL REFERENCES inbound ON DELETE CASCADE,
    sender TEXT NOT NULL,
    state TEXT NOT NULL, -- waiting, handed, dead
    attempts INTEGER NOT NULL DEFAULT 0,
    not_before REAL NOT NULL DEFAULT 0,
    reason TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (hook, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX handover_waiting ON handover (hook, sender, number) WHERE state = 'waiting';

CREATE TABLE owed ( -- receipts for items over channels that do not confirm storage
    channel TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    at INTEGER NOT NULL,
    sos INTEGER NOT NULL,
    digest BLOB NOT NULL DEFAULT x'', -- digest of the item
    PRIMARY KEY (channel, sequence)
) STRICT, WITHOUT ROWID;

CREATE TABLE rung_owed ( -- receipts for the hub: stages that received items have reached
    origin INTEGER NOT NULL, -- negated station for an item of a station, otherwise of the hub
    sequence INTEGER NOT NULL,
    rung INTEGER NOT NULL,
    text TEXT NOT NULL,
    at INTEGER NOT NULL,
    digest BLOB NOT NULL,
    PRIMARY KEY (origin, sequence, rung, text)
) STRICT, WITHOUT ROWID;

CREATE TABLE station_owed ( -- receipts for stations: stages that their items have reached here
    station INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    rung INTEGER NOT NULL,
    text TEXT NOT NULL,
    at INTEGER NOT NULL, -- Unix time
    digest BLOB NOT NULL,
    asks INTEGER NOT NULL, -- 1 if the sender requests receipts
    PRIMARY KEY (station, sequence, rung, text)
) STRICT, WITHOUT ROWID;

CREATE TABLE unreadable_owed ( -- unreadable messages that must be reported to the hub
    channel TEXT NOT NULL,
    size INTEGER NOT NULL, -- bytes, or 0 if unknown
    guard INTEGER, -- the two check bytes of the message
    at INTEGER NOT NULL, -- Unix time
    PRIMARY KEY (channel, size, at)
) STRICT, WITHOUT ROWID;

CREATE TABLE dead_letter ( -- received messages that could not be used
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    channel TEXT NOT NULL,
    body BLOB NOT NULL,
    reason TEXT NOT NULL,
    received REAL NOT NULL
) STRICT;

CREATE TABLE dead_letter_tally ( -- counts since the journal was created
    one INTEGER PRIMARY KEY CHECK (one = 1),
    came INTEGER NOT NULL,
    dropped INTEGER NOT NULL
) STRICT;

CREATE TABLE backup_since ( -- limits of the items for the present hub (`hub_backup`)
    one INTEGER PRIMARY KEY CHECK (one = 1),
    hub BLOB NOT NULL, -- token of the hub
    sequence INTEGER NOT NULL, -- sequence of the last Package before this hub
    number INTEGER NOT NULL -- number of the last payload before this hub
) STRICT;
"""
"""Received items, the hooks that get them, and receipts for their senders."""

INCIDENT_TABLES_SQL = """
CREATE TABLE incident ( -- this kit's own incidents. At most one is open
    number INTEGER PRIMARY KEY, -- sequence of the Package that raised the incident
    raised REAL NOT NULL,
    state TEXT NOT NULL, -- open, seen, closed, called off
    ended REAL -- NULL while the incident is open
) STRICT;

CREATE TABLE incident_item ( -- Packages that belong to an incident of this kit
    sequence INTEGER PRIMARY KEY REFERENCES package ON DELETE CASCADE,
    incident INTEGER NOT NULL
) STRICT;
CREATE INDEX incident_items ON incident_item (incident, sequence);

CREATE TABLE incident_word ( -- updates about an incident
    number INTEGER PRIMARY KEY,
    station INTEGER NOT NULL, -- station that raised the incident, or 0 for this kit
    incident INTEGER NOT NULL,
    says TEXT NOT NULL, -- open, seen, closed, called off
    by TEXT NOT NULL,
    text TEXT NOT NULL,
    at REAL NOT NULL, -- Unix time
    proved INTEGER NOT NULL,
    UNIQUE (station, incident, says, by, text)
) STRICT;

CREATE TABLE heard_incident ( -- incidents of other kits
    station INTEGER NOT NULL,
    number INTEGER NOT NULL,
    state TEXT NOT NULL, -- open, seen, closed, called off
    since REAL NOT NULL, -- Unix time of the start by the clock of the sender
    at REAL NOT NULL, -- Unix time
    text TEXT NOT NULL,
    PRIMARY KEY (station, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE check_in ( -- last check-in request to the hub (`journal.check_in`)
    one INTEGER PRIMARY KEY CHECK (one = 1),
    sequence INTEGER NOT NULL, -- sequence of the Package with the request. It may be deleted
    within INTEGER, -- seconds, or NULL to end the monitoring
    at REAL NOT NULL,
    confirmed REAL, -- Unix time
    heard REAL -- time when this kit last sent something to the hub
) STRICT;
"""
"""Incidents of this kit, incidents of other kits, and the check-in that the hub monitors."""

PEOPLE_TABLES_SQL = """
CREATE TABLE person ( -- entries of the hub's directory
    kind TEXT NOT NULL, -- user, group, device
    number INTEGER NOT NULL,
    name TEXT NOT NULL,
    handles TEXT NOT NULL, -- JSON: radios of a user
    members TEXT NOT NULL, -- JSON: numbers of the users in a group
    PRIMARY KEY (kind, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE directory (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    version INTEGER NOT NULL,
    owner INTEGER NOT NULL -- number of the user who owns this kit
) STRICT;

CREATE TABLE handheld ( -- radios of people (`handhelds.Handheld`)
    handle TEXT PRIMARY KEY,
    name TEXT NOT NULL DEFAULT '',
    key BLOB,
    other_key BLOB,
    joined REAL,
    heard REAL,
    rssi INTEGER,
    snr REAL,
    hops INTEGER,
    battery INTEGER,
    latitude REAL,
    longitude REAL,
    altitude REAL,
    fixed REAL,
    precision INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE handheld_said ( -- packets from handhelds. `sequence` is the resulting Package
    handle TEXT NOT NULL,
    number INTEGER NOT NULL,
    at REAL NOT NULL,
    sequence INTEGER,
    told TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (handle, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX handheld_said_of ON handheld_said (sequence) WHERE sequence IS NOT NULL;

CREATE TABLE handheld_post ( -- texts to people. States: waiting, on radio, read, expired
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    handle TEXT NOT NULL,
    request_id TEXT NOT NULL UNIQUE,
    text TEXT NOT NULL,
    part INTEGER NOT NULL DEFAULT 0,
    state TEXT NOT NULL DEFAULT 'waiting',
    tries INTEGER NOT NULL DEFAULT 0,
    not_before REAL NOT NULL,
    expires REAL NOT NULL,
    answers INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE handheld_packet ( -- packet numbers of the sent parts of a text
    packet INTEGER PRIMARY KEY,
    post INTEGER NOT NULL REFERENCES handheld_post ON DELETE CASCADE
) STRICT;

CREATE TABLE handheld_spent ( -- possible cost of each packet from a handheld
    day TEXT NOT NULL,
    handle TEXT NOT NULL,
    number INTEGER NOT NULL,
    credits INTEGER NOT NULL,
    PRIMARY KEY (day, handle, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE handheld_sos ( -- people with handhelds in an incident of this kit
    incident INTEGER NOT NULL,
    handle TEXT NOT NULL,
    raised INTEGER NOT NULL, -- 1: raised the incident. 2: raised it without authentication
    called_off INTEGER NOT NULL,
    PRIMARY KEY (incident, handle)
) STRICT, WITHOUT ROWID;
"""
"""The hub's directory, and handheld radios."""

COMMAND_TABLES_SQL = """
CREATE TABLE command ( -- commands from the hub (`journal.commands`)
    number INTEGER PRIMARY KEY,
    verb INTEGER NOT NULL,
    arguments BLOB NOT NULL, -- CBOR
    channel TEXT NOT NULL, -- channel of the first arrival
    came REAL NOT NULL,
    state TEXT NOT NULL, -- accepted, begun, owed, answered
    boot TEXT NOT NULL DEFAULT '', -- boot of the machine in which the command was begun
    outcome INTEGER, -- 0 done, 1 refused, 2 failed
    answer BLOB,
    answered REAL
) STRICT;

CREATE TABLE held_kind ( -- kinds of Packages that wait for satellite until they are resumed
    kind TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;

CREATE TABLE agent_start ( -- number of starts of the agent
    one INTEGER PRIMARY KEY CHECK (one = 1),
    starts INTEGER NOT NULL
) STRICT;

CREATE TABLE program_delta ( -- deltas that make other programs (`journal.commands`)
    number INTEGER PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE,
    payload BLOB NOT NULL
) STRICT;
"""
"""Tables for commands from the hub, held kinds of Packages, starts of the agent, and program
deltas."""

JOURNAL_TABLES_SQL = """
CREATE TABLE beginning ( -- number before the first Package. It identifies the journal
    one INTEGER PRIMARY KEY CHECK (one = 1),
    number INTEGER NOT NULL
) STRICT;

CREATE TABLE lived ( -- last stored state of elapsed time (`elapsed_time.ClockBase`)
    one INTEGER PRIMARY KEY CHECK (one = 1),
    boot TEXT NOT NULL,
    since_boot REAL NOT NULL,
    lived REAL NOT NULL,
    ahead REAL NOT NULL, -- seconds to add to elapsed time to get Unix time
    trusted INTEGER NOT NULL,
    crc INTEGER NOT NULL -- checksum of the other columns
) STRICT;

CREATE TABLE loss ( -- losses that damage to this file has caused
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    at REAL NOT NULL,
    text TEXT NOT NULL,
    packages INTEGER NOT NULL, -- number of Packages that ended or are unknown because of the damage
    payloads INTEGER NOT NULL
) STRICT;

CREATE TABLE reserve ( -- reserves pages of the file. Deleting the rows frees them for use
    filler BLOB NOT NULL
) STRICT;
"""
"""Facts about the journal itself and its clock."""

EVENTS_KEPT = 10_000
"""Number of changes that are kept for programs that read them late. They take 300 kB on disk."""
EVENT_TABLE_SQL = f"""
CREATE TABLE event ( -- changes, for programs that follow them
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    topic TEXT NOT NULL, -- package, sos, inbound
    subject INTEGER NOT NULL -- number of a Package, an incident or a payload
) STRICT;
CREATE TRIGGER event_trimmed AFTER INSERT ON event WHEN new.number % 256 = 0 BEGIN
    DELETE FROM event WHERE number <= new.number - {EVENTS_KEPT};
END;
CREATE TRIGGER package_accepted AFTER INSERT ON package BEGIN
    INSERT INTO event (topic, subject) VALUES ('package', new.sequence);
END;
CREATE TRIGGER leg_ended AFTER UPDATE OF status ON leg WHEN new.status IS NOT old.status BEGIN
    INSERT INTO event (topic, subject) VALUES ('package', new.sequence);
END;
CREATE TRIGGER package_tried AFTER INSERT ON story BEGIN
    INSERT INTO event (topic, subject) VALUES ('package', new.sequence);
END;
CREATE TRIGGER package_stored AFTER INSERT ON receipt BEGIN
    INSERT INTO event (topic, subject) VALUES ('package', new.sequence);
    INSERT INTO event (topic, subject)
        SELECT 'sos', incident FROM incident_item WHERE sequence = new.sequence;
END;
CREATE TRIGGER package_reached AFTER INSERT ON reached BEGIN
    INSERT INTO event (topic, subject) VALUES ('package', new.sequence);
END;
CREATE TRIGGER payload_came AFTER INSERT ON inbound BEGIN
    INSERT INTO event (topic, subject) VALUES ('inbound', new.number);
END;
CREATE TRIGGER incident_joined AFTER INSERT ON incident_item BEGIN
    INSERT INTO event (topic, subject) VALUES ('sos', new.incident);
END;
CREATE TRIGGER incident_changed AFTER UPDATE OF state ON incident
    WHEN new.state <> old.state BEGIN
    INSERT INTO event (topic, subject) VALUES ('sos', new.number);
END;
CREATE TRIGGER incident_left AFTER UPDATE OF status ON leg
    WHEN new.status IS NOT old.status BEGIN
    INSERT INTO event (topic, subject)
        SELECT 'sos', incident FROM incident_item WHERE sequence = new.sequence;
END;
CREATE TRIGGER incident_said AFTER INSERT ON incident_word BEGIN
    INSERT INTO event (topic, subject) VALUES ('sos', new.incident);
END;
CREATE TRIGGER incident_heard AFTER INSERT ON heard_incident BEGIN
    INSERT INTO event (topic, subject) VALUES ('sos', new.number);
END;
CREATE TRIGGER incident_of_other AFTER UPDATE OF state ON heard_incident
    WHEN new.state <> old.state BEGIN
    INSERT INTO event (topic, subject) VALUES ('sos', new.number);
END;
INSERT INTO event SELECT abs(random() % 1000000000000), 'begun', 0;
"""
"""Changes, for programs that follow them. The first change has a random number, so that a program
does not mistake changes of another journal for changes of this one."""

LATENCY_BOUNDS = (1, 5, 15, 60, 300, 900, 3_600, 21_600, 86_400)
"""Upper bounds of the delivery times, in seconds from acceptance to delivery. A session takes half
a minute, but a night without a view of the sky takes hours."""
_BOUND_SQL = " ".join(f"WHEN seconds <= {bound} THEN '{bound}'" for bound in LATENCY_BOUNDS)
TALLY_TABLE_SQL = f"""
CREATE TABLE tally ( -- counts that also include deleted rows
    what TEXT NOT NULL, -- ended, latency, hook
    who TEXT NOT NULL, -- a channel or a hook
    result TEXT NOT NULL, -- status, result of the hook, or upper bound in seconds
    count INTEGER NOT NULL,
    seconds REAL NOT NULL,
    PRIMARY KEY (what, who, result)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER leg_counted AFTER UPDATE OF status ON leg
    WHEN old.status IS NULL AND new.status IS NOT NULL BEGIN
    INSERT INTO tally VALUES ('ended', new.channel, new.status, 1, 0)
        ON CONFLICT DO UPDATE SET count = count + 1;
END;
CREATE TRIGGER delivery_counted AFTER UPDATE OF status ON leg
    WHEN old.status IS NULL AND new.status = 'Delivered' BEGIN
    INSERT INTO tally SELECT 'latency', new.channel, CASE {_BOUND_SQL} ELSE '0' END, 1, seconds
        FROM (SELECT max(0.0, new.ended - accepted) AS seconds FROM package
            WHERE sequence = new.sequence) WHERE true
        ON CONFLICT DO UPDATE SET count = count + 1, seconds = seconds + excluded.seconds;
END;
CREATE TRIGGER hook_counted AFTER UPDATE OF attempts ON handover
    WHEN new.attempts > old.attempts BEGIN
    INSERT INTO tally VALUES ('hook', new.hook,
        CASE new.state WHEN 'waiting' THEN 'again' ELSE new.state END, 1, 0)
        ON CONFLICT DO UPDATE SET count = count + 1;
END;
"""

CHECK_IN_TRIGGERS_SQL = """
CREATE TRIGGER check_in_confirmed AFTER INSERT ON receipt BEGIN
    UPDATE check_in SET confirmed = new.at WHERE sequence = new.sequence;
END;
CREATE TRIGGER check_in_heard AFTER UPDATE OF status ON leg
    WHEN new.status = 'Delivered' AND new.channel IN ('Satellite', 'Cellular') BEGIN
    UPDATE check_in SET heard = new.ended WHERE within IS NOT NULL;
END;
"""
"""Triggers that store the time when the hub confirmed the check-in request, and the time when this
kit last sent something to the hub."""

RANDOM_NUMBER_SQL = f"{2**24} + abs(random() % 1879048192)"
"""SQL for a random number below 2^31. A previous journal that was lost has probably not used this
number."""
FIRST_NUMBERS_SQL = f"""
INSERT INTO beginning VALUES (1, {RANDOM_NUMBER_SQL});
INSERT INTO sqlite_sequence SELECT 'package', number FROM beginning;
"""

TABLES_SQL = "".join((
    *(OUTBOUND_TABLES_SQL, BOOKING_TABLE_SQL, INBOUND_TABLES_SQL, INCIDENT_TABLES_SQL),
    *(PEOPLE_TABLES_SQL, COMMAND_TABLES_SQL, JOURNAL_TABLES_SQL, EVENT_TABLE_SQL),
    *(TALLY_TABLE_SQL, CHECK_IN_TRIGGERS_SQL, FIRST_NUMBERS_SQL),
))  # fmt: skip
STEPS: Mapping[int, str] = {23: BOOKING_TABLE_SQL}
"""SQL that changes each version of the tables to the next. The tables above already contain the
result of each step. A test needs the step from version 23."""
JOURNAL = Schema(24, TABLES_SQL, STEPS)


def _make_none_of(column: str, values: Iterable[object]) -> str:
    return f"{column} NOT IN ({', '.join(repr(word) for word in values)})"


_CHANNEL = _make_none_of("channel", map(str, Channel))
_STAGE = _make_none_of("rung", map(int, Stage))
UNSOUND_ROWS_SQL = {
    "package": _make_none_of("status", map(str, Status)),
    "leg": f"{_CHANNEL} OR {_make_none_of('status', map(str, Status))}",
    "story": _CHANNEL,
    "intent": f"{_CHANNEL} OR NOT json_valid(pieces)",
    "booking": _CHANNEL,
    "inbound": "NOT json_valid(body)",
    "handover": _make_none_of("state", ("waiting", "handed", "dead")),
    "dead_letter": _CHANNEL,
    "incident": _make_none_of("state", map(str, IncidentState)),
    "incident_word": _make_none_of("says", map(str, IncidentState)),
    "reached": _STAGE,
    "rung_owed": _STAGE,
    "station_owed": _STAGE,
    "command": f"{_CHANNEL} OR {_make_none_of('outcome', map(int, CommandOutcome))}"
    f" OR {_make_none_of('state', ('accepted', 'begun', 'owed', 'answered'))}",
    "person": "NOT (json_valid(handles) AND json_valid(members))",
    "budget_day": "date(day) IS NULL",
    "tally": f"what = 'latency' AND {_make_none_of('result', map(str, (0, *LATENCY_BOUNDS)))}",
}
"""For each table, an SQL condition that finds rows which no program has written. SQLite does not
detect a flipped bit in a text, but a reader would fail on such a row at every start."""
