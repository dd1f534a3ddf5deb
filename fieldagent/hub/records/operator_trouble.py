"""Reasons why MT messages wait, and alarms about an operator's account that require action by
people.

Each message's row contains the cause of its last failure. A problem with an account raises one
alarm in each workspace. The alarm is in force until a call succeeds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from fieldagent.hub.operator.failures import Scope
from fieldagent.hub.operator.registry import get_operators
from fieldagent.hub.records import ledger, sos
from fieldagent.hub.records.ledger import Posting
from fieldagent.hub.store.contract import Db
from fieldagent.package.package import SOS_PRIORITY, Message

ALARM_KIND = "operator"
"""Kind of the alarm about an operator's account, in the table of incidents."""

REASON_SQL = (
    "CASE WHEN delivery.reason <> '' OR delivery.state <> 'packed' THEN delivery.reason ELSE"
    " coalesce((SELECT m.reason FROM mobile_terminated m WHERE m.device = delivery.device"
    f" AND m.trouble NOT IN ('', '{Scope.MESSAGE}') ORDER BY m.urgent DESC, m.id LIMIT 1), '') END"
)
"""SQL: the reason why a delivery waits. A delivery behind a failed message has the reason of that
message."""

DEVICE_REASON_SQL = (
    "(SELECT m.reason FROM mobile_terminated m WHERE m.device = device.id AND m.trouble <> ''"
    " ORDER BY m.urgent DESC, m.id LIMIT 1)"
)
"""SQL: the reason why messages to a device wait. NULL if no message has failed."""


def record_account_failure(db: Db, operator: str, device: int, reason: str, now: float) -> str:
    """Record that a call for this device failed because of the operator's account. Raise one alarm
    in the device's workspace. Return a log line, or an empty string if there was an alarm already.
    """
    ((name,),) = db.execute("SELECT name FROM device WHERE id = ?", device)
    text = f"No messages are sent to kits over satellite: {reason}. Messages to {name} wait"
    return _raise_once(db, operator, device, text, now)


def record_account_success(db: Db, operator: str, now: float) -> None:
    """Record that the account works, because the operator has accepted or rejected a message."""
    _record_trouble_end(db, operator, "the operator accepts messages again", now)


def record_low_balance(db: Db, operator: str, short: Mapping[str, float], now: float) -> list[str]:
    """Record that the plans `short` of the account have only the given amounts left. Raise one
    alarm in each workspace that has a device of this operator, until all plans have enough again.
    Return the log lines.
    """
    trouble_name = f"{operator} balance"
    if not short:
        _record_trouble_end(db, trouble_name, "each plan has enough left again", now)
        return []
    remaining_text = ", ".join(
        f"{remaining:g} of {plan}" for plan, remaining in sorted(short.items())
    )
    text = f"Little is left of this month's at {get_operators()[operator].title}: {remaining_text}"
    devices = db.execute(
        "SELECT min(id) FROM device WHERE operator = ? GROUP BY workspace ORDER BY 1", operator
    )
    lines = [_raise_once(db, trouble_name, device, text, now) for (device,) in devices]
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
    posting = Posting(workspace, member, Message(text), int(now), SOS_PRIORITY, alarm=True)
    alarm = ledger.raise_alarm(db, posting, device, now, ALARM_KIND)
    db.execute(
        "UPDATE operator_trouble SET alarm = ? WHERE operator = ? AND workspace = ?",
        *(alarm, trouble, workspace),
    )
    return f"{text}: alarm {alarm}; `fieldagent hub alarm show {alarm}`"


def _record_trouble_end(db: Db, trouble: str, words: str, now: float) -> None:
    for (alarm,) in db.execute(
        "DELETE FROM operator_trouble WHERE operator = ? RETURNING alarm", trouble
    ):
        if db.execute("SELECT 1 FROM sos WHERE id = ?", alarm or 0):
            sos.record_event(db, alarm, "heard", now, detail=words)


def call_again(db: Db, device: int) -> int:
    """Retry all waiting messages of a device immediately. Return the number of messages."""
    rows = db.execute(
        "UPDATE mobile_terminated SET not_before = 0 WHERE device = ? RETURNING id", device
    )
    db.announce("satellite")
    return len(rows)


def call_again_after_start(db: Db) -> None:
    """Retry delayed calls after the hub's start, because someone may have changed the settings."""
    db.execute("UPDATE mobile_terminated SET not_before = 0 WHERE trouble <> ''")


def count_figures(db: Db) -> Counter[tuple[str, str, str]]:
    """Return the number of waiting messages by operator, scope and code. The result contains each
    known code, with 0 if no message waits. Otherwise a graph would not show the first increase of a
    code.
    """
    counts = Counter(dict.fromkeys(_KNOWN_FAILURES, 0))
    for operator, scope, code, count in db.execute(
        "SELECT operator, trouble, code, count(*) FROM mobile_terminated"
        " JOIN device ON device.id = device WHERE trouble <> '' GROUP BY operator, trouble, code"
    ):
        counts[operator or "", scope, code] += count
    return counts


_KNOWN_FAILURES = [
    (operator, failure.scope.value, failure.code)
    for operator, kind in get_operators().items()
    for failure in kind.failures.values()
]


def list_balances(db: Db) -> list[tuple[str, str, float]]:
    """Return the operator, the plan and the remaining amount for each plan."""
    return list(db.execute("SELECT operator, plan, remaining FROM operator_balance ORDER BY 1, 2"))
