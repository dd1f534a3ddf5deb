"""Describes the API of the hub in OpenAPI.

Each module contains a table of the calls about one subject. The modules are imported only if a
program requests `/openapi.json`, and in a build, which prepares a file. Extensions add their own
tables (`Extension.hub_api`).
"""

from __future__ import annotations

from typing import Any

from fieldagent.extensions import get_own_calls
from fieldagent.http.openapi import Access, make_document
from fieldagent.http.openapi_parts import HTTP_PROBLEM
from fieldagent.hub.description import (
    console,
    devices,
    distress,
    fleet,
    pushes,
    service,
    users,
    webhooks,
)
from fieldagent.hub.description.common import NUMBER, PROBLEM
from fieldagent.page.language import LANGUAGES
from fieldagent.system.extension import import_own

_TABLES = (pushes, distress, devices, fleet, users, webhooks, console, service)


def describe() -> dict[str, Any]:
    """Return the OpenAPI description, including the calls of the built-in extensions."""
    calls = [call for module in _TABLES for call in module.CALLS]
    for place in get_own_calls():
        calls += import_own(place)
    return make_document(
        "fieldagent: the API of the hub",
        "The push API: external systems push items to people and assets in the field, and read "
        "items from there. Every call under /api needs an x-api-key and an Authorization header. "
        "Errors are in English, or in the language of "
        f"`Accept-Language`: {', '.join(LANGUAGES[:-1])} or {LANGUAGES[-1]}.",
        "https://localhost:9443",
        calls,
        problem=PROBLEM,
        common_access=Access(answers={"default": HTTP_PROBLEM}),
        segments={"id": NUMBER},
        schemes={
            "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            "bearer": {"type": "http", "scheme": "bearer"},
            "basic": {"type": "http", "scheme": "basic"},
        },
    )
