"""Change of the radio key for all kits of a workspace, in the three steps of a manual change
(docs/how-to/radio-key.md). A kit first receives with both keys, then sends with the new key, then
uses only the new key.

1. The hub begins a step only after all kits in use have confirmed the previous step, so that all
   kits can always hear each other. The hub does not wait for kits that a person has left out.
2. The hub sends each kit a separate command, which contains the key sealed for this kit. The kit's
   answer confirms the step.
3. The hub asks a kit that is new or was away for the step that the other kits have reached.
4. The hub pays for a satellite message only if a person has agreed, once per step. If a kit does
   not answer, the hub asks it again over IP.
5. A revoked kit is disabled. The hub does not ask it and never sends it the key.
"""

from __future__ import annotations

from collections.abc import Collection
from math import inf
from typing import Any

from fieldagent.hub.access import device_keys, directory
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.field.command_sending import compute_cost, is_paid, store_command
from fieldagent.hub.records import audit, commands
from fieldagent.hub.records.commands import CommandToSend
from fieldagent.hub.records.lease import IS_LINKED
from fieldagent.hub.store.contract import Db
from fieldagent.package.package import CommandAnswer, CommandOutcome
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.wording import sentence
from fieldagent.wire.answer_text import format_answer
from fieldagent.wire.command import SEALED_KEY_BYTES, VERB_BY_NAME, RemoteCommand
from fieldagent.wire.proof import prove_command
from fieldagent.wire.sealed_key import seal_key

VERB = VERB_BY_NAME["radio-key"].number
LAST = 3
GRACE_S = 900.0
"""Seconds that the link has before the hub pays for a satellite message."""
RETRY_AFTER_S = 6 * 3600.0
"""Seconds until the hub asks a kit again that refused the step or failed."""


class RadioKeyChange(NamedTuple):
    workspace: int
    key: bytes
    step: int
    began: float
    stepped: float
    """Unix time when the hub began the current step."""
    ended: float | None
    """Unix time when the last kit confirmed that it uses only this key."""
    bearer: str
    """Bearer for the commands, as in `CommandToSend`."""


class KeyKit(NamedTuple):
    device: int
    name: str
    step: int
    """Step that the kit has confirmed."""
    asked: int
    """Last step for which the hub has asked the kit."""
    number: int
    """Number of the command that asked for the step."""
    asked_at: float
    outcome: int | None
    """Result of that command; None until the kit has answered."""
    answer: str
    left_out: int
    at: float | None
    """Unix time of the kit's last answer."""
    linked: int

    def compute_due_time(self, step: int) -> float:
        """Return the Unix time when the hub must ask the kit for `step`."""
        if self.asked < step:
            return 0.0
        return self.asked_at + (commands.LIFETIME_S if self.outcome is None else RETRY_AFTER_S)


def find_change(db: Db, workspace: int, *, lock: bool = False) -> RadioKeyChange | None:
    """Return the last change of a workspace, active or finished, or None if there was none."""
    rows = db.execute(
        "SELECT workspace, key, step, began, stepped, ended, bearer FROM radio_key"
        " WHERE workspace = ?" + (db.for_update() if lock else ""),
        workspace,
    )
    if not rows:
        return None
    number, key, *rest = rows[0]
    return RadioKeyChange(number, bytes(key), *rest)


IS_ASKED = (
    "device.disabled IS NULL AND (device.air_key IS NOT NULL OR device.link_token IS NOT NULL)"
    " AND NOT EXISTS (SELECT 1 FROM tracker WHERE tracker.device = device.id)"
)
"""SQL condition on a device: an enabled kit that shares a secret with the hub."""


def list_kits(db: Db, workspace: int, now: float) -> list[KeyKit]:
    """Return the kits of a workspace that must get the key, with the last step of each kit."""
    rows = db.execute(
        "SELECT device.id, device.name, coalesce(kit.step, 0), coalesce(kit.asked, 0),"
        " coalesce(kit.number, 0), coalesce(kit.given, 0), kit.outcome, coalesce(kit.said, ''),"
        f" coalesce(kit.left_out, 0), kit.at, CASE WHEN {IS_LINKED} THEN 1 ELSE 0 END"
        " FROM device LEFT JOIN radio_key_kit kit ON kit.device = device.id"
        f" WHERE device.workspace = ? AND {IS_ASKED} ORDER BY device.id",
        *(now, workspace),
    )
    return [KeyKit(*row) for row in rows]


class KeyPrice(NamedTuple):
    """Cost of sending a new radio key to the kits of a workspace. Only kits that get the key over
    satellite cost credits. A kit with a link gets the key over IP.
    """

    kits: int
    linked: int
    by_satellite: int
    credits: int
    """Credits of all remaining steps and their answers. 0 if the modem is billed by bytes."""
    operators: frozenset[str]


