"""The OpenAPI description of the local API.

Each module describes the operations of one subject. The modules are imported only if a program
requests `/openapi.json`.
"""

from __future__ import annotations

from typing import Any

from fieldagent.agent.description import distress, inbound, packages, pages, state
from fieldagent.agent.description.common import PROBLEM
from fieldagent.http.openapi import Access, make_document
from fieldagent.http.openapi_parts import (
    HTTP_PROBLEM,
    LARGER_THAN_1_MIB,
    MALFORMED,
    NO_LENGTH,
    NOT_JSON,
    WRONG_HOST,
)
from fieldagent.page.language import LANGUAGES

_CALLS = (*packages.CALLS, *distress.CALLS, *inbound.CALLS, *state.CALLS, *pages.CALLS)
_COMMON_ACCESS = Access(
    answers={403: WRONG_HOST, "default": HTTP_PROBLEM},
    body={400: MALFORMED, 411: NO_LENGTH, 413: LARGER_THAN_1_MIB, 415: NOT_JSON},
)


def describe() -> dict[str, Any]:
    """Return the whole OpenAPI description."""
    return make_document(
        "fieldagent: the local agent API",
        "The local API, on loopback port 9091 for programs on the gateway, without authentication. "
        "The Host must be localhost, 127.0.0.1 or [::1], with any port, so that `ssh -L` works. "
        "Web "
        "pages of other sites are refused. Errors are in English, or in the language of "
        f"`Accept-Language`: {', '.join(LANGUAGES[:-1])} or {LANGUAGES[-1]}.",
        "http://127.0.0.1:9091",
        _CALLS,
        problem=PROBLEM,
        common_access=_COMMON_ACCESS,
    )
