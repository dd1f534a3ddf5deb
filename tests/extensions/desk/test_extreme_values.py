"""Lists of contacts and of the watch read extreme values and damaged rows."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import trio

from fieldagent.hub.store.opening import open_store
from tests.hub.test_console import call
from tests.hub.test_extreme_values import spoil, store_all
from tests.processes import hub

LISTS = ("contacts", "chain", "quiet", "watch")


def test_contact_lists_read_extreme_values_and_damaged_rows(database: str, tmp_path: Path) -> None:
    with closing(open_store(database)) as store:
        proof = trio.run(store_all, store)
    with hub(tmp_path, {"database": database}) as running:
        assert [call(running, "GET", f"/api/{path}", **proof)[0] for path in LISTS] == [200] * 4
        spoil(database)
        assert [call(running, "GET", f"/api/{path}", **proof)[0] for path in LISTS] == [200] * 4
        assert "Traceback" not in "\n".join(running.output())
