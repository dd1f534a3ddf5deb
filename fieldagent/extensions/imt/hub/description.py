"""OpenAPI description of the calls of Cloudloop."""

from __future__ import annotations

from fieldagent.http.openapi import call, segment, text
from fieldagent.http.openapi_parts import HTTP_PROBLEM

CALLS = (
    call(
        "POST /operator/cloudloop/{secret}",
        "lingoMobileOriginated: Cloudloop's webhook: an MO message as Lingo JSON. Exists if "
        "cloudloop-secret is set",
        {200: "The message is on disk, now or before", 404: HTTP_PROBLEM},
        parameters=[segment("secret", text())],
        body={"type": "object", "description": "LingoMO, as knowledge.cloudloop.com describes it"},
    ),
)
