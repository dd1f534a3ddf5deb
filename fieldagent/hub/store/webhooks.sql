-- Webhooks, to which the hub sends items by HTTP.

CREATE TABLE webhook ( -- address at which a program receives the items of a workspace
    id {id},
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    url TEXT NOT NULL,
    secrets TEXT NOT NULL DEFAULT '',
    username TEXT,
    password TEXT,
    headers TEXT NOT NULL DEFAULT '{{}}',
    created {real} NOT NULL,
    failing_since {real},
    disabled {real},
    reason TEXT NOT NULL DEFAULT '',
    after {int} NOT NULL DEFAULT 0, -- minutes without an answer to an SOS, 0 for all items at once
    batch {int} NOT NULL DEFAULT 0, -- largest number of items in an array, 0 for no array
    quiet_until {real} NOT NULL DEFAULT 0, -- end of the pause that Retry-After requested
    steps {int} NOT NULL DEFAULT 0 -- 1 if the webhook gets the delivery steps of each item
);

CREATE TABLE webhook_delivery ( -- delivery of one item to one webhook
    webhook {int} NOT NULL REFERENCES webhook ON DELETE CASCADE,
    item {int} NOT NULL REFERENCES item ON DELETE CASCADE,
    state TEXT NOT NULL, -- waiting, handed, dead
    attempts {int} NOT NULL DEFAULT 0,
    not_before {real} NOT NULL DEFAULT 0,
    claimed_until {real} NOT NULL DEFAULT 0,
    reason TEXT NOT NULL DEFAULT '',
    sender {int} NOT NULL DEFAULT 0, -- kit, or sender without a kit, or -item for an incident
    claimed_by {int} NOT NULL DEFAULT 0, -- number in `worker`
    batch {int} NOT NULL DEFAULT 0, -- first item of the array, 0 for no array
    steps {int} NOT NULL DEFAULT 0, -- number of delivery steps that the item has reached
    told {int} NOT NULL DEFAULT -1, -- number of sent steps, -1 before the item itself was sent
    telling {int} NOT NULL DEFAULT 0, -- number of steps in the current request
    PRIMARY KEY (webhook, item)
);
CREATE INDEX webhook_delivery_of_item ON webhook_delivery (item);
CREATE INDEX webhook_delivery_waiting ON webhook_delivery (webhook, sender, item)
    WHERE state = 'waiting';
CREATE INDEX webhook_delivery_dead ON webhook_delivery (webhook, item) WHERE state = 'dead';
