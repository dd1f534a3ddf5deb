"""root never touches files of the agent's user: each command, and each unit of root, meets files
that this user may have put into its folder, and more.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import shlex
import shutil
import sqlite3
import stat
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from fieldagent.cli.arguments import build_parser
from fieldagent.cli.command_tree import list_commands
from fieldagent.extensions.fleet import trial, trial_journal
from fieldagent.kit import root_units
from fieldagent.system.as_owner import UnsafeFolder, find_owner, run_as_owner
from fieldagent.system.folder import replace_file
from tests.other_user import ENVIRONMENT, ROOT, UID, open_place, python

SECRET = "what root alone may know"
ENDS = 20.0
"""Seconds within which a command must end."""
RUNS = 1.5
"""Seconds for commands that run until they are stopped."""
STOPPED = -14

AGENT = "--config {settings}"
HUB = "--database {state}/hub.sqlite3"
TRIAL = "--config {settings} --state {update} --program {program} --key {home}/update.pub"
CALL = "--port 9 --json"
PUSH = "--hub http://127.0.0.1:9 --workspace 1 --source 1 --target 1"
SETTINGS = TRIAL.replace(" --program {program}", "")

COMMANDS: Mapping[str, str] = {
    "run": AGENT,
    "demo": "--port 0",
    "send message": f"hello {CALL}",
    "send location": f"46 7 {CALL}",
    "send waypoint": f"46 7 hut {CALL}",
    "send data": f"{{home}}/file {CALL}",
    "send picture": f"{{home}}/file {CALL}",
    "sos": f"--yes {CALL}",
    "checkin": f"--done {CALL}",
    "track": "--port 9 --gpsd 127.0.0.1:9",
    "cancel": f"1 {CALL}",
    "show": f"1 {CALL}",
    "sent": CALL,
    "queue": CALL,
    "status": CALL,
    "people": CALL,
    "neighbours": CALL,
    "radio": "{home}/port --json",
    "setup": "{home}/port --yes --config {settings}",
    "inbound list": CALL,
    "satellite retry": CALL,
    "satellite trace": CALL,
    "inbound read": f"x {CALL}",
    "inbound replay": f"--dead {CALL}",
    "check": AGENT,
    "page": f"{AGENT}; --set {AGENT}; --json {AGENT}",
    "provision": "--card {home}/card --config {settings}",
    "update": f"{{program}} {TRIAL}; --last {TRIAL}; --go-on {TRIAL}; --offered {TRIAL}",
    "settings": f"{SETTINGS}; --go-on {SETTINGS}",
    "clock": AGENT,
    "commands": "--port 9",
    "reboot": AGENT,
    "simulate satellite": "",
    "simulate node": "",
    "simulate gsm": "",
    "drill": "{home}/file --json",
    "simulate fleet": "--hub http://127.0.0.1:9 --tokens {home}/file --json",
    "help": "status",
    "completion": "bash",
    "manual": "",
    "hub run": f"{HUB} --config {{home}}/hub.properties",
    "hub check": f"{HUB} --config {{home}}/hub.properties",
    "hub init": f"Alps {HUB}",
    "hub workspace add": f"Alps {HUB}",
    "hub workspace list": HUB,
    "hub workspace delete": f"Alps --yes {HUB}",
    "hub user add": f"ada --password {HUB}",
    "hub user join": f"1 {HUB}",
    "hub user leave": f"ada {HUB}",
    "hub user password": f"ada {HUB}",
    "hub user role": f"ada member {HUB}",
    "hub user radio": f"ada !a1b2c3d4 {HUB}",
    "hub user positions": f"ada all {HUB}",
    "hub user tak": f"ada --revoke {HUB}",
    "hub tak enroll": "127.0.0.1 --port 9 --user ada --folder {home}",
    "hub group add": f"rescue ada {HUB}",
    "hub group join": f"rescue ada {HUB}",
    "hub group leave": f"rescue ada {HUB}",
    "hub group satellite": f"rescue on {HUB}",
    "hub group remove": f"rescue {HUB}",
    "hub group list": HUB,
    "hub user disable": f"ada {HUB}",
    "hub user enable": f"ada {HUB}",
    "hub user delete": f"ada --yes {HUB}",
    "hub user export": f"ada {{state}}/export {HUB}",
    "hub user list": HUB,
    "hub device add": f"kit --user ada {HUB}; kit --user ada --card {{state}}/card {HUB}",
    "hub device make": f"3 --workspace Test --tokens {{state}}/tokens {HUB}",
    "hub device token": f"kit {HUB}",
    "hub device rename": f"kit box {HUB}",
    "hub device imei": f"kit 300234010000001 {HUB}",
    "hub device key": f"kit {HUB}",
    "hub device relay": f"kit {HUB}",
    "hub device retry": f"kit {HUB}",
    "hub device checkin": f"kit --off {HUB}",
    "hub device set": f"kit satellite-baud=9600 --secret-key {{state}}/key {HUB}",
    "hub device disable": f"kit {HUB}",
    "hub device enable": f"kit {HUB}",
    "hub device revoke": f"kit --why stolen {HUB}",
    "hub device restore": f"kit {HUB}",
    "hub device delete": f"kit --yes {HUB}",
    "hub device list": HUB,
    "hub device contested": HUB,
    "hub update offer": f"9.0 http://127.0.0.1:9/x.pyz --devices all {HUB}",
    "hub update list": HUB,
    "hub update show": f"1 {HUB}",
    "hub update stop": HUB,
    "hub device dead-letter list": HUB,
    "hub device dead-letter assign": f"kit {HUB}",
    "hub device dead-letter replay": HUB,
    "hub device dead-letter remove": f"1 {HUB}",
    "hub usage list": HUB,
    "hub usage import": f"{{home}}/file --operator rockblock {HUB}",
    "hub key add": f"push {HUB}",
    "hub key rate": f"1 --per-minute 5 {HUB}",
    "hub key list": HUB,
    "hub key revoke": f"1 {HUB}",
    "hub user token add": f"push --user ada {HUB}",
    "hub user token list": HUB,
    "hub user token revoke": f"1 {HUB}",
    "hub tracker source add": f"dogs {HUB}",
    "hub tracker source list": HUB,
    "hub tracker source revoke": f"1 {HUB}",
    "hub tracker add": f"dog --id 7 --user ada {HUB}",
    "hub tracker list": HUB,
    "hub webhook add": f"http://127.0.0.1:9/ {HUB}",
    "hub webhook list": HUB,
    "hub webhook test": f"1 {HUB}",
    "hub webhook enable": f"1 {HUB}",
    "hub webhook secret": f"1 {HUB}",
    "hub webhook remove": f"1 {HUB}",
    "hub webhook dead": HUB,
    "hub webhook replay": f"x {HUB}",
    "hub sos list": HUB,
    "hub sos show": f"1 {HUB}",
    "hub sos acknowledge": f"1 {HUB}",
    "hub sos take-over": f"1 {HUB}",
    "hub sos hand-over": f"1 ada {HUB}",
    "hub sos close": f"1 over {HUB}",
    "hub sos note": f"1 seen {HUB}",
    "hub sos answer": f"1 wait {HUB}",
    "hub alarm list": HUB,
    "hub alarm show": f"1 {HUB}",
    "hub alarm acknowledge": f"1 {HUB}",
    "hub alarm take-over": f"1 {HUB}",
    "hub alarm hand-over": f"1 ada {HUB}",
    "hub alarm close": f"1 over {HUB}",
    "hub alarm note": f"1 seen {HUB}",
    "hub fleet": HUB,
    "hub contact watch show": HUB,
    "hub contact watch take": f"ada {HUB}",
    "hub contact watch hand-over": f"ada ben {HUB}",
    "hub contact watch end": f"ada {HUB}",
    "hub contact watch hours": f"always {HUB}",
    "hub route add": f"--kit kit --to 46,7,500 --by 18:00 {HUB}",
    "hub route list": HUB,
    "hub route end": f"1 home --by ada {HUB}",
    "hub contact quiet set": f"22:00-06:00 {HUB}",
    "hub contact quiet inherit": f"1 {HUB}",
    "hub contact quiet list": HUB,
    "hub report": f"--kit kit {HUB}",
    "hub fence add": f"hut --circle 46,7,500 {HUB}",
    "hub fence list": HUB,
    "hub fence remove": f"1 {HUB}",
    "hub contact chain list": HUB,
    "hub contact chain test": HUB,
    "hub contact add": f"Olga olga@example.org {HUB}",
    "hub contact list": HUB,
    "hub contact test": f"1 {HUB}",
    "hub contact remove": f"1 {HUB}",
    "hub database restored": HUB,
    "hub database backup": f"{{state}}/backup.sqlite3 {HUB}",
    "hub workspace export": f"{{state}}/export {HUB}",
    "hub database move": f"postgresql://127.0.0.1:1/none {HUB}",
    "hub database migrate": HUB,
    "hub audit": HUB,
    "hub command": f"1 {HUB}",
    "hub device radio-key change": HUB,
    "hub device radio-key status": HUB,
    "hub device radio-key leave-out": f"kit {HUB}",
    "hub device radio-key ask": f"kit {HUB}",
    "hub device radio-key key": HUB,
    "push message": f"hello {PUSH}",
    "push location": f"46 7 {PUSH}",
    "push waypoint": f"46 7 hut {PUSH}",
    "push data": f"{{home}}/file {PUSH}",
    "push picture": f"{{home}}/file {PUSH}",
}
"""Each command as root calls it. Several calls are separated by semicolons."""
UNTIL_STOPPED = {
    "run",
    "demo",
    "track",
    "simulate satellite",
    "simulate node",
    "simulate gsm",
    "hub run",
}
WITHOUT_STATE = {
    name for name, calls in COMMANDS.items() if not re.search(r"\{(state|settings|update)\}", calls)
}
"""Commands that do not know the agent's folder: its content makes no difference to them."""
UNITS = {
    "fieldagent-clock.service": "clock",
    "fieldagent-provision.service": "provision",
    "fieldagent-reboot.service": "reboot",
    "fieldagent-settings.service": "settings --go-on",
    "fieldagent-update.service": "update --go-on",
    "fieldagent-update-offer.service": "update --offered",
}
"""Units of root, each with its command, which is above."""


