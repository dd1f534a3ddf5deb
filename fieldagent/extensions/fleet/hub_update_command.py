"""`fieldagent hub update …`: offers a new program to the kits in waves, over their IP links.

The hub never has the secret key and does not provide the program. The builder signs the program,
and puts the program and its signature on a server for the kits. Each kit verifies the signature.
"""

from __future__ import annotations

import argparse
import io
import re
import time
import zipfile
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice

from fieldagent.cli.hub.opened_store import Call, Result, make_store_command, make_transaction
from fieldagent.extensions.fleet.fetching import UpdateRefused, fetch_file
from fieldagent.extensions.fleet.version_order import make_sort_key
from fieldagent.hub.access import directory
from fieldagent.hub.access.directory import Refused, Row
from fieldagent.hub.field import update_offers
from fieldagent.hub.field.update_offers import Candidate, PlannedKit
from fieldagent.hub.settings import HubSettings
from fieldagent.hub.store.contract import Db, Store
from fieldagent.system.minisign import NotSigned, parse_signature
from fieldagent.system.signed_release import check_release
from fieldagent.wire.kit_note import is_address

REASONS_MAX = 5
"""Largest number of kits whose reasons are listed."""


@make_store_command
def offer(arguments: argparse.Namespace, _: HubSettings, store: Store) -> Result:
    """Download and check the program, and offer it to the kits in waves. Return the kits of each
    wave.
    """
    # Begin no transaction before the download, because it may take a long time.
    _check(arguments.version, arguments.url, time.time())
    return store.run_once(lambda db: _offer(db, arguments, time.time()))


def _offer(db: Db, arguments: argparse.Namespace, now: float) -> Sequence[Row]:
    workspace = directory.find_workspace(db, arguments.workspace)
    if number := update_offers.find_active_offer(db, workspace):
        raise Refused(f"offer {number} is under way: `fieldagent hub update stop` ends it")
    planned = _plan_waves(
        _sort_as_named(db, workspace, arguments.devices, now), arguments.version, arguments.waves
    )
    update_offers.offer(
        db,
        workspace,
        arguments.version,
        arguments.url,
        planned,
        within=60.0 * arguments.within,
        now=now,
    )
    return update_offers.list_kits(db, workspace, None)


def _check(version: str, url: str, now: float) -> None:
    """Check, before any kit gets the offer, the URL, the version and the signature's text. Raises
    Refused if kits would not accept the program.
    """
    if not is_address(url):
        raise Refused(f"{url!r} is not an https:// or http:// address that kits can fetch")
    try:
        program_version = _read_version(fetch_file(url).content)
        signature = parse_signature(fetch_file(f"{url}.minisig").content.decode())
        release = check_release(signature.comment, now)
    except (UpdateRefused, NotSigned, UnicodeDecodeError) as wrong:
        text = f"nothing was offered: {wrong}; `build/sign FILE` signs it, serve both"
        raise Refused(text) from None
    if program_version != version:
        raise Refused(
            f"nothing was offered: {url} is {program_version or 'not fieldagent'}, not {version}"
        )
    if release.version != version:
        raise Refused(f"nothing was offered: {url} was signed as {release.version}, not {version}")


def _read_version(program: bytes) -> str:
    """Return the version of a zipapp without running it, or an empty text if the bytes are not a
    zipapp of fieldagent.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(program)) as archive:
            text = archive.read("fieldagent/__init__.py").decode()
    except (zipfile.BadZipFile, KeyError, UnicodeDecodeError, NotImplementedError):
        return ""
    match = re.search(r'^__version__ ?= ?"([^"]+)"', text, re.MULTILINE)
    return match[1] if match else ""


def _sort_as_named(db: Db, workspace: int, devices: str, now: float) -> Sequence[Candidate]:
    """Return the kits in the order in which `devices` lists them. If `devices` is "all", return the
    kits in the default order.
    """
    kits = update_offers.list_candidates(db, workspace, now)
    if devices == "all":
        return kits
    by_number = {kit.device: kit for kit in kits}
    ordered_kits = dict.fromkeys(
        directory.find_device_named(db, workspace, each) for each in devices.split(",")
    )
    return [by_number[device] for device in ordered_kits]


def _plan_waves(
    kits: Sequence[Candidate], version: str, waves: Sequence[int | None]
) -> Sequence[PlannedKit]:
    """Assign the kits to waves, and return the plan. Raises Refused if no kit would accept the
    offer, or if the waves have too few places.
    """
    other_kits = {kit: entry for kit in kits if (entry := _plan_without_offer(kit, version))}
    remaining_kits = [kit.device for kit in kits if kit not in other_kits]
    if not remaining_kits:
        reason = "; ".join(
            f"{kit.name}: {entry.why}" for kit, entry in [*other_kits.items()][:REASONS_MAX]
        )
        raise Refused(f"nothing was offered, because no kit would accept it: {reason or 'no kits'}")
    devices = iter(remaining_kits)
    plan = [
        PlannedKit(device, wave, "planned")
        for wave, size in enumerate(waves, 1)
        for device in islice(devices, size)
    ]
    if len(plan) < len(remaining_kits):
        text = f"nothing was offered: the waves hold {len(plan)} of {len(remaining_kits)} kits"
        raise Refused(f"{text}; end with all, as in --waves 1,10,all")
    return [*plan, *other_kits.values()]


def _plan_without_offer(kit: Candidate, version: str) -> PlannedKit | None:
    """Return the plan of a kit that does not get the offer, or None if the kit gets it."""
    if reason := update_offers.explain_unfit(kit):
        return PlannedKit(kit.device, 0, "left out", reason)
    if kit.version == version:
        return PlannedKit(kit.device, 0, "taken", "it already ran this version")
    if _is_newer(kit.version, version):
        return PlannedKit(kit.device, 0, "left out", f"it runs {kit.version}, which is newer")
    return None


def _is_newer(runs: str, version: str) -> bool:
    """Return True if the kit's version `runs` is newer than `version`. `runs` may be any text,
    because a kit reports it.
    """
    with suppress(UpdateRefused):
        return make_sort_key(runs) > make_sort_key(version)
    return False


@make_transaction
def list_offers(call: Call) -> Result:
    """List the offers of a workspace, the newest first. `--limit` is their largest number."""
    return update_offers.list_all(*call.here, max(1, call.arguments.limit))


@make_transaction
def show_kits(call: Call) -> Result:
    """List the kits of an offer, or of the last offer, with their progress and version."""
    if not (kits := update_offers.list_kits(*call.here, call.arguments.number)):
        raise Refused("no such offer: see `fieldagent hub update list`")
    return kits


@make_transaction
def stop(call: Call) -> Result:
    """Stop the current offer for kits that have not begun to update. The other kits continue."""
    if (number := update_offers.stop_offer(*call.here, call.now)) is None:
        raise Refused("no update is in progress: see `fieldagent hub update list`")
    return {"number": number, "next": "kits that have begun continue"}
