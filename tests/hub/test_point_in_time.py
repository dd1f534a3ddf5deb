"""PostgreSQL is restored to a moment from its log, with the commands of
`docs/how-to/postgresql.md`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from tests.hub.alps import Alps
from tests.hub.test_cluster import contents
from tests.postgres import ACCOUNT, AS_ACCOUNT, binaries, new_database, server
from tests.processes import MODULE, PATIENCE, administer, free_port, hub, until

pytestmark = pytest.mark.full

PAGE = Path(__file__).parents[2] / "docs/how-to/postgresql.md"


def read_commands() -> list[str]:
    """Return the commands of the section in order."""
    _, section = PAGE.read_text().split("\n### Restore to a point in time\n")
    matches = re.findall(r"(?:^ {4}.+\n)+", section.partition("\n## ")[0], re.MULTILINE)
    return [re.sub("^ {4}", "", block, flags=re.MULTILINE) for block in matches]


def test_documented_point_in_time_recovery_restores_the_database(tmp_path: Path) -> None:
    """The kit then returns the items that it got since that moment."""
    keep_log, copy_files, put_back, tell_the_hub = read_commands()
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fieldagent-moment-")))
        home.chmod(0o755)
        (archive := home / "archive").mkdir()
        for folder in (home, archive):
            shutil.chown(folder, ACCOUNT)
        running = stack.enter_context(server())
        database = new_database(running.address)
        data = Path(str(psycopg.conninfo.conninfo_to_dict(database)["host"])) / "data"
        environment = {
            **os.environ,
            "PATH": f"{binaries()}:{Path(MODULE[0]).parent}:{os.environ['PATH']}",
            "PGHOST": str(data.parent),
            "ARCHIVE": str(archive),
            "BACKUP": str(home / "backup"),
            "DATA": str(data),
            "DATABASE": database,
        }

        def type_in(block: str, *who: str) -> None:
            command = [*who, "sh", "-ec", block]
            subprocess.run(command, env=environment, check=True, timeout=PATIENCE, cwd=home)

        def ask(sql: str) -> str:
            with psycopg.connect(database, autocommit=True) as connection:
                ((answer,),) = connection.execute(sql.encode()).fetchall()
            return str(answer)

        type_in(keep_log, *AS_ACCOUNT)
        running.restart()
        alps = Alps(database)
        port = free_port()
        kit = stack.enter_context(alps.kit(tmp_path, f"http://127.0.0.1:{port}"))
        settings = {"database": database, "port": str(port)}
        with hub(tmp_path, settings) as before:
            alps.push(port, "before the copy")
            until(lambda: len(contents(kit)) == 1)
            type_in(copy_files, *AS_ACCOUNT)
            administer(database, "user", "add", "Ben")
            alps.push(port, "after the copy")
            until(lambda: len(contents(kit)) == 2)
            environment["MOMENT"] = ask("SELECT clock_timestamp()")
            administer(database, "user", "delete", "Ben", "--yes")
            alps.push(port, "after the mistake")
            until(lambda: len(contents(kit)) == 3)
            last = ask("SELECT pg_walfile_name(pg_switch_wal())")
            until(lambda: (archive / last).exists())
            before.kill()
        running.stop()
        data.rename(data.with_name("lost"))
        type_in(put_back, *AS_ACCOUNT)
        running.start()
        until(lambda: ask("SELECT pg_is_in_recovery()") == "False")
        names = [each["name"] for each in administer(database, "user", "list")]
        assert "Ben" in names
        assert ask("SELECT count(*) FROM item") == "2"
        type_in(tell_the_hub)
        with hub(tmp_path, settings):
            alps.push(port, "after the restore")
            until(lambda: len(contents(kit)) == 4)
            until(lambda: ask("SELECT count(*) FROM item") == "4")
        pushes = ["before the copy", "after the copy", "after the mistake", "after the restore"]
        assert sorted(contents(kit)) == sorted(pushes)