def test_table_contains_every_command() -> None:
    there = {" ".join(each.words) for each in list_commands(build_parser()) if not each.subcommands}
    assert there == set(COMMANDS)


def test_every_unit_run_by_root_runs_a_command_of_the_table() -> None:
    services = {}
    for unit in [*ROOT.glob("systemd/*.service"), *ROOT.glob("build/packages/*.service")]:
        text = unit.read_text()
        if not re.search(r"^(User=fieldagent(-hub)?|DynamicUser=yes)$", text, re.MULTILINE):
            (started,) = re.findall(r"^Exec[A-Za-z]+=(.+)$", text, re.MULTILINE)
            services[unit.name] = re.sub(
                r"^(/usr/bin/fieldagent|\S+python3 \S+\.pyz) ", "", started
            )
    assert services == UNITS
    for words in UNITS.values():
        name, _, option = words.partition(" ")
        assert option in COMMANDS[name]


OF_THE_AGENTS_USER = re.compile(r"/var/lib/(?!fieldagent-update)(fieldagent|@UNIT@|kit/agent)\S*")


def test_no_script_run_by_root_opens_the_agents_folder() -> None:
    """The scripts of packages, the card and an installation only name it to purge it by `rm -rf`,
    which follows no links, and to mount it.
    """
    named = set()
    for place in ("build/packages", "build/card", "systemd"):
        for path in (ROOT / place).rglob("*"):
            if path.is_file() and path.suffix not in (".service", ".path"):
                lines = path.read_text().splitlines()
                named |= {line.strip() for line in lines if OF_THE_AGENTS_USER.search(line)}
    assert named == {
        "rm -rf /var/lib/@UNIT@ /var/lib/@UNIT@-update",
        "/var/lib/kit/agent /var/lib/fieldagent none bind 0 0",
        'u fieldagent - "fieldagent" /var/lib/fieldagent',
        'u fieldagent-hub - "fieldagent hub" /var/lib/fieldagent-hub',
        # The first settings of the hub, which its unit and its user read.
        'DATABASE = "database=/var/lib/fieldagent-hub/hub.sqlite3\\n"',
        # Texts for people.
        "3. sudo -u fieldagent-hub fieldagent hub init NAME --database"
        " /var/lib/fieldagent-hub/hub.sqlite3",
        'echo "Removed. The settings in $root/etc/fieldagent and the journal in'
        ' $root/var/lib/fieldagent are left."',
    }


