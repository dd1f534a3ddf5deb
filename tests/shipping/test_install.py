"""The installer with a separate folder, and the unit and the udev rule as systemd reads them."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from fieldagent.agent import settings as settings_module
from fieldagent.agent.settings import KEYS, list_all_keys, parse
from fieldagent.hub.settings import KEYS as HUB_KEYS
from fieldagent.hub.settings import parse_settings as parse_hub
from fieldagent.system.properties import InvalidSettings
from tests.machine import tool
from tests.processes import MODULE, agent, hub
from tests.shipping.conftest import ROOT

SETTINGS = "etc/fieldagent/agent.properties"
RULES = ROOT / "systemd/61-fieldagent.rules"
OF_BOTH = {
    "usr/bin/fieldagent",
    "usr/lib/fieldagent/fieldagent.pyz",
    "usr/lib/systemd/system-preset/60-fieldagent.preset",
    "usr/lib/sysusers.d/fieldagent.conf",
    "usr/lib/tmpfiles.d/fieldagent.conf",
}
INSTALLED = OF_BOTH | {
    "usr/lib/systemd/system/fieldagent.service",
    "usr/lib/systemd/system/fieldagent-track.service",
    "usr/lib/systemd/system/fieldagent-provision.service",
    "usr/lib/systemd/system/fieldagent-update.service",
    "usr/lib/systemd/system/fieldagent-update-offer.service",
    "usr/lib/systemd/system/fieldagent-update-offer.path",
    "usr/lib/systemd/system/fieldagent-settings.service",
    "usr/lib/systemd/system/fieldagent-settings.path",
    "usr/lib/systemd/system/fieldagent-clock.service",
    "usr/lib/systemd/system/fieldagent-clock.path",
    "usr/lib/systemd/system/fieldagent-reboot.service",
    "usr/lib/systemd/system/fieldagent-reboot.path",
    "usr/lib/udev/rules.d/61-fieldagent.rules",
    SETTINGS,
}
HUB_SETTINGS = "etc/fieldagent/hub.properties"
UNITS = sorted((ROOT / "systemd").glob("*.service"))
PACKAGES_UNIT = ROOT / "build/packages/fieldagent-update.service"


@pytest.fixture
def installer(zipapp: Path, tmp_path: Path) -> Path:
    """Return the installer of a clone with a built zipapp."""
    clone = tmp_path / "clone"
    shutil.copytree(ROOT / "systemd", clone / "systemd")
    (clone / "dist").mkdir()
    shutil.copy(zipapp, clone / "dist")
    return clone / "systemd/install"


def install(
    installer: Path, *arguments: str | Path, umask: int = 0o022
) -> subprocess.CompletedProcess[str]:
    return subprocess.run([installer, *arguments], capture_output=True, text=True, umask=umask)


def files(root: Path) -> set[str]:
    paths = (path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    return {path.relative_to(root).as_posix() for path in paths}


def test_installer_installs_all_files_and_prints_the_next_step(
    installer: Path, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    done = install(installer, "--root", root)
    assert (done.returncode, done.stderr) == (0, "")
    assert files(root) == INSTALLED
    assert os.access(root / "usr/bin/fieldagent", os.X_OK)
    assert "systemctl enable --now fieldagent" in done.stdout


def test_second_installation_updates_everything_except_the_settings(
    installer: Path, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    install(installer, "--root", root)
    (root / SETTINGS).write_text("satellite-port=/dev/ttyAMA0\n")
    (root / "usr/lib/fieldagent/fieldagent.pyz").write_text("an older one")
    done = install(installer, "--root", root)
    assert (done.returncode, done.stderr) == (0, "")
    assert (root / SETTINGS).read_text() == "satellite-port=/dev/ttyAMA0\n"
    assert (root / "usr/lib/fieldagent/fieldagent.pyz").stat().st_size > 1_000_000
    assert files(root) == INSTALLED


def test_initial_settings_list_every_key_commented_and_are_private(
    installer: Path, tmp_path: Path
) -> None:
    install(installer, "--root", tmp_path / "root")
    settings = tmp_path / "root" / SETTINGS
    text = settings.read_text()
    assert [key.name for key in list_all_keys() if f"\n#{key.name}=" not in text] == []
    assert parse(text, settings, {"HOME": "/"}) == parse("", settings, {"HOME": "/"})
    assert stat.S_IMODE(settings.stat().st_mode) == 0o600


def test_defaults_in_the_settings_template_match_the_code(installer: Path, tmp_path: Path) -> None:
    install(installer, "--root", tmp_path / "root")
    settings = tmp_path / "root" / SETTINGS
    lines = [line.removeprefix("#") for line in settings.read_text().splitlines()]
    pairs = [line.partition("=") for line in lines]
    defaults = [
        f"{name}={value}"
        for name, _, value in pairs
        if value.isdigit() and name not in settings_module.get_examples()
    ]
    assert "api-port=9091" in defaults
    core = {key.name for key in KEYS}
    others = [each for each in defaults if each.partition("=")[0] not in core]
    assert parse("\n".join(defaults), settings, {}) == parse("\n".join(others), settings, {})
    keys = {key.name: key for key in list_all_keys()}
    for name, _, value in (each.partition("=") for each in others):
        assert keys[name].read(value) == keys[name].default


SECRETS = {
    *("webhook-secret", "satellite-key", "radio-key", "radio-key-next", "hub-token"),
    *("mesh-join-code", "sms-pin", "rockblock-password", "cloudloop-secret", "twilio-token"),
    *("sms-gate-password", "sms-gate-key", "sms-webhook-token", "sms-webhook-secret"),
    "mqtt-password",
}
"""Keys. A shown example could be kept by mistake, so none is shown."""
UNKNOWN = {"operators", "contacts", "extensions"}
"""Lists of third-party programs, which have no default."""


@pytest.mark.parametrize("hub", [False, True], ids=["agent", "hub"])
def test_each_line_of_the_settings_template_is_valid_if_uncommented(
    installer: Path, tmp_path: Path, hub: bool
) -> None:
    root = tmp_path / "root"
    assert install(installer, *(["--hub"] if hub else []), "--root", root).returncode == 0
    file = root / (HUB_SETTINGS if hub else SETTINGS)
    settings = dict(re.findall(r"^#([a-z0-9-]+)=(.*)$", file.read_text(), re.MULTILINE))
    assert set(settings) == {key.name for key in (HUB_KEYS if hub else list_all_keys())}
    assert {name for name, value in settings.items() if not value} == (SECRETS | UNKNOWN) & set(
        settings
    )
    for name in set(settings) - SECRETS - UNKNOWN:
        # If another key is also required, the error says so.
        needs = re.compile(
            f"{name} needs [a-z-]+(: set that| or [a-z-]+: set one of them) too, or remove {name}"
        )
        line = f"{name}={settings[name]}\n"
        try:
            parse_hub(line, file) if hub else parse(line, file, {"HOME": "/"})
        except InvalidSettings as invalid:
            assert [each for each in invalid.faults if not needs.fullmatch(each)] == []


@pytest.mark.parametrize(
    "umask",
    [0o022, *(pytest.param(each, marks=pytest.mark.full) for each in (0o000, 0o077, 0o277))],
)
@pytest.mark.parametrize("before", [False, True])
def test_installed_files_are_readable_by_the_units_user_with_any_umask(
    installer: Path, tmp_path: Path, umask: int, before: bool
) -> None:
    root = tmp_path / "root"
    if before:
        for folder in ("usr/lib/fieldagent", "etc/fieldagent"):
            (root / folder).mkdir(parents=True)
            (root / folder).chmod(0o700)
    assert install(installer, "--root", root, umask=umask).returncode == 0
    for path in root.rglob("*"):
        if path.is_symlink():  # to the unit, at its place in the image
            continue
        mode = stat.S_IMODE(path.stat().st_mode) & 0o007
        if path.suffix == ".properties":
            assert mode == 0, path
        elif path.is_dir():
            assert mode == 0o005, path
        else:
            assert mode in (0o004, 0o005), path


def test_uninstall_leaves_settings_and_journal(installer: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    install(installer, "--root", root)
    journal = root / "var/lib/fieldagent/journal.sqlite3"
    journal.parent.mkdir(parents=True)
    journal.touch()
    done = install(installer, "--root", root, "--uninstall")
    assert (done.returncode, done.stderr) == (0, "")
    assert files(root) == {SETTINGS, "var/lib/fieldagent/journal.sqlite3"}


def test_missing_zipapp_is_reported_with_the_build_command(installer: Path, tmp_path: Path) -> None:
    (installer.parents[1] / "dist/fieldagent.pyz").unlink()
    done = install(installer, "--root", tmp_path / "root")
    assert done.returncode == 1
    assert "run build/zipapp first" in done.stderr
    assert not (tmp_path / "root").exists()


def test_unknown_argument_installs_nothing(installer: Path, tmp_path: Path) -> None:
    done = install(installer, "--rot", tmp_path / "root")
    assert done.returncode == 1
    assert "'--rot' is unknown" in done.stderr


def test_hub_is_installed_with_its_own_unit_and_settings(installer: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    done = install(installer, "--hub", "--root", root)
    assert (done.returncode, done.stderr) == (0, "")
    assert files(root) == OF_BOTH | {
        "usr/lib/systemd/system/fieldagent-hub.service",
        HUB_SETTINGS,
    }
    assert "fieldagent hub init" in done.stdout
    shown = (root / HUB_SETTINGS).read_text()
    assert all(f"#{key.name}=" in shown for key in HUB_KEYS)
    settings = parse_hub(shown, Path("hub.properties"))
    assert settings.port == 9443
    # A command in a shell uses the database of the unit, which has another state directory.
    assert settings.database == "/var/lib/fieldagent-hub/hub.sqlite3"


@pytest.mark.parametrize(("options", "unit"), [((), "fieldagent"), (("--hub",), "fieldagent-hub")])
def test_installation_in_an_image_enables_the_unit_with_readable_settings(
    installer: Path, tmp_path: Path, options: tuple[str, ...], unit: str
) -> None:
    systemctl = tool("systemctl", "systemd")
    tmpfiles = tool("systemd-tmpfiles", "systemd")
    root = tmp_path / "root"
    done = install(installer, *options, "--root", root)
    assert (done.returncode, done.stderr) == (0, "")

    def state(of: str) -> str:
        done = subprocess.run(
            [systemctl, "--root", root, "is-enabled", f"{of}.service"],
            capture_output=True,
            text=True,
        )
        return done.stdout.strip() or done.stderr

    assert state(unit) == "enabled"
    if unit == "fieldagent":
        assert state("fieldagent-track") == "disabled"
    if os.geteuid():
        pytest.skip("only root gives files to another user")
    # The image's own boot does this.
    users = {"root": 0, "fieldagent": 907, "fieldagent-hub": 908}
    (root / "etc/passwd").write_text(
        "".join(f"{name}:x:{number}:{number}::/:/bin/sh\n" for name, number in users.items())
    )
    (root / "etc/group").write_text("".join(f"{name}:x:{n}:\n" for name, n in users.items()))
    subprocess.run([tmpfiles, "--root", root, "--create", "fieldagent.conf"], check=True)
    (settings,) = (root / "etc/fieldagent").iterdir()
    status = settings.stat()
    assert (stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid) == (0o640, 0, users[unit])
    assert install(installer, *options, "--root", root, "--uninstall").returncode == 0
    assert not list((root / "etc/systemd").rglob("*.service"))


def test_installation_in_an_image_creates_the_units_users(installer: Path, tmp_path: Path) -> None:
    tool("systemd-sysusers", "systemd")
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    for name in ("passwd", "group"):
        (root / "etc" / name).write_text("")
    done = install(installer, "--root", root)
    assert done.returncode == 0, done.stderr
    for name in ("passwd", "group"):
        made = (root / "etc" / name).read_text()
        assert "fieldagent:" in made
        assert "fieldagent-hub:" in made


def test_installer_accepts_another_zipapp(installer: Path, tmp_path: Path) -> None:
    named = (installer.parents[1] / "dist/fieldagent.pyz").rename(tmp_path / "other.pyz")
    root = tmp_path / "root"
    done = install(installer, "--zipapp", named, "--root", root)
    assert (done.returncode, done.stderr) == (0, "")
    assert (root / "usr/lib/fieldagent/fieldagent.pyz").read_bytes() == named.read_bytes()
    nowhere = install(installer, "--zipapp", tmp_path / "nowhere", "--root", root)
    assert "--zipapp needs a file" in nowhere.stderr


EXPOSURE = {
    "fieldagent-update-offer": 20,
    "fieldagent-update": 18,
    "fieldagent-settings": 18,
    "fieldagent": 17,
}
"""In tenths. An update or remote settings stop and start the agent, query it, install root's files,
and become the agent's user for the agent's files. They need root, AF_UNIX, loopback and two
capabilities. A download needs the network. The agent reads the boot id in /proc/sys, and checks
whether the clock has been set."""


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_unit_exposure_stays_below_its_limit(unit: Path) -> None:
    analyze = tool("systemd-analyze", "systemd")
    most = EXPOSURE.get(unit.stem, 15)
    done = subprocess.run(
        [analyze, "security", "--offline=true", f"--threshold={most}", unit],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-400:] + done.stderr


IN_SIGHT = """\
mount --make-private /proc
mount -t proc -o "$1" proc /proc
shift
exec "$@"
"""


@pytest.mark.parametrize("name", ["fieldagent", "fieldagent-hub"])
def test_program_runs_with_the_restricted_proc_of_its_unit(tmp_path: Path, name: str) -> None:
    """systemd.exec(5), ProcSubset="""
    if os.geteuid():
        pytest.skip("only root may mount /proc anew")
    # In a chroot, / is not a mount whose propagation could be changed.
    unshare = [tool("unshare", "util-linux"), "--mount", "--propagation", "unchanged"]
    hidden = "\nProcSubset=pid\n" in (ROOT / f"systemd/{name}.service").read_text()
    left = f"hidepid=invisible{',subset=pid' if hidden else ''}"
    command = [*unshare, "sh", "-euc", IN_SIGHT, "sh", left, *MODULE]
    if name == "fieldagent":
        with agent(tmp_path, {"satellite-port": None}, command) as running:
            assert running.call("GET", "/api/status").body["clock"]["time"]
    else:
        with hub(tmp_path, {"database": str(tmp_path / "hub.sqlite3")}, command) as running:
            assert running.port


@pytest.mark.parametrize("unit", [*UNITS, PACKAGES_UNIT], ids=lambda unit: unit.stem)
def test_systemd_verifies_the_unit(unit: Path, tmp_path: Path) -> None:
    analyze = tool("systemd-analyze", "systemd")
    # With an existing command, because ours is not installed on this machine.
    there = tmp_path / unit.name
    there.write_text(unit.read_text().replace("/usr/bin/fieldagent ", "/usr/bin/env "))
    done = subprocess.run([analyze, "verify", there], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_udev_rules_keep_modemmanager_and_gpsd_from_named_ports() -> None:
    named = [line for line in RULES.read_text().splitlines() if "SYMLINK+=" in line]
    assert named
    assert all('ENV{ID_MM_PORT_IGNORE}="1"' in line for line in named)
    # gpsd's rules want this for a port that they take for a receiver. They are read before.
    assert all('ENV{SYSTEMD_WANTS}=""' in line for line in named)
    assert RULES.name > "60-gpsd.rules"


def test_udevadm_verifies_the_rules() -> None:
    udevadm = shutil.which("udevadm")
    if udevadm is None or "verify" not in subprocess.getoutput(f"{udevadm} --help"):
        pytest.skip("no udevadm that verifies rules (systemd 254 and later)")
    done = subprocess.run([udevadm, "verify", RULES], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
