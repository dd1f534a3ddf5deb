"""Why MT messages wait: told to whoever looks, and an alarm where people must act for all of them.

A message's own row has what its last call failed on. Of trouble with an operator's account there is
one alarm for each workspace, until a call shows that it is over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from fieldagent.hub.operator.failures import Scope
from fieldagent.hub.operator.known import operators
from fieldagent.hub.records import ledger, sos
from fieldagent.hub.records.ledger import Posting
from fieldagent.hub.store.contract import Db
from fieldagent.package.package import SOS_PRIORITY, Message

ALARM = "operator"
"""The kind of such an alarm, among the SOS."""

WHY = (
    "CASE WHEN delivery.reason <> '' OR delivery.state <> 'packed' THEN delivery.reason ELSE"
    " coalesce((SELECT m.reason FROM mobile_terminated m WHERE m.device = delivery.device"
    f" AND m.trouble NOT IN ('', '{Scope.MESSAGE}') ORDER BY m.urgent DESC, m.id LIMIT 1), '') END"
)
"""SQL: the reason of a delivery; one behind a message that fails waits for what that waits for."""

OF_DEVICE = (
    "(SELECT m.reason FROM mobile_terminated m WHERE m.device = device.id AND m.trouble <> ''"
    " ORDER BY m.urgent DESC, m.id LIMIT 1)"
)
"""SQL: why messages to a device wait; null where none has failed."""


def note_account(db: Db, operator: str, device: int, reason: str, now: float) -> str:
    """Note that a call for this device failed on the account: raise its workspace's alarm, once;
    return what to log, or nothing."""
    ((name,),) = db.execute("SELECT name FROM device WHERE id = ?", device)
    text = f"Nothing goes to kits over satellite: {reason}. Messages to {name} wait"
    return _raise_once(db, operator, device, text, now)


def note_account_works(db: Db, operator: str, now: float) -> None:
    """Note that the account is in order: the operator has judged a message, or taken it."""
    _note_over(db, operator, "the operator takes messages again", now)


def note_balance(db: Db, operator: str, short: Mapping[str, float], now: float) -> list[str]:
    """Note that little is left of these plans of the account: raise the alarm of each workspace
    that has a device there, once, until enough is left of all; return what to log."""
    trouble = f"{operator} balance"
    if not short:
        _note_over(db, trouble, "enough is left of each plan again", now)
        return []
    left = ", ".join(f"{remaining:g} of {plan}" for plan, remaining in sorted(short.items()))
    text = f"Little is left of this month's at {operators()[operator].title}: {left}"
    devices = db.execute(
        "SELECT min(id) FROM device WHERE operator = ? GROUP BY workspace ORDER BY 1", operator
    )
    lines = [_raise_once(db, trouble, device, text, now) for (device,) in devices]
    return [line for line in lines if line]


def _raise_once(db: Db, trouble: str, device: int, text: str, now: float) -> str:
    ((workspace, member),) = db.execute("SELECT workspace, member FROM device WHERE id = ?", device)
    if not db.execute(
        "INSERT INTO operator_trouble (operator, workspace) VALUES (?, ?)"
        " ON CONFLICT DO NOTHING RETURNING operator",
        trouble,
        workspace,
    ):
        return ""
    posting = Posting(workspace, member, Message(text), int(now), SOS_PRIORITY, sos=True)
    alarm = ledger.raise_alarm(db, posting, device, now, ALARM)
    db.execute(
        "UPDATE operator_trouble SET alarm = ? WHERE operator = ? AND workspace = ?",
        *(alarm, trouble, workspace),
    )
    return f"{text}: alarm {alarm}; `fieldagent hub sos show {alarm}`"


def _note_over(db: Db, trouble: str, words: str, now: float) -> None:
    for (alarm,) in db.execute(
        "DELETE FROM operator_trouble WHERE operator = ? RETURNING alarm", trouble
    ):
        if db.execute("SELECT 1 FROM sos WHERE id = ?", alarm or 0):
            sos.note_event(db, alarm, "heard", now, detail=words)


def call_again(db: Db, device: int) -> int:
    """Let whatever waits for this device be called in at once; return how many messages."""
    rows = db.execute(
        "UPDATE mobile_terminated SET not_before = 0 WHERE device = ? RETURNING id", device
    )
    db.announce("satellite")
    return len(rows)


def call_again_after_start(db: Db) -> None:
    """Let calls be made again that were put off: settings may be other ones than before."""
    db.execute("UPDATE mobile_terminated SET not_before = 0 WHERE trouble <> ''")


def figures(db: Db) -> Counter[tuple[str, str, str]]:
    """Return how many messages wait, by operator, scope and code. Codes that an operator may answer
    are there before it does: a graph shows no rise in what was not there."""
    counts = Counter(dict.fromkeys(_KNOWN, 0))
    for operator, scope, code, count in db.execute(
        "SELECT operator, trouble, code, count(*) FROM mobile_terminated"
        " JOIN device ON device.id = device WHERE trouble <> '' GROUP BY operator, trouble, code"
    ):
        counts[operator or "", scope, code] += count
    return counts


_KNOWN = [
    (operator, failure.scope.value, failure.code)
    for operator, kind in operators().items()
    for failure in kind.failures.values()
]


def balances(db: Db) -> list[tuple[str, str, float]]:
    """Return what is left of each plan of each operator that was asked."""
    return list(db.execute("SELECT operator, plan, remaining FROM operator_balance ORDER BY 1, 2"))
