"""Both API descriptions compared with the code, and with running programs by schemathesis."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import Mock

import pytest

from fieldagent import extensions
from fieldagent.agent import description as agent_description
from fieldagent.agent.api import track
from fieldagent.agent.api.routes import LocalApi
from fieldagent.agent.page import make_canned_routes
from fieldagent.http import routes as routing
from fieldagent.http.openapi import call
from fieldagent.http.routes import Route
from fieldagent.hub import description as hub_description
from fieldagent.hub.access import push
from fieldagent.hub.administration import api as administration
from fieldagent.hub.administration.acts import AdministrationContext
from fieldagent.hub.api.event_stream import EventStreams
from fieldagent.hub.api.push_api import HubApi
from fieldagent.hub.api.read_api import ReadApi
from fieldagent.hub.api.sos_api import PATHS, SosApi
from fieldagent.hub.console import Console
from fieldagent.hub.field.ip_link import Links
from fieldagent.hub.fleet.view import FleetApi
from fieldagent.hub.part import list_hub_parts
from fieldagent.hub.service.figures import Figures
from fieldagent.hub.service.health import Health
from fieldagent.package.package import SOS_PRIORITY, Channel, Status
from fieldagent.package.reading import ITEMS
from fieldagent.page import map_tiles
from fieldagent.page.map_tiles import CarriedMap
from fieldagent.system.extension import Extension
from tests import offline
from tests.processes import administer, agent, hub

ROOT = Path(__file__).parents[2]
SEED = "20261121"
OF_ADMINISTRATORS = (
    "^/api/(audit|dead-letters|devices|users|groups|keys|tokens|webhook|contacts|chain|quiet)"
)
READ_TOO = re.compile(r"devices\|users\|groups\|")


def description(name: str) -> Any:
    """Return the description as it is served."""
    module = agent_description if name == "local" else hub_description
    return json.loads(json.dumps(module.describe()))


OF_SERVICES = (
    *(path for path in description("hub")["paths"] if path.startswith(("/operator/", "/contact/"))),
)
"""Routes that exist only if the service is configured."""
NOT_MEANT = "use_after_free"
"""DELETE withdraws a Package, whose result stays readable for a while."""


def routes(name: str) -> list[Route]:
    nothing = Mock()
    if name == "local":
        whole = LocalApi(nothing, nothing).make_routes() + map_tiles.make_map_routes(
            CarriedMap(None)
        )
        return [*whole, *make_canned_routes(()), *track.make_routes(nothing, nothing)]
    api = HubApi(nothing, nothing, clock=lambda: 0.0, grace=0, time_to_live=1)
    read_api = ReadApi(nothing, nothing, clock=lambda: 0.0)
    health = Health(
        nothing,
        clock=lambda: 0.0,
        supervisor=nothing,
        counters=dict,
        figures=Figures(),
        stopping=nothing,
    )
    routes = [*api.make_routes(), *read_api.make_routes(), *health.make_routes()]
    for kind in PATHS:
        routes += SosApi(nothing, nothing, clock=lambda: 0.0, kind=kind).make_routes()
    routes.append(EventStreams(nothing, nothing, nothing, clock=lambda: 0.0).route())
    routes += administration.make_routes(
        AdministrationContext(nothing, nothing, clock=lambda: 0.0), nothing, nothing
    )
    routes += [route for part in list_hub_parts() for route in part.routes(nothing)]
    settings = Mock(map_tiles=None, console_address="https://hub.example.org")
    routes += FleetApi(nothing, nothing, clock=lambda: 0.0).make_routes()
    routes += Console(nothing, nothing, settings, clock=lambda: 0.0).make_routes()
    return [*routes, Links(nothing, nothing, nothing).route()]


@pytest.mark.parametrize("name", ["local", "hub"])
def test_description_contains_exactly_the_served_routes(name: str) -> None:
    described = {
        (method.upper(), path)
        for path, item in description(name)["paths"].items()
        for method in item
        if method != "parameters"
    }
    served = {(route.method, route.pattern) for route in routes(name)}
    # They exist when the settings contain an account there.
    assert described - {("POST", path) for path in OF_SERVICES} == served


@pytest.mark.parametrize("prepared", [False, True])
def test_third_party_calls_are_added_to_the_description(
    prepared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are added to the tables of a source tree, and to the file that a build has prepared."""
    own = ModuleType("own_webhook")
    own.CALLS = [call("POST /contact/own", "own: Accept a report", {204: "It is on disk"})]  # type: ignore[attr-defined]
    own.EXTENSION = Extension("A service", hub_api="own_webhook:CALLS")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "own_webhook", own)
    monkeypatch.setattr(extensions, "_THIRD_PARTY", {})
    extensions.add_extensions("own_webhook:EXTENSION")
    without = description("hub")
    if prepared:
        monkeypatch.setattr(routing, "read_data", lambda *place: json.dumps(without).encode())
    whole = json.loads(
        routing.make_description("fieldagent.hub", extensions.get_third_party_calls())
    )
    added = whole["paths"].pop("/contact/own")
    assert whole == without
    assert added == {
        "post": {
            "operationId": "own",
            "summary": "Accept a report",
            "responses": {
                "default": {"$ref": "#/components/responses/OfHttp"},
                "204": {"description": "It is on disk"},
            },
        }
    }


@pytest.mark.parametrize(
    ("name", "schema", "items", "reader"),
    [
        ("local", "Package", ITEMS, "fieldagent.package.reading"),
        ("hub", "Push", push.ITEM_KINDS, "fieldagent.hub.access.push"),
    ],
)
def test_described_members_match_the_reader(
    name: str, schema: str, items: Any, reader: str
) -> None:
    schemas = description(name)["components"]["schemas"]
    for kind, (_, _, members) in items.items():
        described = schemas[kind.capitalize()]
        assert described["properties"].keys() == members.keys()
        required = {member for member, field in members.items() if field.required}
        assert set(described["required"]) == required
    known = sys.modules[reader].ROUTING.keys() | items.keys()
    for variant in schemas[schema]["oneOf"]:
        assert variant["properties"].keys() == known