class Kit:
    """Folders of root, and a folder of the agent's user within them."""

    def __init__(self, place: Path) -> None:
        self.home = place
        self.theirs = self._folder("theirs", UID, 0o755)
        self.state = self._folder("theirs/state", UID, 0o700)
        self.update = self._folder("theirs-update", 0, 0o711)
        self._folder("card", 0, 0o755)
        self.victim = self._folder("victim", 0, 0o700)
        self.etc = self._folder("etc", 0, 0o755)
        self.secrets = [self.victim / "secret", self.etc / "shadow"]
        for each in self.secrets:
            replace_file(each, f"{SECRET} {each.name}\n".encode())
        self.settings = place / "agent.properties"
        self.program = place / "fieldagent.pyz"
        self.program.write_bytes(b"no program")
        (place / "file").write_bytes(b"data")
        (place / "hub.properties").write_text("listen=127.0.0.1:0\n")
        tools = self._folder("bin", 0, 0o755)
        (tools / "systemctl").write_text("#!/bin/sh\n")
        (tools / "systemctl").chmod(0o755)

    def _folder(self, name: str, uid: int, mode: int) -> Path:
        folder = self.home / name
        folder.mkdir()
        os.chown(folder, uid, uid)
        folder.chmod(mode)
        return folder

    def configure(self, port: int) -> None:
        self.port = port
        self.settings.write_text(
            f"state-directory={self.state}\napi-port={port}\npage-listen=127.0.0.0/8\n"
            f"page-port=9\nmap-file={self.state}/map.mbtiles\n"
        )

    def on_trial(self, phase: str) -> None:
        offered = trial.Trial(
            "9", "1", str(self.program), str(self.settings), {}, 1, minutes=0, steady=0,
            phase=phase, why="it does not" if phase == "back" else "",
        )  # fmt: skip
        place = trial.Place(self.update)
        for each in (place.new, place.previous):
            replace_file(each, b"a program")
        replace_file(place.trial, json.dumps(asdict(offered)).encode())

    def calls(self) -> Iterator[tuple[str, list[str], float]]:
        places = vars(self)
        for name, calls in COMMANDS.items():
            for call in calls.split(";"):
                words = [*name.split(), *shlex.split(call.format(**places))]
                yield name, words, RUNS if name in UNTIL_STOPPED else ENDS


