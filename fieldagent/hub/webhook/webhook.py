"""A webhook of a workspace, with the fields of its database row."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any
from urllib.parse import urlsplit

from fieldagent.hub.records.stored_entry import load_stored_object
from fieldagent.system.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Webhook:
    id: int
    url: str
    secrets: tuple[str, ...] = ()
    username: str | None = None
    password: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    failing_since: float | None = None
    after: int = 0
    """Minutes after which the hub sends an unanswered SOS to this webhook, which then gets nothing
    else. If 0, the webhook gets all items immediately."""

    batch: int = 0
    """Largest number of items in one request, whose body is then an array. If 0, each item is a
    separate request."""
    steps: bool = False
    """True if the webhook also gets the delivery steps of items."""

    def get_name(self) -> str:
        """Return the id and the host of the webhook, as a name for people."""
        return f"webhook {self.id} ({urlsplit(self.url).hostname})"

    def get_extra_headers(self) -> tuple[tuple[str, str], ...]:
        """Return the additional headers of each request."""
        extra = tuple(self.headers.items())
        if self.username is None:
            return extra
        pair = base64.b64encode(f"{self.username}:{self.password or ''}".encode()).decode()
        return (*extra, ("Authorization", f"Basic {pair}"))


COLUMNS = (
    "webhook.id, url, secrets, username, webhook.password, headers, failing_since, after,"
    " webhook.batch, webhook.steps"
)


def read_webhook(row: Sequence[Any]) -> Webhook:
    """Return the webhook that a database row contains. The row has the columns of `COLUMNS`."""
    id_, url, secrets, username, password, headers, failing_since, after, batch, steps = row
    return Webhook(
        id_,
        url,
        tuple(secrets.split()),
        username,
        password,
        load_stored_object(headers, f"the headers of webhook {id_}"),
        failing_since,
        after,
        batch,
        bool(steps),
    )
