"""`fieldagent hub …`: the hub in the foreground, and the administration of its directory.

Administration opens the database itself, whether a hub runs or not. Secrets are shown once.
"""

from __future__ import annotations

import argparse
import base64
import getpass
import json
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from fieldagent.cli.ask_password import ask_password
from fieldagent.cli.exit_codes import IO_FAILED, NEWER, OK, REFUSED, TAKEN, UNAVAILABLE, USAGE
from fieldagent.cli.log_lines import complain, start_logging
from fieldagent.cli.run import emit, refuse_settings
from fieldagent.cli.terminal import escaped
from fieldagent.http.listeners import ListenFailed, PortTaken
from fieldagent.hub import audit, credentials, dead_letters, directory, kept_letters, secret
from fieldagent.hub.contract import Device
from fieldagent.hub.directory import Refused, Row
from fieldagent.hub.mobile_originated import MobileOriginated
from fieldagent.hub.settings import HubSettings, database_options, load
from fieldagent.hub.store.contract import Db, OtherVersion, Store
from fieldagent.hub.store.opening import open_store
from fieldagent.package.writing import clock_time
from fieldagent.store.group import NOT_STORED, StoreFailed, StoreUnavailable
from fieldagent.system import scrypt
from fieldagent.system.error_groups import first_error
from fieldagent.system.properties import InvalidSettings
from fieldagent.wire.errors import LocalProtocolError

DAY = 86_400.0
CODES: dict[type[BaseException], int] = {PortTaken: TAKEN, StoreFailed: IO_FAILED}


def with_store(
    given: argparse.Namespace,
    use: Callable[[HubSettings, Store], int],
    *,
    upgrade: bool = False,
) -> int:
    try:
        settings = load(given.config, given.database)
    except (InvalidSettings, OSError) as error:
        return refuse_settings(error)
    try:
        store = open_store(settings.database, database_options(settings, upgrade=upgrade))
    except OtherVersion as error:
        complain(str(error))
        return NEWER
    except (StoreUnavailable, StoreFailed) as error:
        complain(str(error))
        return CODES.get(type(error), UNAVAILABLE)
    try:
        return use(settings, store)
    except Refused as refused:
        complain(escaped(str(refused)))
        return REFUSED
    except NOT_STORED as error:
        complain(str(error))
        return IO_FAILED
    finally:
        store.close()


def once(
    given: argparse.Namespace, operation: Callable[[Db, float], int], *, upgrade: bool = False
) -> int:
    def use(_: HubSettings, store: Store) -> int:
        return store.once(lambda db: operation(db, time.time()))

    return with_store(given, use, upgrade=upgrade)


def run(given: argparse.Namespace) -> int:
    """Until it is stopped by a signal."""
    from fieldagent.hub import hub
    from fieldagent.system.signals import run_heeding

    start_logging(given.verbose)

    def serve(settings: HubSettings, store: Store) -> int:
        try:
            run_heeding(partial(hub.run, settings, store, emit), signal.SIGHUP)
        except* (ListenFailed, LocalProtocolError, OSError, StoreFailed) as group:
            error = first_error(group)
            complain(str(error))
            return_code.append(CODES.get(type(error), UNAVAILABLE))
        return return_code[0] if return_code else OK

    return_code: list[int] = []
    return with_store(given, serve)


def init(given: argparse.Namespace) -> int:
    """The database, and the first workspace with an integration that may push to it."""

    def make(db: Db, now: float) -> int:
        if directory.workspaces(db):
            raise Refused("there are workspaces already; `fieldagent hub workspace add` adds one")
        workspace = directory.add_workspace(db, given.name, now=now)
        member = directory.add_user(db, workspace, "push", type_="Integration", now=now)
        _, key = credentials.add_key(db, workspace, "push", now=now)
        _, token = credentials.add_token(db, member, "push", now=now)
        text = {"workspaceId": workspace, "sourceUserId": member, "apiKey": key, "token": token}
        return show(given, text, secret_names=("apiKey", "token"))

    return once(given, make, upgrade=True)


def workspace_add(given: argparse.Namespace) -> int:
    return once(
        given,
        lambda db, now: show(given, {"id": directory.add_workspace(db, given.name, now=now)}),
    )


def workspace_list(given: argparse.Namespace) -> int:
    return once(given, lambda db, now: show_list(given, directory.workspaces(db)))


def user_add(given: argparse.Namespace) -> int:
    hashed = scrypt.hash_password(ask_password()) if given.password else None

    def add(db: Db, now: float) -> int:
        id_ = directory.add_user(
            db,
            directory.workspace_of(db, given.workspace),
            given.name,
            type_=given.type,
            email=given.email,
            password=hashed,
            over_satellite=given.over_satellite,
            now=now,
        )
        return show(given, {"id": id_})

    return once(given, add)


def user_join(given: argparse.Namespace) -> int:
    def join(db: Db, now: float) -> int:
        workspace = directory.workspace_of(db, given.workspace)
        directory.join(db, workspace, given.user, over_satellite=given.over_satellite, now=now)
        return show(given, {"id": given.user, "workspace": workspace})

    return once(given, join)


