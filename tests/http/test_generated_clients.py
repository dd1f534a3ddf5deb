"""Clients that other people's generators make from the descriptions of both APIs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.http.test_openapi import description
from tests.machine import NPM, needs

pytestmark = pytest.mark.full
needs_typescript = needs(
    (NPM / "openapi-typescript").exists(),
    "openapi-typescript is missing: `tests/run full` installs it",
)
USES = {
    "local": """
import type { components, paths } from "./local";
export const sos: components["schemas"]["Package"] = { message: { content: "leg broken" } };
// @ts-expect-error A text is no number.
export const wrong: components["schemas"]["Package"] = { message: { content: 1 } };
export type Status = paths["/api/package/{id}"]["get"]["responses"][200]["content"];
export const status: Status["application/json"]["status"] = "Delivered";
""",
    "hub": """
import type { components } from "./hub";
export const push: components["schemas"]["Push"] = {
  sourceUserId: "12", workspaceId: 1, location: { latitude: 47.3769, longitude: "8.5417" },
};
// @ts-expect-error The source is missing.
export const wrong: components["schemas"]["Push"] = { workspaceId: 1, message: { content: "" } };
""",
}
IMPORT_ALL = """
import importlib, pkgutil, sys
client = importlib.import_module(sys.argv[1])
names = [each.name for each in pkgutil.walk_packages(client.__path__, f"{sys.argv[1]}.")]
for name in names:
    importlib.import_module(name)
print(*names, sep="\\n")
"""
AN_ITEM = """
from local.models import IncidentItemsItem
item = IncidentItemsItem.from_dict({"id": 7, "damaged": True})
assert item.to_dict() == {"id": 7, "damaged": True}
assert IncidentItemsItem.from_dict({"id": 7}).to_dict() == {"id": 7}
"""


def run(*command: str | Path, folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3_000:] + done.stderr[-3_000:]
    return done.stdout


def described(name: str, folder: Path) -> Path:
    path = folder / f"{name}.json"
    path.write_text(json.dumps(description(name)))
    return path


@needs_typescript
@pytest.mark.parametrize("name", USES)
def test_generated_typescript_types_compile(name: str, tmp_path: Path) -> None:
    types = tmp_path / f"{name}.ts"
    commands = NPM / ".bin"
    run(commands / "openapi-typescript", described(name, tmp_path), "-o", types, folder=tmp_path)
    uses = tmp_path / "uses.ts"
    uses.write_text(USES[name])
    run(commands / "tsc", "--strict", "--noEmit", "--skipLibCheck", types, uses, folder=tmp_path)


@pytest.mark.parametrize("name", USES)
def test_modules_of_a_generated_python_client_can_be_imported(name: str, tmp_path: Path) -> None:
    plain = tmp_path / "plain.json"
    plain.write_text('{"post_hooks": []}')
    generator = Path(sys.executable).parent / "openapi-python-client"
    source = ("--path", described(name, tmp_path), "--output-path", tmp_path / name)
    run(generator, "generate", *source, "--meta", "none", "--config", plain, folder=tmp_path)
    modules = run(sys.executable, "-c", IMPORT_ALL, name, folder=tmp_path).split()
    calls = [
        call
        for item in description(name)["paths"].values()
        for method, call in item.items()
        if method != "parameters"
    ]
    assert len([each for each in modules if each.startswith(f"{name}.api.default.")]) == len(calls)
    if name == "local":
        run(sys.executable, "-c", AN_ITEM, folder=tmp_path)