NAMES = [
    *(
        "agent.lock",
        "map.mbtiles",
        "settings.offer",
        "program.offer",
        "clock.offer",
        "reboot.ask",
        "backup.sqlite3",
    ),
    *("page/certificate.pem", "page/certificate.pem.new", "page/pass-phrase"),
    *("page/pass-phrase.new", "export.unfinished", "card/fieldagent.properties.new", "key"),
    *(
        f"{name}{suffix}"
        for name in ("journal.sqlite3", "hub.sqlite3")
        for suffix in (
            *("", "-journal", "-wal", "-shm", "-mark", "-closed", ".before", ".before-new"),
            *(".before-new-journal", ".restored", ".restored-journal", ".of-9", "-repaired"),
        )
    ),
]


def plant_each(kit: Kit, lay: Callable[[Path], None]) -> None:
    for name in NAMES:
        (kit.state / name).parent.mkdir(exist_ok=True)
        lay(kit.state / name)


def links_to_files(kit: Kit) -> None:
    plant_each(kit, lambda path: path.symlink_to(kit.secrets[0]))


def links_to_folders(kit: Kit) -> None:
    (kit.state / "page").symlink_to(kit.etc)
    (kit.state / "card").symlink_to(kit.etc)
    for name in NAMES:
        if "/" not in name:
            (kit.state / name).symlink_to(kit.victim)


def dangling_links(kit: Kit) -> None:
    """Files that are made through these links would appear in root's folders."""
    plant_each(kit, lambda path: path.symlink_to(kit.etc / path.name))


