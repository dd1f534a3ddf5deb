"""`fieldagent hub workspace export` and `user export`: all data of a workspace or user, as
files."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any

from fieldagent import __version__
from fieldagent.cli.hub.opened_store import Result, make_store_command
from fieldagent.hub.access import subject
from fieldagent.hub.access.subject import Subject
from fieldagent.hub.administration import export
from fieldagent.hub.settings import HubSettings
from fieldagent.hub.store.contract import Store
from fieldagent.system.exit_codes import IO_FAILED, REFUSED
from fieldagent.system.folder import make_private_folder, sync_folder
from fieldagent.system.log_lines import print_failure
from fieldagent.system.progress import Progress
from fieldagent.system.wording import describe_reason


@make_store_command
def write(arguments: argparse.Namespace, _: HubSettings, store: Store) -> Result:
    """Write all data of a workspace or user into a new folder. The data of an interrupted export
    stays in FOLDER.unfinished.
    """
    target: Path = arguments.folder
    name = arguments.workspace if arguments.what == "workspace" else arguments.named
    data_subject = store.run_once(
        lambda db: subject.find_subject(db, arguments.what, arguments.workspace, name)
    )
    unfinished = target.parent / f"{target.name}.unfinished"
    try:
        if target.exists():
            print_failure(f"{target} already exists: use the name of a new folder")
            return REFUSED
        counts = _write(store, data_subject, unfinished)
        unfinished.rename(target)
        sync_folder(target.absolute().parent)
    except OSError as error:
        print_failure(
            f"the export stopped: {describe_reason(error)}; remove {unfinished}, and try again"
        )
        return IO_FAILED
    return {"folder": str(target), "id": data_subject.id, "name": data_subject.name, **counts}


def _write(store: Store, data_subject: Subject, folder: Path) -> dict[str, int]:
    """Write the data, and return the number of records of each kind. Raises OSError."""
    now = time.time()
    make_private_folder(folder)
    counts = {}
    for name, listing in export.select_listings(data_subject.kind).items():
        rows = store.run_once(partial(listing, subject=data_subject, now=now))
        with _open_private(folder / f"{name}.jsonl") as file:
            counts[name] = _write_rows(file, rows)
    counts["items"] = _write_items(store, data_subject, folder, now)
    description = {
        data_subject.kind: data_subject.id,
        "name": data_subject.name,
        "at": now,
        "fieldagent": __version__,
    }
    with _open_private(folder / "export.json") as file:
        _write_rows(file, [{**description, **counts}])
    sync_folder(folder)
    return counts


def _write_items(store: Store, data_subject: Subject, folder: Path, now: float) -> int:
    count, place = 0, 0
    item_count = store.run_once(partial(export.count_items, subject=data_subject))
    make_private_folder(folder / "data")
    with (
        _open_private(folder / "items.jsonl") as file,
        Progress(f"exporting {data_subject.name}", "items") as progress,
    ):
        while True:
            numbers, last = store.run_once(
                partial(export.list_item_numbers, subject=data_subject, after=place)
            )
            if last is None:
                break
            read_items = store.run_once(partial(export.list_items, numbers=numbers, now=now))
            for item in read_items:
                if item.data is not None:
                    with _open_private(folder / item.row["event"]["file"]) as data:
                        data.write(item.data)
            count += _write_rows(file, (item.row for item in read_items))
            place = last
            progress.show(count, item_count)
    sync_folder(folder / "data")
    return count


@contextmanager
def _open_private(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that only its owner can read. The file is on disk after the block."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _write_rows(file: IO[bytes], rows: Iterable[dict[str, Any]]) -> int:
    count = 0
    for row in rows:
        file.write(json.dumps(row, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
        count += 1
    return count
