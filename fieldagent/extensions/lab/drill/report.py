"""Report of a drill for the team, in Markdown, and the same figures as JSON."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from fieldagent import __version__
from fieldagent.extensions.lab.drill.findings import CallForHelp, Findings, format_clock
from fieldagent.extensions.lab.drill.plan import DrillPlan
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.wording import format_count

UNKNOWN = """\
## Limits of a drill

- Antennas, terrain and sky: the plan assumes when a link or satellite is missing.
- The internet: an available IP link loses nothing, and a satellite session takes the time of the \
plan.
- People: they write at random times, and a dispatcher looks at the desk every minute.
- Hardware: modems and radios are simulated. Your operator's invoice may follow other rules.

Agents and hub are real, with their queues, budgets, encodings and disks. Median and worst time \
cover only the items that arrived; the waiting ones are counted separately. After the last day the \
drill continues for a day without new items (or for its own duration if it is shorter), so that \
waiting items can arrive. The table includes the credits of that time.
"""
REASON_TEXT = """\
The reason is the link that was missing for most of the wait, or the reason that the kit reports.
A kit with only a radio depends on the credits of the kit that relays for it; see that kit's bill.
"""
DAY_PERCENTAGES = (50, 90, 99)


class DrillRun(NamedTuple):
    """The results of a drill with one set of values."""

    label: str
    plan: DrillPlan
    seed: int
    findings: Findings


def format_span(seconds: float | None) -> str:
    """Return a duration as text: `20 s`, `5 min`, `3 h 05 min`."""
    if seconds is None:
        return "never"
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60:02} min"


def format_typical(times: Sequence[float]) -> str:
    """Return the median and the maximum of the durations as text, or `–` if there are no
    durations.
    """
    return f"{format_span(median(times))} / {format_span(max(times))}" if times else "–"


def compute_percentile(values: Sequence[float], share: int) -> float:
    """Return the smallest of the values such that at least `share` per cent of all values are at
    most as large.
    """
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * share // 100) - 1)]


def _list_durations(
    calls: Sequence[CallForHelp], of: Callable[[CallForHelp], float | None]
) -> list[float]:
    return [moment - call.raised for call in calls if (moment := of(call)) is not None]


def make_figures(run: DrillRun) -> dict[str, str]:
    """Return the most important figures of a run as texts, by label."""
    findings = run.findings
    calls, own = findings.calls, [each for each in findings.sent if not each.replaced]
    messages = [each for each in own if not each.is_position]
    times = [each.at_hub - each.at for each in messages if each.at_hub is not None]
    late = [each for each in own if each.why and each.at_hub is not None]
    lost_packages = [each for each in own if each.at_hub is None]
    down = [each.on_kit - each.at for each in findings.written if each.on_kit is not None]
    at_hub, known_after = (
        _list_durations(calls, lambda c: c.at_hub),
        _list_durations(calls, lambda c: c.known),
    )
    entries = {
        "SOS raised": str(len(calls)),
        "SOS at the hub": f"{len(at_hub)} of {len(calls)}",
        "– median / worst time": format_typical(at_hub),
        "SOS answered (a person at the desk has it, and the kit knows)": (
            f"{len(known_after)} of {len(calls)}"
        ),
        "– median / worst time ": format_typical(known_after),
        "Messages at the hub": f"{len(times)} of {len(messages)}",
        "– median / worst time  ": format_typical(times),
        f"Messages and positions later than {format_span(run.plan.late)}": str(len(late)),
        "Messages and positions that are not at the hub": str(len(lost_packages)),
        "Positions that a newer one replaced": str(len(findings.sent) - len(own)),
        "Messages from the desk, on the disk of their kit": (
            f"{len(down)} of {len(findings.written)}"
        ),
        "– median / worst time   ": format_typical(down),
    }
    entries = {name: value for name, value in entries.items() if value not in ("–", "0 of 0")}
    if findings.bills:
        entries["Credits in all"] = str(sum(sum(bill.days) for bill in findings.bills))
        entries["– for messages with an SOS, from the kits"] = str(
            sum(bill.for_sos for bill in findings.bills)
        )
    if findings.air:
        entries["Air-time in all"] = format_span(sum(findings.air.values()))
    return entries


def format_markdown(source: str, runs: Sequence[DrillRun]) -> str:
    """Return the report in Markdown. `source` is the name of the plan's file. The first run is the
    plan without changes.
    """
    first = runs[0]
    plan = first.plan
    parts = [
        f"# {plan.name}\n",
        f"{plan.text.strip()}\n" if plan.text else "",
        f"fieldagent {__version__}, `{source}`, seed {first.seed}:"
        f" {format_count(len(plan.kits), 'kit')}, {plan.days:g} days.\n",
        "## In short\n",
        _format_comparison(runs),
    ]
    for run in runs:
        parts += [f"# With {run.label}\n" if len(runs) > 1 else "", *_format_run(run)]
    return "\n".join(part for part in parts if part)


def format_page(reports: Sequence[str]) -> str:
    """Return one page with all reports and with the limits that apply to all drills."""
    if len(reports) == 1:
        return f"{reports[0]}\n{UNKNOWN}"
    lower = [re.sub(r"^#", "##", each, flags=re.MULTILINE) for each in reports]
    return "\n".join(["# Drills\n", *lower, UNKNOWN])


def _format_comparison(runs: Sequence[DrillRun]) -> str:
    columns = [make_figures(run) for run in runs]
    names = [*dict.fromkeys(name for column in columns for name in column)]
    rows = [[name.strip(), *(column.get(name, "–") for column in columns)] for name in names]
    heads = ["" if len(runs) == 1 else run.label for run in runs]
    return _format_table(["", *heads], rows)


def _format_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _format_run(run: DrillRun) -> list[str]:
    findings = run.findings
    return [
        *_format_calls(findings),
        *_format_explanations(findings),
        *_format_credits(findings),
        *_format_air(run),
        *_format_unposted(findings),
    ]


def _format_calls(findings: Findings) -> list[str]:
    if not findings.calls:
        return []
    rows = [
        [
            format_clock(call.raised),
            call.kit,
            *(
                format_span(None if moment is None else moment - call.raised)
                for moment in (call.at_hub, call.seen, call.known)
            ),
        ]
        for call in findings.calls
    ]
    heads = ("raised", "kit", "at the hub after", "acknowledged after", "the kit knows after")
    return ["## Each SOS\n", _format_table(heads, rows)]


def _format_explanations(findings: Findings) -> list[str]:
    reasons = Counter(
        (each.kit, each.why, each.at_hub is None) for each in findings.sent if each.why
    )
    if not reasons:
        return ["## Late or lost\n", "Nothing.\n"]
    rows = [
        [kit, reason, str(count), "not at the hub" if is_lost else "late"]
        for (kit, reason, is_lost), count in sorted(reasons.items())
    ]
    return [
        "## Late or lost, and why\n",
        _format_table(("kit", "why", "how many", ""), rows),
        REASON_TEXT,
    ]


def _format_credits(findings: Findings) -> list[str]:
    if not findings.bills:
        return []
    days = len(findings.bills[0].days)
    rows = [
        [bill.kit, *map(str, bill.days), str(sum(bill.days)), str(bill.for_sos), _count(bill)]
        for bill in findings.bills
    ]
    heads = ["kit", *(f"day {day + 1}" for day in range(days)), "all", "SOS", "the kit's count"]
    return ["## Credits by kit and day\n", _format_table(heads, rows)]


def _count(bill: Any) -> str:
    doubt = f" to {bill.own_count + bill.doubtful}" if bill.doubtful else ""
    return f"{bill.own_count}{doubt}"


def _format_air(run: DrillRun) -> list[str]:
    if not run.findings.air:
        return []
    seconds = run.plan.days * 86_400
    rows = [
        [kit, format_span(air_time), f"{100 * air_time / seconds:.3f} %"]
        for kit, air_time in run.findings.air.items()
    ]
    return ["## Air-time\n", _format_table(("kit", "on the air", "of the time"), rows)]


def _format_unposted(findings: Findings) -> list[str]:
    rows = [
        f"- {kit}: {format_count(count, 'message')} that could not be written, because the kit"
        " had no"
        " power"
        for kit, count in findings.unposted.items()
    ]
    return ["## Not written\n", "\n".join(rows) + "\n"] if rows else []


def compute_budget(runs: Sequence[DrillRun]) -> dict[str, dict[str, float]]:
    """Return the credits per day that are sufficient on `DAY_PERCENTAGES` per cent of the days, by
    kit and percentage. The values are computed from the whole days of all runs. `sos` is the mean
    cost of messages with an SOS per SOS call.
    """
    budgets: dict[str, dict[str, float]] = {}
    several = len({run.label for run in runs}) > 1
    for label, kit in dict.fromkeys((run.label, b.kit) for run in runs for b in run.findings.bills):
        own = [run for run in runs if run.label == label]
        bills = [bill for run in own for bill in run.findings.bills if bill.kit == kit]
        day_count = max(1, int(own[0].plan.days))
        days = [spent for bill in bills for spent in bill.days[:day_count]]
        calls = sum(call.kit == kit for run in own for call in run.findings.calls)
        name = f"{kit}, {label}" if several else kit
        budgets[name] = {f"{share}": compute_percentile(days, share) for share in DAY_PERCENTAGES}
        budgets[name]["days"] = len(days)
        if calls:
            budgets[name]["sos"] = round(sum(bill.for_sos for bill in bills) / calls, 1)
    return budgets


def format_budget(source: str, runs: Sequence[DrillRun]) -> str:
    """Return the table of credits per day for each kit, in Markdown. `source` is the name of the
    plan's file.
    """
    budgets = compute_budget(runs)
    heads = ("kit", *(f"{share} % of days" for share in DAY_PERCENTAGES), "each SOS", "days")
    rows = [
        [
            kit,
            *(f"{values[str(share)]:g}" for share in DAY_PERCENTAGES),
            f"{values['sos']:g}" if "sos" in values else "–",
            f"{values['days']:g}",
        ]
        for kit, values in budgets.items()
    ]
    days = min((values["days"] for values in budgets.values()), default=0)
    worst = "" if days >= 100 else " With fewer than 100 days, 99 % is the most expensive day."
    return (
        f"# Credits a day: {source}\n\n"
        + _format_table(heads, rows)
        + "\nThe figures are from the simulated operator's bill and agree with each kit's own"
        " count. They include messages both ways and mailbox checks, within the plan's"
        " `credits-per-day`. `each SOS` is the cost of the kit's messages about one SOS, with"
        f" repeats.{worst}\n"
    )


def encode_runs(source: str, runs: Sequence[DrillRun]) -> dict[str, Any]:
    """Return the figures of the runs, and each SOS, message and bill, in a form for JSON."""
    return {
        "version": __version__,
        "source": source,
        "runs": [
            {
                "label": run.label,
                "seed": run.seed,
                "figures": {name.strip(" –"): value for name, value in _label_figures(run).items()},
                "sos": [call._asdict() for call in run.findings.calls],
                "messages": [each._asdict() for each in run.findings.sent],
                "fromDesk": [each._asdict() for each in run.findings.written],
                "credits": [bill._asdict() for bill in run.findings.bills],
                "airTime": run.findings.air,
                "notPosted": run.findings.unposted,
            }
            for run in runs
        ],
    }


def _label_figures(run: DrillRun) -> dict[str, str]:
    """Return the figures by label. The label of a median begins with the label of its figure."""
    named_figures, before = {}, ""
    for name, value in make_figures(run).items():
        if name.startswith("–"):
            name = f"{before}: {name}"
        else:
            before = name
        named_figures[name] = value
    return named_figures