def compute_price(
    db: Db, workspace: int, bearer: str, *, steps: int, excluded: Collection[int], now: float
) -> KeyPrice:
    """Return the cost of a change of the key. Raises Refused if there is no kit to ask, or if a
    modem cannot carry the command.
    """
    kits = [each for each in list_kits(db, workspace, now) if each.device not in excluded]
    if not kits:
        raise Refused("no kit of this workspace is enabled")
    quotes = [compute_cost(db, each.device, int(now), _UNSEALED, now) for each in kits]
    paid_quotes = [each for each in quotes if is_paid(each, bearer)]
    return KeyPrice(
        len(kits),
        sum(each.linked for each in quotes),
        len(paid_quotes),
        steps * sum(each.credits for each in paid_quotes),
        frozenset(each.operator for each in paid_quotes if each.operator),
    )


_UNSEALED = prove_command(0, RemoteCommand(VERB, (LAST, bytes(SEALED_KEY_BYTES))), b"")


def begin_change(
    db: Db,
    workspace: int,
    key: bytes,
    bearer: str,
    *,
    left_out: Collection[int] = (),
    actor: str = audit.ADMINISTRATION,
    now: float,
) -> None:
    """Change the radio key of all kits of a workspace to `key`. An active change ends. Kits that
    already have the key of that change then receive with three keys. Raises Refused if no kit is in
    use.
    """
    if not list_kits(db, workspace, now):
        raise Refused("no kit of this workspace is enabled")
    db.execute(
        "INSERT INTO radio_key (workspace, key, step, began, stepped, bearer)"
        " VALUES (?, ?, 1, ?, ?, ?) ON CONFLICT (workspace) DO UPDATE SET key = excluded.key,"
        " step = 1, began = excluded.began, stepped = excluded.stepped, ended = NULL,"
        " bearer = excluded.bearer",
        *(workspace, key, now, now, bearer),
    )
    db.execute(
        "DELETE FROM radio_key_kit WHERE device IN (SELECT id FROM device WHERE workspace = ?)",
        workspace,
    )
    for device in left_out:
        _leave_out(db, device)
    audit.write_line(db, workspace, actor, "radio-key change", "", now)
    continue_change(db, workspace, now)


def leave_out(db: Db, device: int, *, actor: str = audit.ADMINISTRATION, now: float) -> None:
    """Stop waiting for a kit. When the kit connects again, the hub asks it for the current step.
    Raises Refused if no change is active.
    """
    workspace = _find_under_way(db, device).workspace
    _leave_out(db, device)
    directory.audit_device(db, device, actor, "radio-key leave out", str(device), now)
    continue_change(db, workspace, now)


def _leave_out(db: Db, device: int) -> None:
    db.execute(
        "INSERT INTO radio_key_kit (device, left_out) VALUES (?, 1)"
        " ON CONFLICT (device) DO UPDATE SET left_out = 1",
        device,
    )


def ask_again(db: Db, device: int, bearer: str, *, now: float) -> None:
    """Ask a kit again, for example after someone restored its memory card. Raises Refused if there
    was no change, or if the kit is disabled.
    """
    ((workspace,),) = db.execute("SELECT workspace FROM device WHERE id = ?", device)
    change = find_change(db, workspace, lock=True)
    kit = next((each for each in list_kits(db, workspace, now) if each.device == device), None)
    if change is None or kit is None:
        raise Refused(
            sentence(
                (
                    "device {device} does not get a key in this change: see `fieldagent hub"
                    " device radio-key status`"
                ),
                device=device,
            )
        )
    _send_step(db, change, kit, bearer, now)


def _find_under_way(db: Db, device: int) -> RadioKeyChange:
    ((workspace,),) = db.execute("SELECT workspace FROM device WHERE id = ?", device)
    change = find_change(db, workspace, lock=True)
    if change is None or change.ended is not None:
        raise Refused("no radio-key is being changed in this workspace")
    return change


def continue_change(db: Db, workspace: int, now: float) -> None:
    """Start the next step if all kits have confirmed the current step. Send the command of the
    current step to kits that have not confirmed it, if the command is due.
    """
    change = find_change(db, workspace, lock=True)
    if change is None:
        return
    kits = list_kits(db, workspace, now)
    awaited = [each.step for each in kits if not each.left_out]
    while change.ended is None and min(awaited, default=LAST) >= change.step:
        change = _begin_step(db, change, now)
    for kit in kits:
        if kit.step < change.step and kit.compute_due_time(change.step) <= now:
            first = kit.asked < change.step and not kit.left_out
            _send_step(db, change, kit, change.bearer if first else "ip", now)


def _begin_step(db: Db, change: RadioKeyChange, now: float) -> RadioKeyChange:
    if change.step == LAST:
        change = change._replace(ended=now)
        detail = "all have it alone"
    else:
        change = change._replace(step=change.step + 1, stepped=now)
        detail = f"step {change.step} of {LAST}"
    db.execute(
        "UPDATE radio_key SET step = ?, stepped = ?, ended = ? WHERE workspace = ?",
        *(change.step, change.stepped, change.ended, change.workspace),
    )
    audit.write_line(db, change.workspace, audit.HUB, "radio-key step", detail, now)
    return change