def hard_links(kit: Kit) -> None:
    plant_each(kit, lambda path: os.link(kit.secrets[0], path))


def fifos(kit: Kit) -> None:
    plant_each(kit, lambda path: os.mkfifo(path, 0o666))


def devices(kit: Kit) -> None:
    def lay(path: Path) -> None:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))
        path.chmod(0o666)

    plant_each(kit, lay)


MAGIC = bytes.fromhex("d9d505f920a163d7")


def hot_journals(kit: Kit) -> None:
    """Plant journals that name a file of root as their super-journal, which SQLite deletes after a
    rollback (https://sqlite.org/fileformat2.html#the_rollback_journal).
    """
    for name in ("journal.sqlite3", "journal.sqlite3.before", "hub.sqlite3", "map.mbtiles"):
        lay_hot_journal(kit.state / name, kit.secrets[0])
    lay_hot_journal(kit.state / "journal.sqlite3.of-9", kit.secrets[1])


def lay_hot_journal(database: Path, victim: Path) -> None:
    with closing(sqlite3.connect(database)) as db:
        db.executescript("CREATE TABLE package (text); PRAGMA user_version=2;")
    size = database.stat().st_size
    head = MAGIC + struct.pack(">5L", 0, 1, size // 4096, 512, 4096)
    name = os.fsencode(victim)
    named = struct.pack(">L", 2**30 // 4096 + 1) + name
    named += struct.pack(">LL", len(name), sum(name)) + MAGIC
    database.with_name(f"{database.name}-journal").write_bytes(head.ljust(512, b"\0") + named)


def state_folder_as_symlink(kit: Kit) -> None:
    kit.state.rmdir()
    kit.state.symlink_to(kit.etc)


def no_files(kit: Kit) -> None:
    """Plant nothing, so that each command runs as far as possible."""


LAYS = [
    no_files,
    links_to_files,
    links_to_folders,
    dangling_links,
    hard_links,
    fifos,
    devices,
    hot_journals,
    state_folder_as_symlink,
]


def plant(kit: Kit, what: Callable[[Kit], None]) -> None:
    """Plant files as the agent's user. Files that only root could create at least belong to that
    user.
    """
    shutil.rmtree(kit.state, ignore_errors=True)
    with suppress(FileNotFoundError, NotADirectoryError):
        kit.state.unlink()
    kit.state.mkdir(mode=0o700)
    what(kit)
    for folder, folders, files in os.walk(kit.theirs):
        for each in (".", *folders, *files):
            path = Path(folder, each)
            if path.lstat().st_nlink == 1 or path.is_dir():
                os.chown(path, UID, UID, follow_symlinks=False)


@pytest.fixture
def kit() -> Iterator[Kit]:
    with open_place() as place, answering_agent() as port:
        made = Kit(place)
        made.configure(port)
        yield made


@contextmanager
def answering_agent() -> Iterator[int]:
    channels = {"Cellular": {"configured": False, "state": "absent"}}
    body = json.dumps({"version": "9", "uptime": 60.0, "channels": channels}).encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def check_root_files_untouched(kit: Kit) -> Iterator[None]:
    """Check that root's own files are not opened, changed, given away or deleted meanwhile."""
    before = read_metadata(kit)
    closed = dict.fromkeys([kit.victim, *kit.secrets], OPENED | CHANGED)
    with watch_with_inotify({**closed, kit.etc: CHANGED}) as events:
        yield
        seen = events()
    assert read_metadata(kit) == before
    assert not seen, "the kernel tells that it was opened"


def read_metadata(kit: Kit) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for folder in (kit.victim, kit.etc):
        for path in (folder, *sorted(folder.iterdir())):
            status = path.lstat()
            names = ("st_mode", "st_uid", "st_gid", "st_ino", "st_size", "st_mtime_ns")
            metadata[str(path)] = [getattr(status, name) for name in names]
    return metadata


CHANGED = 0x2 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400
"""inotify(7): IN_MODIFY, IN_MOVED_*, IN_CREATE, IN_DELETE*."""
OPENED = 0x1 | 0x20
"""IN_ACCESS, IN_OPEN."""


@contextmanager
def watch_with_inotify(paths: Mapping[Path, int]) -> Iterator[Callable[[], bytes]]:
    kernel = ctypes.CDLL(None, use_errno=True)
    descriptor = kernel.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)

    def events() -> bytes:
        with suppress(BlockingIOError):
            return os.read(descriptor, 65_536)
        return b""

    try:
        for path, what in paths.items():
            assert kernel.inotify_add_watch(descriptor, os.fsencode(path), what) >= 0
        yield events
    finally:
        os.close(descriptor)


Ended = tuple[str, int, str]
"""The command, its exit code, and its output."""


def is_unsafe_or_failed(name: str, code: int, text: str) -> bool:
    """Return True if the command showed a secret of root, failed by a program error, was called
    wrongly, or hangs.
    """
    hangs = code == STOPPED and name not in UNTIL_STOPPED
    return SECRET in text or "Traceback" in text or ": error: " in text or hangs


def run_all(kit: Kit, only: str = "", *, without: Set[str] = frozenset()) -> list[Ended]:
    calls = [
        each
        for each in kit.calls()
        if " ".join(each[1]).startswith(only) and each[0] not in without
    ]
    asked = json.dumps([each[1:] for each in calls])
    path = f"{kit.home / 'bin'}:{ENVIRONMENT['PATH']}"
    done = subprocess.run(
        [python(), "-m", "tests.cli.root_runner"], input=asked, capture_output=True, text=True,
        env={**ENVIRONMENT, "PATH": path, "HOME": "/nonexistent"}, cwd="/",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    return [(name, code, text) for (name, *_), (code, text) in zip(calls, results, strict=True)]


@pytest.mark.parametrize(
    "what",
    [pytest.param(each, marks=() if each is links_to_files else pytest.mark.full) for each in LAYS],
    ids=lambda each: each.__name__,
)
def test_no_command_run_by_root_touches_targets_of_planted_files(
    kit: Kit, what: Callable[[Kit], None]
) -> None:
    plant(kit, what)
    with check_root_files_untouched(kit):
        done = run_all(kit, without=frozenset() if what is no_files else WITHOUT_STATE)
    bad = [each for each in done if is_unsafe_or_failed(*each)]
    assert not bad


@pytest.mark.full
@pytest.mark.parametrize("phase", ["switch", "watch", "back", "end"])
@pytest.mark.parametrize("what", LAYS, ids=lambda each: each.__name__)
def test_no_step_of_an_update_trial_touches_targets_of_planted_files(
    kit: Kit, what: Callable[[Kit], None], phase: str
) -> None:
    plant(kit, what)
    kit.on_trial(phase)
    with check_root_files_untouched(kit):
        done = run_all(kit, "update --go-on")
    bad = [each for each in done if is_unsafe_or_failed(*each)]
    assert not bad


def test_planted_hot_journal_is_an_effective_attack(kit: Kit) -> None:
    """SQLite as root deletes the file that such a journal beside the database names."""
    plant(kit, hot_journals)
    with closing(sqlite3.connect(kit.state / "journal.sqlite3")) as db:
        db.execute("PRAGMA user_version").fetchall()
    assert not kit.secrets[0].exists()


def test_purged_package_removes_only_its_own_folder(kit: Kit) -> None:
    for what in LAYS:
        plant(kit, what)
        with check_root_files_untouched(kit):
            subprocess.run(["rm", "-rf", kit.theirs / "state"], check=True)
        assert not (kit.theirs / "state").exists()


TRIES = 1000
SWAPS = """
import os, sys
os.chdir(sys.argv[1])
real, link = sys.argv[2], sys.argv[2] + ".link"
while True:
    try:
        os.rename(real, real + ".away")
        os.rename(link, real)
        os.rename(real, link)
        os.rename(real + ".away", real)
    except OSError:
        pass
"""


@contextmanager
def swapping_by_agents_user(folder: Path, name: str, target: Path) -> Iterator[None]:
    """The agent's user repeatedly replaces a file by a link and removes it again."""
    (folder / f"{name}.link").symlink_to(target)
    command = [python(), "-c", SWAPS, str(folder), name]
    process = subprocess.Popen(command, user=UID, group=UID, extra_groups=[], env=ENVIRONMENT)
    try:
        yield
    finally:
        process.kill()
        process.wait()


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "leads_to", "work"),
    [
        ("page", "etc", lambda kit: run_as_owner(kit.state, partial(
            replace_file, kit.state / "page" / "shadow", b"theirs"))),
        ("settings.offer", "victim/secret", lambda kit: root_units.read_offer(
            kit.state / "settings.offer")),
        ("settings.offer", "victim", lambda kit: root_units.remove_offer(
            kit.state / "settings.offer")),
        ("journal.sqlite3", "victim/secret", lambda kit: trial_journal.copy_journal(kit.state, 2)),
        ("journal.sqlite3", "etc/shadow",
            lambda kit: trial_journal.restore_journal(kit.state, 1, "9")),
    ],
    ids=["page", "read", "remove", "keep", "put back"],
)  # fmt: skip
def test_folder_swapped_during_root_access_reveals_nothing(
    kit: Kit, name: str, leads_to: str, work: Callable[[Kit], object]
) -> None:
    plant(kit, no_files)
    lay_hot_journal(kit.state / "journal.sqlite3", kit.secrets[0])
    shutil.copyfile(kit.state / "journal.sqlite3", kit.state / "journal.sqlite3.before")
    (kit.state / "page").mkdir()
    (kit.state / "settings.offer").write_bytes(b"an offer")
    for path in (kit.state, *kit.state.iterdir()):
        os.chown(path, UID, UID)
    with (
        check_root_files_untouched(kit),
        swapping_by_agents_user(kit.state, name, kit.home / leads_to),
    ):
        for _ in range(TRIES):
            with suppress(OSError):
                assert SECRET not in str(work(kit))


