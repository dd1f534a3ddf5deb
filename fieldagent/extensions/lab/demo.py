"""`fieldagent demo`: runs a simulated modem, the agent and a hook that prints items, in one
terminal. `--hub` adds a hub with a dispatcher, who can sign in at the hub's console.
"""

from __future__ import annotations

import argparse
import secrets
import shutil
import signal
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from fieldagent.agent import agent
from fieldagent.agent.settings import Settings, parse
from fieldagent.cli.kit.run import run_to_end
from fieldagent.extensions.lab import simulate
from fieldagent.extensions.lab.demo_team import run_demo_team
from fieldagent.extensions.lab.simulator.commands import Bench, run_line
from fieldagent.hub.access.secret import make_password
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.log_lines import start_logging
from fieldagent.system.scrypt import hash_password
from fieldagent.system.signals import StopRequests
from fieldagent.system.terminal import escape_line

if TYPE_CHECKING:
    from fieldagent.hub.console.guest_link import Guest
    from fieldagent.hub.settings import HubSettings
    from fieldagent.hub.store.contract import Db, Store

WELCOME = """
The agent is up, with a simulated satellite modem on a serial line. Try, in another terminal:

  curl -X POST http://127.0.0.1:{port}/api/package \\
       -H 'Content-Type: application/json' -d '{{"message": {{"content": "Camp reached"}}}}'

{without_curl}Each call returns when the satellite gateway has the message. Here, type

  mt hello        to send a message to the kit: the hook prints what arrives
  status 32       to make the next session fail; the agent tries again
  help            for everything else that can be sent and go wrong

A browser shows the agent at http://127.0.0.1:{port}/ ; Ctrl-C ends the demo.
"""


WITH_HUB = """
The demo also runs a hub, which has a link to the kit. Open two pages in a browser:

  http://127.0.0.1:{hub}/console/enter/{token}
        the console, with the dispatcher Olga signed in. The address works once. Press
        "Turn it on" beside "Sound is off": a browser plays no sound before you click
  http://127.0.0.1:{port}/
        the kit's page. Hold SOS there, and the console rings

Acknowledge the SOS in the console. The kit's page then shows who has seen it. To sign in again,
open http://127.0.0.1:{hub}/console as {user} with the password {password}
"""
DISPATCHER = "olga@example.org"

WITHOUT_CURL = """There is no curl here: apt-get install curl, or

  .venv/bin/fieldagent send message 'Camp reached' --port {port}

"""


def run_demo(arguments: argparse.Namespace) -> int:
    """Run the demo in a temporary folder until it is stopped. `--hub` adds a hub on loopback.
    `--team` runs several kits instead.
    """
    if arguments.team:
        return run_demo_team(arguments)
    start_logging(arguments.verbose)
    with tempfile.TemporaryDirectory(prefix="fieldagent-demo-") as directory:
        home = Path(directory)
        bench = simulate.build(home / "modem", "300234010000001", arguments.latency)
        text = (
            f"satellite-port={home / 'modem'}\nstate-directory={home}\napi-port={arguments.port}\n"
            "inbound-hook=printf 'hook: '; cat\n"
        )
        if not arguments.hub:
            settings = parse(text, home / "agent.properties")
            return run_to_end(partial(_run, settings, bench, None), home)
        hub = _set_up_hub(home, arguments.hub_port)
        text += f"hub-address=http://127.0.0.1:{arguments.hub_port}\nhub-token={hub.token}\n"
        settings = parse(text, home / "agent.properties")
        return run_to_end(partial(_run, settings, bench, hub), home)


class DemoHub(NamedTuple):
    settings: HubSettings
    store: Store
    token: str
    """Token of the kit's link."""
    password: str
    """Password of the dispatcher."""
    guest: Guest
    """The dispatcher, who signs in with a link."""


def _set_up_hub(home: Path, port: int) -> DemoHub:
    """Set up a hub in a temporary database. Ada is the user of the kit, and Olga is the
    dispatcher.
    """
    from fieldagent.hub import settings as hub_settings
    from fieldagent.hub.access import directory
    from fieldagent.hub.console.guest_link import Guest
    from fieldagent.hub.store.opening import open_store

    database = home / "hub.sqlite3"
    settings = hub_settings.parse_settings(f"port={port}\n", home / "hub.properties", str(database))
    store = open_store(settings.database)
    password, now = make_password(), time.time()
    hashed = hash_password(password)

    def settle_in(db: Db) -> tuple[str, Guest]:
        workspace = directory.add_workspace(db, "Demo", now=now)
        ada = directory.add_user(db, workspace, "Ada", now=now)
        olga = directory.add_user(db, workspace, "Olga", email=DISPATCHER, password=hashed, now=now)
        directory.set_role(db, workspace, olga, "dispatcher", now=now)
        token = directory.add_device(db, workspace, ada, directory.NewDevice("kit-ada"), now=now)[1]
        return token, Guest(secrets.token_urlsafe(16), olga, workspace)

    token, guest = store.run_once(settle_in)
    return DemoHub(settings, store, token, password, guest)


def _emit(line: str) -> None:
    print(f"[kit] {escape_line(line)}", flush=True)


async def _run(
    settings: Settings, bench: Bench, hub: DemoHub | None, stop_requests: StopRequests
) -> None:
    async with trio.open_nursery() as nursery:
        await nursery.start(bench.port.run)
        if hub is not None:
            from fieldagent.hub import hub as cloud

            serve = partial(cloud.run, guest=hub.guest)
            # Only the agent receives signals. When the agent ends, the hub ends too.
            no_signals, nothing = trio.open_memory_channel[signal.Signals](0)
            no_signals.close()
            await nursery.start(serve, hub.settings, hub.store, _emit, nothing)
        async with trio.open_nursery() as inner:
            port = await inner.start(_run_agent, settings, stop_requests, inner.cancel_scope)
            without_curl = "" if shutil.which("curl") else WITHOUT_CURL.format(port=port)
            print(WELCOME.format(port=port, without_curl=without_curl), flush=True)
            if hub is not None:
                values = {"hub": hub.settings.port, "password": hub.password, "port": port}
                link = {"user": DISPATCHER, "token": hub.guest.token}
                print(WITH_HUB.format(**link, **values), flush=True)
            await simulate.listen(partial(run_line, bench))
        nursery.cancel_scope.cancel()


async def _run_agent(
    settings: Settings,
    stop_requests: StopRequests,
    all_of_it: trio.CancelScope,
    task_status: trio.TaskStatus[int],
) -> None:
    await agent.run(settings, _emit, stop_requests, task_status=task_status)
    all_of_it.cancel()
