-- Webhooks: items are sent to them by HTTP.

CREATE TABLE webhook (
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
    after {int} NOT NULL DEFAULT 0, -- minutes without an answer to an SOS
    batch {int} NOT NULL DEFAULT 0, -- items in an array; 0: no array
    quiet_until {real} NOT NULL DEFAULT 0, -- from Retry-After
    steps {int} NOT NULL DEFAULT 0 -- 1: gets the stages of each item
);

CREATE TABLE webhook_delivery (
    webhook {int} NOT NULL REFERENCES webhook ON DELETE CASCADE,
    item {int} NOT NULL REFERENCES item ON DELETE CASCADE,
    state TEXT NOT NULL, -- waiting, handed, dead
    attempts {int} NOT NULL DEFAULT 0,
    not_before {real} NOT NULL DEFAULT 0,
    claimed_until {real} NOT NULL DEFAULT 0,
    reason TEXT NOT NULL DEFAULT '',
    sender {int} NOT NULL DEFAULT 0, -- the item's kit; without one, its sender
    claimed_by {int} NOT NULL DEFAULT 0, -- a worker
    batch {int} NOT NULL DEFAULT 0, -- its first item
    steps {int} NOT NULL DEFAULT 0, -- stages that the item has reached
    told {int} NOT NULL DEFAULT -1, -- stages sent; -1: none
    telling {int} NOT NULL DEFAULT 0, -- stages in the current post
    PRIMARY KEY (webhook, item)
);
CREATE INDEX webhook_delivery_of_item ON webhook_delivery (item);
CREATE INDEX webhook_delivery_waiting ON webhook_delivery (webhook, sender, item)
    WHERE state = 'waiting';
CREATE INDEX webhook_delivery_dead ON webhook_delivery (webhook, item) WHERE state = 'dead';