def user_leave(given: argparse.Namespace) -> int:
    def leave(db: Db, now: float) -> int:
        workspace = directory.workspace_of(db, given.workspace)
        member = directory.member_of(db, workspace, given.user)
        directory.leave(db, workspace, member, now=now)
        return show(given, {"id": member, "workspace": workspace})

    return once(given, leave)


def user_role(given: argparse.Namespace) -> int:
    def change(db: Db, now: float) -> int:
        workspace = directory.workspace_of(db, given.workspace)
        member = directory.member_of(db, workspace, given.user)
        directory.set_role(db, workspace, member, given.role, now=now)
        return show(given, {"id": member, "role": given.role})

    return once(given, change)


def user_password(given: argparse.Namespace) -> int:
    hashed = scrypt.hash_password(ask_password())

    def change(db: Db, now: float) -> int:
        workspace = directory.workspace_of(db, given.workspace)
        member = directory.member_of(db, workspace, given.user)
        directory.set_password(db, member, hashed, now=now)
        return show(given, {"id": member})

    return once(given, change)


def user_list(given: argparse.Namespace) -> int:
    return once(
        given,
        lambda db, now: show_list(
            given, directory.users(db, directory.workspace_of(db, given.workspace))
        ),
    )


def disable(given: argparse.Namespace) -> int:
    def change(db: Db, now: float) -> tuple[list[int], Row]:
        workspace = directory.workspace_of(db, given.workspace)
        find = directory.member_of if given.what == "member" else directory.device_named
        id_ = find(db, workspace, given.named)
        when = None if given.enable else now
        devices = directory.set_disabled(db, given.what, id_, when, now=now)
        return devices, {"id": id_, "disabled": not given.enable}

    return taking_dead_letters(given, change)


def taking_dead_letters(
    given: argparse.Namespace, change: Callable[[Db, float], tuple[Sequence[int], Row]]
) -> int:
    """`change` devices, and take in what they sent before: in one transaction, so once. Their
    numbers come back, and what to show."""

    def carry_out(settings: HubSettings, store: Store) -> int:
        taking = _mobile_originated(settings, store)

        def both(db: Db) -> Row:
            devices, text = change(db, time.time())
            if taken := kept_letters.take_in(db, taking, devices):
                text["deadLettersTaken"] = taken
            return text

        return show(given, store.once(both), secret_names=("hub-token", "satellite-key"))

    return with_store(given, carry_out)


def _mobile_originated(settings: HubSettings, store: Store) -> MobileOriginated:
    async def keys(device: Device) -> Sequence[bytes]:
        return await store.read(lambda db: directory.mo_keys_of(db, device.id))

    return MobileOriginated(
        store,
        clock=time.time,
        keys=keys,
        grace=settings.satellite_grace,
        time_to_live=settings.item_time_to_live,
    )


def dead_letter_list(given: argparse.Namespace) -> int:
    def rows(db: Db, now: float) -> int:
        listed = dead_letters.listing(db)
        if not given.json:
            for row in listed:
                row["payload"] = _as_text(row["payload"])
        return show_list(given, listed)

    return once(given, rows)


def _as_text(payload: str) -> str:
    """A message as people read it, where it is text; the beginning of it."""
    body = base64.b64decode(payload)
    text = body.decode("ascii", "replace")
    return (text if text.isprintable() and "\ufffd" not in text else f"hex {body.hex()}")[:40]


def dead_letter_replay(given: argparse.Namespace) -> int:
    def all_of_them(settings: HubSettings, store: Store) -> int:
        taking = _mobile_originated(settings, store)
        taken = store.once(
            lambda db: kept_letters.take_in(db, taking, dead_letters.devices_with(db))
        )
        return show(given, {"deadLettersTaken": taken})

    return with_store(given, all_of_them)


def dead_letter_remove(given: argparse.Namespace) -> int:
    def drop(db: Db, now: float) -> int:
        dead_letters.discard(db, given.id, now=now)
        return show(given, {"id": given.id, "removed": True})

    return once(given, drop)


def device_imei(given: argparse.Namespace) -> int:
    def change(db: Db, now: float) -> tuple[list[int], Row]:
        device = directory.device_named(
            db, directory.workspace_of(db, given.workspace), given.device
        )
        directory.set_imei(db, device, given.imei, now=now)
        return [device], {"id": device, "imei": given.imei}

    return taking_dead_letters(given, change)


def device_rename(given: argparse.Namespace) -> int:
    def change(db: Db, now: float) -> int:
        workspace = directory.workspace_of(db, given.workspace)
        device = directory.device_named(db, workspace, given.device)
        directory.rename_device(db, device, given.name, now=now)
        return show(given, {"id": device, "name": given.name})

    return once(given, change)


def device_key(given: argparse.Namespace) -> int:
    """A new one, the one that the kit has (read, never an argument), or none."""
    key = None if given.remove else _given_key() if given.given else secret.new_air_key()

    def change(db: Db, now: float) -> tuple[list[int], Row]:
        device = directory.device_named(
            db, directory.workspace_of(db, given.workspace), given.device
        )
        directory.set_air_key(db, device, key, now=now)
        text: Row = {"id": device, "tagged": key is not None}
        if key is not None and not given.given:
            text["satellite-key"] = key.hex()
        return [device], text

    return taking_dead_letters(given, change)


