"""The container image and `compose.yaml`, without a container engine: their parts exist, their
settings are known, the Dockerfile's steps work, and the hub runs as the image runs it.
"""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from fieldagent.hub.settings import ENVIRONMENT, load_settings
from fieldagent.system.properties import get_variables
from tests import offline
from tests.debian_thirteen import DebianThirteen
from tests.hub.conftest import postgres
from tests.machine import tool, unavailable
from tests.other_user import PACKAGES, open_place, python
from tests.postgres import new_database
from tests.processes import MODULE, PATIENCE, Running, administer, free_port, until
from tests.shipping.conftest import CANNOT, ROOT

__all__ = ["postgres"]

READY = "the hub answers at"


def lines() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile with their arguments."""
    text = (ROOT / "build/oci/Dockerfile").read_text()
    joined = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", "")
    found = [line.partition(" ") for line in joined.splitlines() if line]
    return [(name, rest.strip()) for name, _, rest in found]


def list_arguments(instruction: str) -> list[str]:
    return [rest for name, rest in lines() if name == instruction]


def get_last_argument(instruction: str) -> str:
    """Return the arguments of the last such instruction, which the image uses."""
    return list_arguments(instruction)[-1]


def image_environment() -> dict[str, str]:
    return dict(each.split("=", 1) for text in list_arguments("ENV") for each in shlex.split(text))


def compose() -> dict[str, Any]:
    text = (ROOT / "compose.yaml").read_text()
    text = text.replace("${HUB_NAME:?set it in .env}", "hub.ex")
    text = text.replace("${ADMINISTRATOR:?set it in .env}", "olga@example.org")
    document: dict[str, Any] = yaml.safe_load(text)
    return document


def hub_environment() -> dict[str, str]:
    """Return the variables that the service `hub` has."""
    return {**image_environment(), **compose()["services"]["hub"]["environment"]}


def health_check(port: int) -> list[str]:
    """Return the image's own check, for a hub at another port."""
    _, _, words = get_last_argument("HEALTHCHECK").partition("CMD ")
    command: list[str] = json.loads(words)
    assert command[0] == "python3"
    return [sys.executable, *(word.replace(":9443/", f":{port}/") for word in command[1:])]


def list_build_context() -> list[Path]:
    """Return the files and folders of the build context."""
    ignored = (ROOT / "build/oci/Dockerfile.dockerignore").read_text().splitlines()
    assert "*" in ignored
    return [ROOT / line[1:] for line in ignored if line.startswith("!")]


def test_dockerfile_copies_only_existing_files_of_the_build_context() -> None:
    copied = [
        ROOT / source
        for text in list_arguments("COPY")
        if not text.startswith("--from")
        for source in text.split()[:-1]
    ]
    assert sorted(copied) == sorted(list_build_context())
    assert all(each.exists() for each in copied)


def test_image_installs_all_optional_libraries_of_a_hub() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    known = {*setup["options.extras_require"]} - {"site", "test", "fuzz", "bench"}
    (installed,) = re.findall(r"/src\[(.+?)\]", " ".join(list_arguments("RUN")))
    assert {*installed.split(",")} == known


def test_settings_of_the_compose_file_are_known(tmp_path: Path) -> None:
    environ = hub_environment() | {"XDG_CONFIG_HOME": str(tmp_path)}
    settings = load_settings(None, environ=environ)
    assert len(get_variables(environ, ENVIRONMENT)) >= 7
    assert settings.database.startswith("postgresql://")
    assert settings.listen == ("0.0.0.0",)
    assert settings.port == int(get_last_argument("EXPOSE"))


def test_compose_file_refers_only_to_defined_objects() -> None:
    document = compose()
    for name, service in document["services"].items():
        assert {*service.get("secrets", [])} <= {*document["secrets"]}, name
        assert {*service.get("depends_on", [])} <= {*document["services"]}, name
        volumes = {each.partition(":")[0] for each in service.get("volumes", [])}
        assert volumes <= {*document["volumes"]}, name
    hub = document["services"]["hub"]
    assert (ROOT / hub["build"]["dockerfile"]).exists()
    assert hub["volumes"] == [f"hub:{get_last_argument('VOLUME')}"]
    assert get_last_argument("VOLUME") == image_environment()["STATE_DIRECTORY"]
    assert hub["read_only"] and hub["cap_drop"] == ["ALL"]
    assert get_last_argument("USER") != "root"


