"""An offer of the hub counts as news of updates, and the agent warns if its hub never offers
anything: a real hub, web server and signatures, the zipapp as a kit, and its clock months ahead.
"""

from __future__ import annotations

import json
import sys
import zipfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests import browser
from tests.agent.test_update_news import NOT, status, told
from tests.agent.test_wrong_clock import FAKETIME, Gpsd, environment
from tests.file_server import file_server
from tests.machine import needs
from tests.processes import MODULE, Agent, administer, agent, hub, until
from tests.signer import Signer

pytestmark = [
    pytest.mark.full,
    needs(FAKETIME, "apt-get install faketime"),
]


@contextmanager
def kit(home: Path, zipapp: Path, link: dict[str, str | None], days: int) -> Iterator[Agent]:
    """Yield a kit that is that many days ahead of today."""
    with closing(Gpsd(timedelta(days))) as gpsd:
        settings = {**link, "gpsd": gpsd.address, "update-key": str(home / "update.pub")}
        later = environment(home, f"+{days}d")
        with agent(home, settings, [sys.executable, str(zipapp)], **later) as running:
            until(lambda: running.call("GET", "/api/status").body["clock"]["trusted"])
            yield running


def read_news(home: Path) -> dict[str, str | float]:
    document: dict[str, str | float] = json.loads((home / "state/update-news.json").read_text())
    return document


def test_missing_update_offers_are_reported_and_an_offer_resets_the_notice(
    tmp_path: Path, zipapp: Path
) -> None:
    database = str(tmp_path / "hub.sqlite3")
    administer(database, "init", "Alps")
    administer(database, "user", "add", "ada")
    token = administer(database, "device", "add", "kit", "--user", "ada")["hub-token"]
    signer = Signer(tmp_path / "keys")
    (tmp_path / "update.pub").write_text(signer.public)
    (served := tmp_path / "served").mkdir()
    with zipfile.ZipFile(program := served / "9.0.0.pyz", "w") as archive:
        archive.writestr("fieldagent/__init__.py", '__version__ = "9.0.0"')
    signer.release(program)
    kept = tmp_path / "state/update-news.json"
    link: dict[str, str | None] = {"satellite-port": None, "hub-token": token}
    with hub(tmp_path, {"database": database}) as cloud:
        link["hub-address"] = cloud.address
        with kit(tmp_path, zipapp, link, 0) as running:
            until(kept.exists)
            assert (read_news(tmp_path)["source"], told(running)) == ("hub", [])
    # The hub has the kit's date: the kit trusts no clock that its hub contradicts.
    ahead = hub(tmp_path, {"database": database}, MODULE, **environment(tmp_path, "+61d"))
    with ahead as cloud, file_server(served) as address:
        link["hub-address"] = cloud.address
        with kit(tmp_path, zipapp, link, 61) as running:
            running.expect(f"{NOT} 61 days: the hub has never offered a program")
            (notice,) = told(running)
            assert "use `fieldagent hub update offer` there" in notice
            assert notice in status(running)
            with browser.browser() as opened, browser.page(opened, running.port) as page:
                page.locator("#notices").get_by_text(notice).wait_for()
            url = f"{address}/{program.name}"
            administer(database, "update", "offer", "9.0.0", url, "--devices", "all")
            until(lambda: read_news(tmp_path)["source"] == url)
            assert told(running) == []
    # Hub and web server are away: the offer was the last news, later than its signature.
    with kit(tmp_path, zipapp, link, 120) as running:
        assert told(running) == []
    with kit(tmp_path, zipapp, link, 122) as running:
        (notice,) = told(running)
        day = (datetime.now(UTC) + timedelta(61)).date()
        assert f"{NOT} 61 days: {url} was offered by the hub on {day}" in notice
