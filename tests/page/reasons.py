"""Finds the reasons in the code of kit and hub that people can see. Each is a form of a catalogue,
with the places {1}, {2} for values.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from errno import (
    EACCES,
    EADDRINUSE,
    EADDRNOTAVAIL,
    ECONNREFUSED,
    ECONNRESET,
    EHOSTUNREACH,
    EIO,
    ENETUNREACH,
    ENODEV,
    ENOENT,
    EPERM,
    EPIPE,
    ETIMEDOUT,
)
from functools import cache
from importlib.resources import files
from itertools import count, product
from os import strerror
from pathlib import Path

ROOT = Path(str(files("fieldagent")))
PLACE = "{}"
_NAMED_PLACE = re.compile(r"\{[a-z_]+\}")
_MEMBER = re.compile(r"[a-z]+(?:[A-Z][a-z]+)+")
"""Matches the name of a member in a JSON document of the API."""
_SETTING = re.compile(r"[a-z]+(?:-[a-z]+)+")
"""Matches the name of a setting."""
BEFORE = "_before"
"""Name that stands for the earlier text in an augmented assignment (`text += …`)."""

Scope = Mapping[str, list[ast.expr]]


class Giver:
    """A function whose arguments contain reasons for people: their positions and names."""

    def __init__(self, at: tuple[int, ...] = (0,), names: tuple[str, ...] = ("reason",)) -> None:
        self.at = at
        self.names = names

    def given(self, call: ast.Call) -> Iterator[ast.expr]:
        yield from (call.args[at] for at in self.at if at < len(call.args))
        yield from (each.value for each in call.keywords if each.arg in self.names)


def forms(path: Path, givers: Mapping[str, Giver], named: Iterable[str] = ()) -> dict[str, int]:
    """Return the forms in a module with their lines. They are arguments of `givers`, results of
    functions with a name in `named`, or values of variables and constants with such a name.
    """
    lines: dict[str, int] = {}
    tree = ast.parse(path.read_text())
    for scope, node in _walk(tree, assigned(each for each in tree.body if not _is_function(each))):
        texts: list[ast.expr] = []
        if isinstance(node, ast.Call):
            name = (
                node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
            )
            texts += givers[name].given(node) if name in givers else []
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in named:
            returns = (e for e in ast.walk(node) if isinstance(e, ast.Return | ast.Yield))
            texts += [e.value for e in returns if e.value]
        elif isinstance(node, ast.ClassDef) and node.name in named:
            texts += [e for each in assigned(node.body).values() for e in each]
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            texts += [e for name, each in assigned([node]).items() if name in named for e in each]
        for text in texts:
            for form in written(text, scope):
                lines.setdefault(numbered(form.removesuffix(": ")), node.lineno)  # type: ignore[attr-defined]
    return {form: line for form, line in lines.items() if has_words(form)}


def _is_function(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)


def has_words(form: str) -> bool:
    """Return True if the form contains words. A form without words, or a name, is the same in all
    languages.
    """
    is_name = form in NAMES or _MEMBER.fullmatch(form) or _SETTING.fullmatch(form)
    return not is_name and bool(re.search(r"(?<!\w)[a-z]{2}", re.sub(r"\{\w+\}", " ", form)))


def _walk(tree: ast.AST, scope: Scope) -> Iterator[tuple[Scope, ast.AST]]:
    for child in ast.iter_child_nodes(tree):
        is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
        inside = {**scope, **assigned([child])} if is_function else scope
        yield inside, child
        yield from _walk(child, inside)


def assigned(bodies: Iterable[ast.AST]) -> dict[str, list[ast.expr]]:
    """Return the values that are assigned to names, perhaps several each."""
    values: dict[str, list[ast.expr]] = {}
    for node in (each for body in bodies for each in ast.walk(body)):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr | ast.AugAssign):
            targets = [node.target]
        for target in targets:
            value = node.value  # type: ignore[attr-defined]
            if isinstance(node, ast.AugAssign):
                # An added text follows the earlier one.
                value = ast.BinOp(ast.Name(BEFORE), ast.Add(), node.value)
            if isinstance(target, ast.Name) and value is not None:
                values.setdefault(target.id, []).append(value)
            elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                for each, of in zip(target.elts, value.elts, strict=False):
                    if isinstance(each, ast.Name):
                        values.setdefault(each.id, []).append(of)
    return values


def written(node: ast.expr, scope: Scope, deep: int = 0, *, whole: bool = False) -> list[str]:
    """Return the forms of a text in an expression, and of the texts in its places. If `whole` is
    True, leave out the texts in places. The result is empty if the expression only passes a text
    on.
    """
    if deep > 6:
        return []
    match node:
        case ast.Constant(value=str(text)):
            return [_NAMED_PLACE.sub(PLACE, text)]
        case ast.JoinedStr(values=values):
            inner = [each.value for each in values if isinstance(each, ast.FormattedValue)]
            if whole:
                return _joined(values, scope)
            return _joined(values, scope) + [
                form.removeprefix(", ")
                for each in inner
                if not _if_there(each, scope)
                for form in written(each, scope, deep + 1, whole=whole)
            ]
        case ast.ListComp(elt=each) | ast.Starred(value=each):
            return written(each, scope, deep + 1, whole=whole)
        case ast.Tuple(elts=values) | ast.List(elts=values):
            return [form for each in values for form in written(each, scope, deep + 1, whole=whole)]
        case ast.IfExp(body=one, orelse=other):
            return [
                *written(one, scope, deep + 1, whole=whole),
                *written(other, scope, deep + 1, whole=whole),
            ]
        case ast.BoolOp(values=values):
            return [form for each in values for form in written(each, scope, deep + 1, whole=whole)]
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return [
                "".join(e)
                for e in product(*(_or_place(each, scope, deep + 1) for each in (left, right)))
            ]
        case ast.Dict(keys=names, values=values):
            texts = [
                form for each in values for form in written(each, scope, deep + 1, whole=whole)
            ]
            # A table of functions, by its names.
            return texts or [str(e.value) for e in names if isinstance(e, ast.Constant)]
        case ast.Subscript(value=table):
            return written(table, scope, deep + 1, whole=whole)
        case ast.Call(func=ast.Attribute(attr="get", value=table), args=[_, *other]):
            return [
                form
                for each in (table, *other)
                for form in written(each, scope, deep + 1, whole=whole)
            ]
        case ast.Call(func=ast.Name(id="sentence"), args=[ast.Constant(value=str(text)), *_]):
            return [_NAMED_PLACE.sub(PLACE, text)]
        case ast.Name(id=name):
            return [
                form
                for each in scope.get(name, ())
                for form in written(each, scope, deep + 1, whole=whole)
            ]
    return []


def _joined(values: Iterable[ast.expr], scope: Scope) -> list[str]:
    parts = []
    for each in values:
        if isinstance(each, ast.Constant):
            parts.append([str(each.value)])
        elif isinstance(each, ast.FormattedValue):
            parts.append(_if_there(each.value, scope) or [PLACE])
    return ["".join(each) for each in product(*parts)]


def _if_there(value: ast.expr, scope: Scope) -> list[str]:
    """Return the forms of an optional part, or nothing if it is a value in a place."""
    if isinstance(value, ast.IfExp):
        parts = written(value, scope, whole=True)
        return parts if "" in parts else []
    if isinstance(value, ast.Name) and len(scope.get(value.id, ())) == 1:
        (only,) = scope[value.id]
        return _if_there(only, scope) if isinstance(only, ast.IfExp) else []
    return []


def _or_place(node: ast.expr, scope: Scope, deep: int) -> list[str]:
    return written(node, scope, deep, whole=True) or [PLACE]


def numbered(form: str) -> str:
    """Return the form with its places numbered in order: {1}, {2}."""
    numbers = count(1)
    return re.sub(re.escape(PLACE), lambda _: f"{{{next(numbers)}}}", form)


NAMES = {
    *("mmcli", "org.freedesktop.ModemManager1.Messaging", "rnode", "meshtastic", "meshcore-kiss"),
    *("gzip", "brotli", "zstd", "fieldagent.service", "fieldagent settings", "{1}.minisig"),
}
FIRST, SECOND, THIRD = Giver((0,)), Giver((1,)), Giver((2,))
GIVERS = {
    # Errors at the end of a channel, a hook or a call.
    **dict.fromkeys(
        (
            *("ModemSilent", "ImtSilent", "ImtReset", "NoModemFound", "PortLost", "PortInUse"),
            *("RadioLost", "GsmSilent", "GsmRefuses", "BrokerLost", "TooLarge", "RequestFailed"),
            *("UnusableTrust", "UnusableLength", "Unusable", "StoreFailed", "StoreFull"),
            *("UnusableMap", "WrongArchive", "NotForThisKit", "NotAChange", "NotSigned"),
            *("UpdateRefused", "ServerUnreachable", "PackageMissing", "away"),
        ),
        FIRST,
    ),
    **dict.fromkeys(("Unreachable", "TokenRefused"), SECOND),
    # Ends of a channel delivery, a call or a handover.
    **dict.fromkeys(
        ("ChannelDelivery", "HandoverResult", "MoStatus", "return_message", "_show", "Begin"),
        SECOND,
    ),
    **dict.fromkeys(("_release", "withdraw"), SECOND),
    # The kind of a notification, and its receiver.
    "ContactKind": Giver((1, 2)),
    "KitPart": Giver((), ("title", "not_from_afar")),
    **dict.fromkeys(
        ("_note_taken", "_settle", "_store_item_state", "_wait", "_withdraw_from"), THIRD
    ),
    **dict.fromkeys(("Failure", "SendResult"), THIRD),
    **dict.fromkeys(
        ("_Hindrance", "make_unreachable", "make_no_answer", "make_failure", "make_not_set_up"),
        FIRST,
    ),
    **dict.fromkeys(("settle", "release", "bury", "store_dead_letter", "Verdict"), Giver(())),
}
"""Callees that take reasons, by name. If another function has the same name, it takes no reason at
this position."""
OF_KIT = {
    # The lines of a history: the event and its detail.
    "record_event": Giver((3, 4)),
    "Line": Giver((1, 3)),
    "Loss": SECOND,
    "RepairResult": FIRST,
    # The parts of the agent, as a fault names them.
    "start_soon": SECOND,
    "make_reporter": FIRST,
    "Settlement": Giver((), ("event",)),
}
NAMED = {
    "agent/agent.py": ("NOT_ON_DISK", "BACKGROUND_TASKS", "name_handover"),
    "agent/channels/air_time.py": ("describe_usage", "find_notice"),
    "agent/channels/radio_modem.py": ("UNSENT_REASONS",),
    "agent/inbound/hooks.py": ("list_notices", "remedy"),
    "agent/journal/history.py": ("WAITS_EVENT", "_name_station"),
    "extensions/rescue/salvage.py": ("describe_count",),
    "agent/kit_part.py": ("SWITCHES_POWER_REASON", "RUNS_COMMAND_REASON", "SECRET"),
    "extensions/radio/mesh/key_change.py": (
        "describe_step",
        "heard_text",
        "key_use",
        "next_step",
        "_join_names",
    ),
    "extensions/radio/mesh/relay.py": ("find_notice",),
    "extensions/radio/mesh/troubles.py": ("Trouble", "describe_trouble", "list_notices", "packets"),
    "agent/outbound/budget.py": ("describe_limit", "_describe_renewal"),
    "agent/outbound/settlement.py": (
        "event",
        "detail",
        "MAY_HAVE_LEFT_REASON",
        "_describe_cost",
        "_describe_fragment",
    ),
    "agent/outbound/waiting.py": (
        "NO_CHANNEL",
        "_AWAY_REASONS",
        "_RESTING_REASON",
        "_GONE_REASON",
        "_describe_wait",
        "reason",
        "reason_text",
    ),
    "agent/outcomes.py": ("SOS_IN_MEMORY",),
    "extensions/people/doubts.py": ("ANOTHER_KEY", "NAMESAKE"),
    "extensions/people/unbelieved.py": ("IN_DISTRESS", "FROM_AFAR"),
    "agent/update_news.py": ("describe_silence", "last", "why", "_REMEDY_BY_CAUSE"),
    "extensions/imt/agent/modem.py": ("describe_trouble",),
    "extensions/sms/agent/pin.py": ("WRONG_PIN_REASON", "UNKNOWN"),
    "hub/access/imei_claims.py": ("CLAIMS", "IS_CLAIMED"),
    "extensions/mqtt/hub/inward.py": ("SPENT_REASON",),
    "hub/bridge/spending.py": ("NO_DISTANCE",),
    "extensions/tak/bridge/inward.py": ("SPENT_REASON",),
    "extensions/desk/hub/mail.py": ("NO_RELAY", "remedy"),
    "extensions/desk/hub/outward.py": ("DATA", "why"),
    "extensions/sms/hub/sms_gate.py": ("_MISSING",),
    "extensions/sms/hub/webhook.py": ("_MISSING", "explanation"),
    "extensions/desk/hub/notification.py": ("text", "handed"),
    "extensions/sms/hub/twilio.py": ("_MISSING",),
    "hub/part.py": ("NO_ADDRESSES",),
    "hub/field/mobile_originated.py": ("NO_DEVICE_REASON", "NOT_TAGGED", "OTHER_KEY", "_explain"),
    "hub/field/mobile_terminated.py": ("NO_CREDITS", "reason"),
    "hub/field/sms_mail.py": ("TOO_LONG", "SPENT_REASON"),
    "hub/records/ledger.py": ("CAME_BACK", "REPLACED_REASON"),
    "hub/records/mt_copies.py": ("GOES_AGAIN",),
    "hub/records/stored_entry.py": ("DAMAGED_ROW",),
    "agent/inbound/reception.py": ("UNTAGGED_PEER", "OTHER_KEY", "_describe_item"),
    "kit/kit_health.py": ("start_watched", "_find_unfitness"),
    "extensions/fleet/system_trial.py": ("NEVER_STARTED",),
    "extensions/fleet/update_offer.py": ("_begin_offered_trial",),
    "page/map_file.py": ("reason",),
    "page/pmtiles.py": ("WRONG_DIRECTORY", "WRONG_PART"),
    "store/schema.py": ("LATER_VERSION_TEXT", "EARLIER_VERSION_TEXT", "difference"),
    "store/trouble.py": (
        "_DISK_FULL",
        "_DISK",
        "_LOCKED_REASON",
        "_describe_reason",
        "_describe_place",
    ),
    "extensions/imt/messages.py": ("STATE_REASONS",),
    "extensions/imt/jspr.py": ("REFUSAL_TEXTS",),
    "wire/keepalive.py": ("describe_path", "text"),
    "wire/kit_note.py": ("__str__",),
    "wire/meshcore_kiss.py": ("ERRORS",),
    "wire/rnode.py": ("BROKEN_ERRORS",),
    "wire/sbd.py": ("MT_STATUS",),
    "webhook/post.py": ("answer", "REMEDY"),
    "http/client.py": ("_CONNECTION_BROKEN_REASON",),
    "http/tls.py": ("text", "describe_fault", "_describe_distrust"),
}
ROOMS = (
    *(f"hub/{each}" for each in ("access", "contact", "field", "operator", "part.py")),
    "extensions/desk/hub",
    *("hub/bridge/spending.py", "extensions/mqtt/hub/inward.py", "extensions/tak/bridge/inward.py"),
    *(
        "hub/records",
        "hub/webhook",
        "agent",
        *("extensions/imt", "extensions/people", "extensions/radio", "extensions/rescue"),
        "extensions/sms",
        *("extensions/mqtt/agent", "extensions/mqtt/session.py", "extensions/mqtt/commands.py"),
        *("extensions/mqtt/packets.py", "extensions/tak/lan", "extensions/tak/cot.py"),
        "webhook",
        "http/client.py",
        "http/tls.py",
        "store",
        "wire",
        # Remote changes and their results: the console shows a kit's last report.
        "kit/kit_health.py",
        *(
            f"extensions/fleet/{name}.py"
            for name in (
                *("fetching", "settings_trial", "signed_file", "system_trial"),
                *("trial", "update", "update_offer", "version_order"),
            )
        ),
        *("system/minisign.py", "system/signed_release.py"),
        # Reasons why a map cannot be read.
        *(
            f"page/{name}.py"
            for name in ("map_file", "mbtiles", "pmtiles", "pmtiles_file", "tiles")
        ),
    ),
)


SYSTEM = {
    *(
        strerror(each).lower()
        for each in (
            *(ECONNREFUSED, EHOSTUNREACH, ENETUNREACH, ETIMEDOUT, ECONNRESET, EPIPE, EACCES),
            *(ENOENT, EIO, ENODEV, EPERM, EADDRNOTAVAIL, EADDRINUSE),
        )
    ),
    # Texts of the resolver (gai_strerror), for which Python has no list.
    *("name or service not known", "temporary failure in name resolution"),
    "no address associated with hostname",
}
"""The most frequent system errors of failed calls. The pages can translate them in any case."""

NUMBERS = {
    *("credit", "credits", "{1} byte", "{1} credit", "{1} credits"),
    *("{1} payload", "{1} payloads"),
}
"""Forms of the texts that `format_count` makes for a place."""


@cache
def reasons() -> dict[str, str]:
    """Return the form of each reason and its place in the code."""
    places = dict.fromkeys(SYSTEM | NUMBERS, "the system, and numbers")
    for path in (path for room in ROOMS for path in modules(room)):
        name = path.relative_to(ROOT).as_posix()
        givers = GIVERS | (OF_KIT if name.startswith(("agent/", "extensions/")) else {})
        for form, line in forms(path, givers, NAMED.get(name, ())).items():
            places.setdefault(form, f"{name}:{line}")
    return places


def modules(room: str) -> list[Path]:
    return [ROOT / room] if room.endswith(".py") else sorted((ROOT / room).rglob("*.py"))
