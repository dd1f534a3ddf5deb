"""Metrics in OpenMetrics 1.0 (prometheus.io/docs/specs/om/open_metrics_spec). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from fieldagent.system.lazy_named_tuple import NamedTuple

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class Sample(NamedTuple):
    value: float
    labels: Mapping[str, str] = {}
    suffix: str = ""


class Family(NamedTuple):
    """A metric family. `name` ends with its unit, if it has one."""

    name: str
    kind: str
    help: str
    samples: Iterable[Sample]
    unit: str = ""


def format_metrics(program: str, families: Iterable[Family]) -> str:
    """Return the families as OpenMetrics text. `program` is the prefix of each name."""
    return (
        "".join(
            line
            for family in families
            for line in _format_family(f"{program}_{family.name}", family)
        )
        + "# EOF\n"
    )


def _format_family(name: str, family: Family) -> Iterator[str]:
    yield f"# TYPE {name} {family.kind}\n"
    if family.unit:
        yield f"# UNIT {name} {family.unit}\n"
    yield f"# HELP {name} {family.help}\n"
    for sample in family.samples:
        labels = ",".join(f'{each}="{_escape(value)}"' for each, value in sample.labels.items())
        suffix = "_total" if family.kind == "counter" else sample.suffix
        yield f"{name}{suffix}{f'{{{labels}}}' if labels else ''} {sample.value:.12g}\n"


def _escape(label: str) -> str:
    return label.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