@pytest.mark.parametrize("listed", ["Device", "User"])
def test_changed_and_listed_objects_have_the_same_members(listed: str) -> None:
    schemas = description("hub")["components"]["schemas"]
    changed = dict(schemas[f"Changed{listed}"]["properties"])
    assert changed.pop("deadLettersTaken")
    assert changed == schemas[listed]["properties"]


def test_described_enums_match_the_code() -> None:
    schemas = description("local")["components"]["schemas"]
    assert set(schemas["Answer"]["properties"]["status"]["enum"]) == set(Status)
    channels = schemas["Package"]["oneOf"][0]["properties"]["channels"]["items"]["enum"]
    assert set(channels) == set(Channel)
    assert f"{SOS_PRIORITY} and above" in schemas["Package"]["description"]


def explore(address: str, *arguments: str) -> None:
    """Run all phases and checks. A failure is printed with the seed that repeats it."""
    command = [
        str(Path(sys.executable).parent / "schemathesis"),
        *("--config-file", str(ROOT / "tests/schemathesis.toml")),
        "run",
        f"{address}/openapi.json",
        *("--url", address),
        *("--seed", SEED),
        *("--max-examples", "8"),
        *("--request-timeout", "20"),
        *("--exclude-checks", NOT_MEANT),
        "--no-color",
        *arguments,
    ]
    environment = {
        **os.environ,
        "SCHEMATHESIS_HOOKS": "tests.openapi_hooks",
        "PYTHONPATH": offline.path(str(ROOT)),
    }
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, cwd=ROOT
    )
    output = "\n".join(line[:500] for line in done.stdout.splitlines())
    assert done.returncode == 0, output[-8_000:] + done.stderr[-2_000:]
    assert "generated" in output


@pytest.mark.full
def test_local_api_matches_its_description_without_channels(tmp_path: Path) -> None:
    """Without a channel each Package ends immediately, so the waiting call is covered too."""
    with agent(tmp_path, {"satellite-port": None}) as running:
        address = f"http://127.0.0.1:{running.port}"
        # The stream of events never ends.
        explore(address, "--exclude-path", "/api/events")


@pytest.mark.full
def test_local_api_matches_its_description_while_packages_wait(tmp_path: Path) -> None:
    settings = {"satellite-port": str(tmp_path / "absent"), "inbound-hook": "true"}
    with agent(tmp_path, settings) as running:
        address = f"http://127.0.0.1:{running.port}"
        # Tests of single members do not depend on a Package: the test above covers them.
        phases = ("--phases", "fuzzing,stateful")
        explore(
            address,
            *("--exclude-path", "/api/events", "--exclude-path", "/api/package", *phases),
        )


@pytest.mark.full
def test_push_api_matches_its_description(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    first = administer(database, "init", "Alps")
    kinds = [f"--kind={kind}" for kind in push.ITEM_KINDS]
    fast = ("--read", "--acknowledge", "--per-minute=1000000", "--burst=1000000")
    key = administer(database, "key", "add", "fast", *kinds, *fast)["apiKey"]
    administer(database, "user", "add", "Olga")
    administer(database, "user", "role", "Olga", "dispatcher")
    olga = administer(database, "user", "token", "add", "desk", "--user", "Olga")["token"]
    with hub(tmp_path, {"database": database}) as running:
        # A link is a WebSocket. RockBLOCK's webhook needs an account, and passkeys need a name. The
        # stream of events never ends.
        explore(
            running.address,
            *("--exclude-path", "/link"),
            *(part for path in OF_SERVICES for part in ("--exclude-path", path)),
            *("--exclude-path", "/api/events"),
            # Administrators have their own test.
            "--exclude-path-regex",
            READ_TOO.sub("", OF_ADMINISTRATORS) + "|^/console/passkeys",
            *("--header", f"x-api-key: {key}"),
            *("--header", f"Authorization: Bearer {first['token']}"),
        )
        explore(
            running.address,
            *("--include-path-regex", "^/api/(sos|fences|routes)"),
            *("--header", f"x-api-key: {key}"),
            *("--header", f"Authorization: Bearer {olga}"),
        )


@pytest.mark.full
def test_administration_api_matches_its_description(tmp_path: Path) -> None:
    """The caller authenticates with a password, because the test may revoke each token."""
    database = str(tmp_path / "hub.sqlite3")
    administer(database, "init", "Alps")
    fast = ("--administer", "--per-minute=1000000", "--burst=1000000")
    key = administer(database, "key", "add", "office", *fast)["apiKey"]
    administer(database, "user", "add", "Ben", "--password", secret="correct horse\n")
    administer(database, "user", "role", "Ben", "administrator")
    administer(database, "device", "add", "kit", "--user", "Ben")
    administer(database, "webhook", "add", "https://example.org/", "--untried")
    pair = base64.b64encode(b"2:correct horse").decode()
    with hub(tmp_path, {"database": database}) as running:
        explore(
            running.address,
            *("--include-path-regex", OF_ADMINISTRATORS),
            # These call any address in the body.
            *("--exclude-operation-id", "webhookAdd", "--exclude-operation-id", "webhookTest"),
            *("--exclude-operation-id", "contactTest"),
            *("--max-examples", "4", "--header", f"x-api-key: {key}"),
            *("--header", f"Authorization: Basic {pair}"),
        )
