"""Facts about our APIs that schemathesis needs in addition to their descriptions."""

from __future__ import annotations

import re
import uuid
from typing import Any

import schemathesis

KEY = re.compile(r'"[ !#-\[\]-~]{1,255}"|[!#-~]([ -~]{0,253}[!-~])?')


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: dict[str, Any]) -> None:
    """Give each call its own Idempotency-Key: the API correctly refuses a key that was used for
    another body.
    """
    key = case.headers.get("Idempotency-Key")
    if isinstance(key, str) and KEY.fullmatch(key):
        case.headers["Idempotency-Key"] = uuid.uuid4().hex