ODD: list[tuple[Callable[[Kit], None], str]] = [
    (lambda kit: os.chown(kit.state, 0, 0), "belongs to user 0, in a folder of user"),
    (lambda kit: os.chown(kit.state, UID + 1, 0), f"belongs to user {UID + 1}, in a folder of"),
    (lambda kit: os.chown(kit.state, UID, 0), "and to root's group"),
    (lambda kit: kit.home.chmod(0o777), "others can write to it.*; `chmod go-w /"),
    (state_folder_as_symlink, "is a symbolic link of user"),
]


@pytest.mark.parametrize(("change", "message"), ODD, ids=[message for _, message in ODD])
def test_unsafe_folder_is_refused_with_the_reason(
    kit: Kit, change: Callable[[Kit], None], message: str
) -> None:
    plant(kit, no_files)
    change(kit)
    if kit.state.is_symlink():
        os.chown(kit.state, UID, UID, follow_symlinks=False)
    with pytest.raises(UnsafeFolder, match=message):
        find_owner(kit.state)


def test_world_writable_folder_is_refused_without_a_chmod_hint(kit: Kit) -> None:
    """In a folder such as /tmp, other programs fail without write access for others."""
    kit.home.chmod(0o1777)
    with pytest.raises(UnsafeFolder, match="so root does not use it; name another one") as refused:
        find_owner(kit.home)
    assert "chmod" not in str(refused.value)


def test_link_owned_by_root_is_followed(kit: Kit) -> None:
    plant(kit, no_files)
    (kit.home / "var").symlink_to("theirs/state")
    (kit.home / "absolute").symlink_to(kit.state)
    for name in ("var", "absolute", "var/page/not-yet"):
        assert find_owner(kit.home / name).uid == UID
    assert find_owner(kit.victim).uid == 0


def test_passphrase_set_by_root_belongs_to_the_agents_user(kit: Kit) -> None:
    plant(kit, no_files)
    kit.settings.write_text(kit.settings.read_text().replace("page-listen", "#page-listen"))
    done = [text for name, code, text in run_all(kit, "page") if code == 0]
    assert any("The passphrase is set" in text for text in done), done
    for path in (kit.state / "page", kit.state / "page/pass-phrase"):
        assert (path.stat().st_uid, path.stat().st_gid) == (UID, UID)
    assert (kit.state / "page/pass-phrase").stat().st_mode & 0o777 == 0o600
