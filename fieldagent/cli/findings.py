"""Findings of `fieldagent check` and `fieldagent hub check`, and how they are printed."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from fieldagent.page import map_file
from fieldagent.page.tiles import UnusableMap
from fieldagent.system.finding import Finding
from fieldagent.system.properties import get_variables
from fieldagent.system.terminal import format_lines, format_state


def print_findings(findings: Sequence[Finding], *, as_json: bool) -> bool:
    """Print each finding. Bad findings go to standard error, except in JSON. Return True if all are
    good.
    """
    good = all(finding.good for finding in findings)
    if as_json:
        print(json.dumps({"good": good, "findings": [each._asdict() for each in findings]}))
        return good
    for finding in findings:
        mark = format_state("ok" if finding.good else "BAD", 3)
        stream = sys.stdout if finding.good else sys.stderr
        print(format_lines(f"{mark} {finding.text}", 1 if finding.good else 2), file=stream)
    return good


def make_settings_finding(prefix: str) -> Finding:
    """Return the finding that the settings are correct. It lists the environment variables with
    `prefix`, which replace settings of the file.
    """
    names = get_variables(os.environ, prefix).values()
    note = f"; these variables replace settings of the file: {', '.join(names)}" if names else ""
    return Finding(True, f"the settings are understood{note}")


def check_map(path: Path) -> Finding:
    """Check the file with the offline map."""
    try:
        description = map_file.read_about(path)
    except UnusableMap as unusable:
        return Finding(False, str(unusable))
    return Finding(True, f"{path} has a map, zoom {description.lowest} to {description.highest}")
