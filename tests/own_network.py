"""Makes a network namespace, in which one test has all ports of a loopback interface."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tests.machine import tool, unavailable
from tests.processes import started

PROGRAMS = [("unshare", "util-linux"), ("nsenter", "util-linux"), ("ip", "iproute2")]


@contextmanager
def own_network() -> Iterator[list[str]]:
    """Yield the command prefix that runs a program in a separate network namespace."""
    for program, package in PROGRAMS:
        tool(program, package)
    if os.geteuid() != 0:
        unavailable("only root may make a network namespace")
    script = "ip link set lo up && echo up && exec sleep infinity"
    command = ["unshare", "--net", "sh", "-c", script]
    with started(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "up\n"
        yield ["nsenter", f"--net=/proc/{holder.pid}/ns/net"]