def _given_key() -> bytes:
    asked = getpass.getpass("satellite-key: ") if sys.stdin.isatty() else sys.stdin.readline()
    try:
        key = bytes.fromhex(asked.strip())
    except ValueError:
        key = b""
    if len(key) != 32:
        complain("a satellite-key has 64 hexadecimal digits")
        raise SystemExit(USAGE)
    return key


def device_token(given: argparse.Namespace) -> int:
    def renew(db: Db, now: float) -> int:
        workspace = directory.workspace_of(db, given.workspace)
        device = directory.device_named(db, workspace, given.device)
        token = directory.new_link_token(db, device, now=now)
        return show(given, {"id": device, "hub-token": token}, secret_names=("hub-token",))

    return once(given, renew)


def device_relay(given: argparse.Namespace) -> int:
    def change(db: Db, now: float) -> tuple[list[int], Row]:
        workspace = directory.workspace_of(db, given.workspace)
        device = directory.device_named(db, workspace, given.device)
        directory.set_relay(db, device, not given.off, now=now)
        return [device], {"id": device, "relay": not given.off}

    return taking_dead_letters(given, change)


def device_list(given: argparse.Namespace) -> int:
    def rows(db: Db, now: float) -> int:
        listed = directory.devices(db, directory.workspace_of(db, given.workspace), now)
        if not given.json:
            for row in listed:
                row |= {name: _in_short(row[name]) for name in ("lastUpdate", "settings")}
        return show_list(given, listed)

    return once(given, rows)


REASON_SHOWN = 60
"""Characters of what --json tells whole."""


def _in_short(text: str | None) -> str | None:
    if text is None or len(text) <= REASON_SHOWN:
        return text
    return f"{text[:REASON_SHOWN]} …"


def key_add(given: argparse.Namespace) -> int:
    purposes = [name for name in ("read", "acknowledge", "administer") if getattr(given, name)]

    def add(db: Db, now: float) -> int:
        id_, key = credentials.add_key(
            db,
            directory.workspace_of(db, given.workspace),
            given.name,
            scopes=[*(given.kind or ()), *purposes],
            per_minute=given.per_minute,
            burst=given.burst,
            expires=_expiry(given, now),
            now=now,
        )
        return show(given, {"id": id_, "apiKey": key}, secret_names=("apiKey",))

    return once(given, add)


def token_add(given: argparse.Namespace) -> int:
    def add(db: Db, now: float) -> int:
        workspace = directory.workspace_of(db, given.workspace)
        member = directory.member_of(db, workspace, given.user)
        id_, token = credentials.add_token(
            db, member, given.name, expires=_expiry(given, now), now=now
        )
        return show(given, {"id": id_, "token": token}, secret_names=("token",))

    return once(given, add)


def credential_list(given: argparse.Namespace) -> int:
    return once(
        given,
        lambda db, now: show_list(
            given,
            credentials.listing(db, given.what, directory.workspace_of(db, given.workspace)),
        ),
    )


def revoke(given: argparse.Namespace) -> int:
    def withdraw(db: Db, now: float) -> int:
        workspace = directory.workspace_of(db, given.workspace)
        credentials.revoke(db, given.what, workspace, given.id, now=now)
        return show(given, {"id": given.id, "revoked": True})

    return once(given, withdraw)


def key_rate(given: argparse.Namespace) -> int:
    def change(db: Db, now: float) -> int:
        workspace = directory.workspace_of(db, given.workspace)
        rate = {"per_minute": given.per_minute, "burst": given.burst}
        return show(given, credentials.set_rate(db, workspace, given.id, **rate, now=now))

    return once(given, change)


def audit_list(given: argparse.Namespace) -> int:
    def look(db: Db, now: float) -> int:
        workspace = directory.workspace_of(db, given.workspace) if given.workspace else None
        return show_list(given, audit.latest(db, given.limit, workspace))

    return once(given, look)


def _expiry(given: argparse.Namespace, now: float) -> float | None:
    return None if given.days is None else now + given.days * DAY


def show(
    given: argparse.Namespace, told: Mapping[str, Any], *, secret_names: Sequence[str] = ()
) -> int:
    if given.json:
        print(json.dumps(told))
        return OK
    for name, value in told.items():
        print(f"{name}: {escaped(str(value))}")
    if any(name in told for name in secret_names):
        print("Keep what is secret of this now: it is not shown again.", file=sys.stderr)
    return OK


def show_list(given: argparse.Namespace, rows: Sequence[Row]) -> int:
    if given.json:
        print(json.dumps(rows))
        return OK
    if not rows:
        print("none")
        return OK
    table = [list(rows[0]), *([_cell(value) for value in row.values()] for row in rows)]
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    for line in table:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        )
    return OK


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return clock_time(value)
    return "-" if value in (None, "") else escaped(str(value))
