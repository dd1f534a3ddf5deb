"""Description of webhooks and dead letters, in OpenAPI."""

from __future__ import annotations

from fieldagent.http.openapi import (
    answer,
    boolean,
    call,
    integer,
    list_of,
    mapping,
    named_record,
    nullable,
    number,
    optional,
    query,
    record,
    text,
)
from fieldagent.http.openapi_parts import IDEMPOTENCY_KEY, ROW
from fieldagent.hub.administration.webhooks import URL_MAX, VALUE_MAX
from fieldagent.hub.description.common import (
    ADMINISTRATOR,
    BEARERS,
    BEFORE_PARAMETER,
    COUNT,
    HIDDEN,
    LABEL,
    PAGE,
    TAKEN,
    UNIX_SECONDS,
    describe_line,
    describe_page,
)
from fieldagent.hub.webhook.webhook_directory import AFTER_MAX, BATCH_MAX

WEBHOOK = named_record(
    "Webhook",
    {
        "id": ROW,
        "url": text(),
        "signed": boolean(),
        "steps": boolean("True if the progress of each item is posted, too"),
        "after": integer(
            "Minutes without an answer after which an SOS is posted, and only such SOS; 0: all "
            "items, at once",
            minimum=0,
        ),
        "batch": integer(
            "Most items in a post, which is then an array; 0: one item per post", minimum=0
        ),
        "failingSince": nullable(number("Unix time since which it has accepted nothing")),
        "disabled": nullable(number()),
        "reason": text("Reason why it is disabled, or why posts have failed since then"),
        "waiting": COUNT,
        "dead": COUNT,
    },
)
DEAD_LETTER = named_record(
    "DeadLetter",
    {
        "id": ROW,
        "received": UNIX_SECONDS,
        "imei": text(),
        "device": text(),
        "bearer": text(enum=BEARERS[:3]),
        "payload": text(contentEncoding="base64"),
        "reason": text(),
    },
)
_VALUE = describe_line(VALUE_MAX)
_CREATED = record({"id": ROW, "secret": HIDDEN})
_NEW_SECRET = "whsec_… (a new secret)"
_FOUR = "[A-Za-z0-9+/]{4}"
_REST = "[A-Za-z0-9+/]{2}=="
_BASE64 = (
    rf"(({_FOUR}){{8,21}}|({_FOUR}){{8,20}}([A-Za-z0-9+/]{{3}}=|{_REST})|({_FOUR}){{21}}{_REST})"
)
_SECRETS = f"^whsec_{_BASE64}( whsec_{_BASE64})?$"

CALLS = (
    call(
        "GET /api/webhooks",
        "webhooks: List webhooks, which get the items from devices",
        answer("Oldest first", record({"webhooks": list_of(WEBHOOK)})),
        ADMINISTRATOR,
    ),
    call(
        "POST /api/webhooks",
        "webhookAdd: Test a webhook and add it",
        {
            201: answer("With the signing secret, which is shown only once", _CREATED),
            409: "A header is not allowed",
        },
        ADMINISTRATOR,
        body=record(
            {
                "url": text(maxLength=URL_MAX, format="uri", pattern="^https?://[!-~]+$"),
                "secret?": nullable(_VALUE, _NEW_SECRET),
                "unsigned?": nullable(boolean()),
                "username?": nullable(_VALUE),
                "password?": nullable(_VALUE),
                "headers?": nullable(mapping(describe_line(VALUE_MAX, least=0), maxProperties=20)),
                "batch?": nullable(
                    integer(
                        "Post waiting items of one sender as an array of at most this many",
                        minimum=1,
                        maximum=BATCH_MAX,
                    )
                ),
                "steps?": nullable(
                    boolean("Also post the progress of each item and push; not together with after")
                ),
                "after?": nullable(integer(minimum=1, maximum=AFTER_MAX)),
                "untried?": nullable(boolean("Add it without a test post")),
            }
        ),
    ),
    call(
        "DELETE /api/webhooks/{id}",
        "webhookRemove: Remove a webhook and everything that waits for it",
        {204: "The webhook is removed"},
        ADMINISTRATOR,
    ),
    call(
        "POST /api/webhooks/{id}/enable",
        "webhookEnable: Enable a disabled webhook",
        {204: "Waiting items are posted"},
        ADMINISTRATOR,
    ),
    call(
        "POST /api/webhooks/{id}/secret",
        "webhookSecret: Replace the signing secret",
        {
            200: answer(
                "With the new secret, shown only once. The old one also signs until the next "
                "change",
                _CREATED,
            )
        },
        ADMINISTRATOR,
        parameters=[IDEMPOTENCY_KEY],
        body=optional(
            record(
                {
                    "secret?": nullable(
                        text(_NEW_SECRET, minLength=1, maxLength=VALUE_MAX, pattern=_SECRETS)
                    ),
                    "only?": nullable(boolean("True to stop signing with the old secret at once")),
                }
            )
        ),
    ),
    call(
        "POST /api/webhooks/{id}/test",
        "webhookTest: Post a test message",
        {
            204: "The webhook accepted the message",
            422: "The webhook refused the message, for this reason",
        },
        ADMINISTRATOR,
    ),
    call(
        "GET /api/webhook-failures",
        "webhookFailures: List dead letters of webhooks",
        describe_page(
            "Newest first, always with all of the last item",
            "failures",
            record(
                {
                    "webhook": ROW,
                    "requestId": text(),
                    "accepted": UNIX_SECONDS,
                    "attempts": integer(minimum=0, maximum=2147483648),
                    "reason": text(),
                }
            ),
        ),
        ADMINISTRATOR,
        parameters=PAGE,
    ),
    call(
        "POST /api/webhook-failures/replay",
        "webhookReplay: Post dead letters of webhooks again",
        {
            200: answer("Number of posts", record({"replayed": integer(minimum=1, maximum=2**53)})),
            409: "There is no such dead letter",
        },
        ADMINISTRATOR,
        body=optional(record({"requestId?": nullable(LABEL)})),
    ),
    call(
        "GET /api/dead-letters",
        "deadLetters: List dead letters of devices: messages that could not be used",
        describe_page(
            "Newest first; messages of unknown IMEIs are shown only on the hub's machine",
            "deadLetters",
            DEAD_LETTER,
        ),
        ADMINISTRATOR,
        parameters=[
            BEFORE_PARAMETER,
            query(
                "limit",
                integer(minimum=1, maximum=BATCH_MAX, default=50),
                "Most SOS on a page; a page may have fewer and still have a `next`",
            ),
        ],
    ),
    call(
        "DELETE /api/dead-letters/{id}",
        "deadLetterDiscard: Delete a dead letter for good",
        {204: "The dead letter is deleted"},
        ADMINISTRATOR,
    ),
    call(
        "POST /api/dead-letters/replay",
        "deadLetterReplay: Process dead letters that can be used now",
        answer("Number of processed dead letters", record({"deadLettersTaken": TAKEN})),
        ADMINISTRATOR,
    ),
)