def _send_step(db: Db, change: RadioKeyChange, kit: KeyKit, bearer: str, now: float) -> None:
    device = kit.device
    commands.expire_commands(db, device, VERB, now)
    secret, *_ = device_keys.read_secrets(db, device)
    command = RemoteCommand(VERB, (change.step, seal_key(change.key, secret)))
    number = commands.compute_next_number(db, device, now)
    order = CommandToSend(change.workspace, device, number, command, bearer, audit.HUB)
    number = store_command(db, order, GRACE_S if kit.linked else 0.0, now)
    db.execute(
        "INSERT INTO radio_key_kit (device, asked, number, given) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (device) DO UPDATE SET asked = excluded.asked, number = excluded.number,"
        " given = excluded.given, outcome = NULL, said = ''",
        *(device, change.step, number, now),
    )


def record_step_answer(db: Db, device: int, answer: CommandAnswer, now: float) -> None:
    """If the answer is to a step of the key change, store it and continue the change."""
    is_done = answer.outcome is CommandOutcome.DONE
    rows = db.execute(
        "UPDATE radio_key_kit SET outcome = ?, said = ?, at = ?,"
        " step = CASE WHEN ? = 1 AND asked > step THEN asked ELSE step END"
        " WHERE device = ? AND number = ?"
        " RETURNING (SELECT workspace FROM device WHERE id = device)",
        *(
            int(answer.outcome),
            format_answer(VERB, answer),
            now,
            int(is_done),
            device,
            answer.number,
        ),
    )
    for (workspace,) in rows:
        continue_change(db, workspace, now)


def compute_next_due(db: Db) -> float:
    """Return the Unix time when `continue_changes` should run next."""
    return min((_compute_due_time(db, each) for each in _list_all(db)), default=inf)


def continue_changes(db: Db, now: float) -> list[str]:
    """Continue all changes, and return an empty list, because there are no warnings."""
    for workspace in _list_all(db):
        if _compute_due_time(db, workspace) <= now:
            continue_change(db, workspace, now)
    return []


def _list_all(db: Db) -> list[int]:
    return [workspace for (workspace,) in db.execute("SELECT workspace FROM radio_key")]


def _compute_due_time(db: Db, workspace: int) -> float:
    change = find_change(db, workspace)
    if change is None:
        return inf
    kits = list_kits(db, workspace, 0.0)
    awaited = [each.step for each in kits if not each.left_out]
    if change.ended is None and min(awaited, default=LAST) >= change.step:
        return 0.0  # All kits that are still enabled have confirmed the step: continue immediately.
    due_times = [each.compute_due_time(change.step) for each in kits if each.step < change.step]
    return min(due_times, default=inf)


STATES = {None: "asked", CommandOutcome.REFUSED: "refused", CommandOutcome.FAILED: "failed"}


def describe_state(kit: KeyKit, step: int) -> str:
    """Return the state of a kit in the change to `step`, as a text for people."""
    if kit.step >= step:
        return "done"
    if kit.left_out:
        return "left out"
    return STATES.get(None if kit.outcome is None else CommandOutcome(kit.outcome), "asked")


def describe_change(db: Db, workspace: int, now: float) -> dict[str, Any] | None:
    """Return the step of the change and the state of each kit, without the key. Return None if
    there was no change. Times are Unix seconds.
    """
    change = find_change(db, workspace)
    if change is None:
        return None
    kits = list_kits(db, workspace, now)
    return {
        "step": change.step,
        "began": change.began,
        "stepSince": change.stepped,
        "ended": change.ended,
        "bearer": change.bearer or None,
        "pending": sum(each.step < change.step for each in kits),
        "kits": [_describe_kit(each, change.step) for each in kits],
    }


def _describe_kit(kit: KeyKit, step: int) -> dict[str, Any]:
    return {
        "id": kit.device,
        "name": kit.name,
        "step": kit.step,
        "state": describe_state(kit, step),
        "answered": kit.at,
        "answer": kit.answer or None,
    }


def count_figures(db: Db) -> dict[str, float]:
    """Return the metric: the number of kits, in all workspaces, that have not confirmed the current
    step.
    """
    ((lacking,),) = db.execute(
        "SELECT count(*) FROM radio_key JOIN device ON device.workspace = radio_key.workspace"
        " LEFT JOIN radio_key_kit kit ON kit.device = device.id"
        f" WHERE {IS_ASKED} AND coalesce(kit.step, 0) < radio_key.step"
    )
    return {"radio_key_kits_pending": float(lacking)}


def describe_steps(db: Db, workspace: int) -> dict[int, str]:
    """Return the step of each device in the last change, as a text. The result is empty if there
    was no change.
    """
    change = find_change(db, workspace)
    if change is None:
        return {}
    return {
        kit.device: f"step {kit.step} of {LAST}: {describe_state(kit, change.step)}"
        for kit in list_kits(db, workspace, 0.0)
    }