COMPOSE = """
cd /srv/with
docker-compose config --quiet 2>&1 | grep 'set it in .env'
printf 'HUB_NAME=hub.ex\\nADMINISTRATOR=olga@example.org\\n' >.env
docker-compose config --format json
"""


@pytest.mark.full
def test_docker_compose_reads_the_same_services(tmp_path: Path) -> None:
    """Docker Compose is in Debian 13. It reads the file without a container engine."""
    there = DebianThirteen("compose")
    there.install("apt-get update -q; apt-get install -qy --no-install-recommends docker-compose")
    (tmp_path / "compose.yaml").write_bytes((ROOT / "compose.yaml").read_bytes())
    done = subprocess.run(
        there.make_command(COMPOSE, "--with", str(tmp_path)),
        capture_output=True,
        text=True,
        env={**os.environ, **there.environment},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    complaint, _, described = done.stdout.partition("{")
    assert "is missing a value: set it in .env" in complaint
    services, ours = json.loads("{" + described)["services"], compose()["services"]
    assert services.keys() == ours.keys()
    for name, service in services.items():
        for member in ("command", "environment", "read_only", "cap_drop"):
            assert service.get(member) == ours[name].get(member), (name, member)
    assert services["hub"]["depends_on"]["tables"]["condition"] == "service_completed_successfully"


@pytest.mark.full
def test_compose_services_work_with_postgresql(postgres: str, tmp_path: Path) -> None:
    """`tables` runs first, then `hub`, with the settings of the file."""
    password = tmp_path / "database-password"
    password.write_text("secret\n")
    database, port = new_database(postgres), free_port()
    environ = hub_environment() | {
        "FIELDAGENT_HUB_DATABASE": database,
        "FIELDAGENT_HUB_DATABASE_PASSWORD_FILE": str(password),
        "FIELDAGENT_HUB_LISTEN": "127.0.0.1",
        "FIELDAGENT_HUB_PORT": str(port),
        "FIELDAGENT_HUB_ADMIN_LISTEN": f"127.0.0.1:{free_port()}",
        "FIELDAGENT_HUB_DRAIN_SECONDS": "0",
        "XDG_CONFIG_HOME": str(tmp_path),
        "PATH": os.environ["PATH"],
    }
    services = compose()["services"]
    fieldagent, *words = services["tables"]["command"]
    assert fieldagent == "fieldagent"
    how: dict[str, Any] = {"env": {**os.environ, **environ}, "timeout": PATIENCE}
    first = subprocess.run([*MODULE, *words], check=True, capture_output=True, text=True, **how)
    assert "signIn: https://hub.ex/console#username=olga%40example.org&password=" in first.stdout
    again = subprocess.run([*MODULE, *words], check=True, capture_output=True, text=True, **how)
    assert again.stdout == ""
    fieldagent, *words = json.loads(get_last_argument("CMD"))
    assert fieldagent == "fieldagent"
    assert subprocess.run(health_check(port), capture_output=True).returncode
    with Running([*MODULE, *words], READY, **environ) as running:
        until(lambda: subprocess.run(health_check(port), capture_output=True).returncode == 0)
        assert [each["name"] for each in administer(database, "workspace", "list")] == ["Team"]
        assert running.stop() == 0


_READ_ONLY = """
mount --make-rprivate /
mount -t tmpfs -o mode=700,uid="$1",gid="$1" none "$2"
mount -o remount,bind,ro /
! touch /written 2>/dev/null || exit 99
user=$1
shift 2
exec setpriv --reuid "$user" --regid "$user" --clear-groups --no-new-privs --bounding-set=-all "$@"
"""


@contextmanager
def unpacked_image() -> Iterator[Path]:
    """Yield a folder with the image's files: the package, built from the build context."""
    with open_place() as place:
        sources = place / "src"
        sources.mkdir()
        for each in list_build_context():
            subprocess.run(["cp", "-r", each, sources], check=True)
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
        install += ["--no-build-isolation", "--root-user-action=ignore", "--no-compile"]
        subprocess.run([*install, f"--target={place / 'opt'}", sources], check=True)
        yield place


@pytest.mark.full
def test_image_command_runs_as_its_user_on_a_read_only_root() -> None:
    for program, package in (("unshare", "util-linux"), ("setpriv", "util-linux")):
        tool(program, package)
    port, (user, _) = free_port(), get_last_argument("USER").split(":")
    with unpacked_image() as place:
        state = place / "state"
        state.mkdir()
        _, *words = json.loads(get_last_argument("CMD"))
        command = ["unshare", "--mount", "sh", "-euc", _READ_ONLY, "sh", user, str(state)]
        environ = image_environment() | {
            "FIELDAGENT_HUB_LISTEN": "127.0.0.1",
            "FIELDAGENT_HUB_PORT": str(port),
            "FIELDAGENT_HUB_TRUSTED_PROXIES": "127.0.0.1/32",
            "STATE_DIRECTORY": str(state),
            "HOME": "/nonexistent",
            "PATH": os.environ["PATH"],
            "PYTHONPATH": offline.path(f"{place / 'opt'}:{PACKAGES}"),
        }
        hub = [*command, "env", "--chdir=/", python(), "-m", "fieldagent", *words]
        with Running(hub, READY, **environ) as running:
            until(lambda: subprocess.run(health_check(port), capture_output=True).returncode == 0)
            assert running.stop() == 0


_ROOT = """
mount --make-rprivate /
mount --bind "$1" "$1"
mount --rbind /dev "$1/dev"
mount -t proc proc "$1/proc"
mount -t tmpfs -o "mode=700,uid=$2" none "$1$3"
mount -o remount,bind,ro "$1"
exec chroot --userspec="$2:$2" "$1" sh -euc "$4" sh
"""
"""Runs a script as the image's user on its read-only root."""
_HUB = """
! touch /written 2>/dev/null
id --user
fieldagent hub init Alps >/dev/null
"$@" >&2 &
hub=$!
until python3 -c "$CHECK" 2>/dev/null; do kill -0 $hub; sleep 0.1; done
python3 -c "import apprise, cryptography, psycopg, webauthn; print(psycopg.pq.__impl__)"
kill $hub
wait $hub
echo stopped
"""


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the archive that `build/oci/image` writes."""
    tool("buildah", "buildah")
    file = tmp_path_factory.mktemp("image") / "hub.tar"
    done = subprocess.run([ROOT / "build/oci/image", "amd64", file], capture_output=True, text=True)
    if done.returncode == CANNOT:
        unavailable(done.stderr.strip())
    assert done.returncode == 0, done.stderr[-3000:]
    yield file
    file.unlink()


@pytest.mark.full
def test_image_built_without_a_daemon_runs_on_a_read_only_root(image: Path, tmp_path: Path) -> None:
    """Without a container engine, the test unpacks the layers and runs the command there."""
    subprocess.run(["tar", "-xf", image, "-C", tmp_path], check=True)
    ((description,),) = [json.loads((tmp_path / "manifest.json").read_text())]
    config = json.loads((tmp_path / description["Config"]).read_text())["config"]
    root = tmp_path / "root"
    root.mkdir()
    for layer in description["Layers"]:
        subprocess.run(["tar", "-xpf", tmp_path / layer, "-C", root], check=True)
    assert config["Healthcheck"]["Test"][0] == "CMD"
    assert config["Labels"]["org.opencontainers.image.version"]
    port, (user, _) = free_port(), config["User"].split(":")
    (state,) = config["Volumes"]
    environ = {
        **dict(each.split("=", 1) for each in config["Env"]),
        "FIELDAGENT_HUB_LISTEN": "127.0.0.1",
        "FIELDAGENT_HUB_PORT": str(port),
        "HOME": "/nonexistent",
        "CHECK": health_check(port)[-1],
    }
    script = f"set -- {shlex.join(config['Cmd'])}\n{_HUB}"
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-euc", _ROOT, "sh", root, user, state, script],
        capture_output=True,
        text=True,
        env=environ | {"PATH": f"{environ['PATH']}:/usr/sbin:/sbin"},
        timeout=PATIENCE,
    )
    assert done.stdout.splitlines() == [user, "binary", "stopped"], done.stderr[-3000:]


@pytest.mark.full
def test_image_sbom_lists_its_components(image: Path) -> None:
    bill = json.loads(image.with_name(f"{image.name}.cdx.json").read_text())
    assert bill["metadata"]["component"]["name"] == image.name
    named = {component["name"] for component in bill["components"]}
    assert {"fieldagent", "trio", "psycopg", "apprise", "webauthn", "openssl"} <= named
