"""A board that boots a card in QEMU. Its modem is simulated on this machine, and a shell on a
separate console accepts commands.
"""

from __future__ import annotations

import re
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from tests.machine import tool

BOOT = 600.0
"""Seconds of a boot with an emulated processor on a busy machine."""
ANSWER = 240.0
"""Default maximum seconds of a command."""
MIB = 1 << 20
BOOT_PARTITION = "@@1M"
"""Place of the boot partition for mtools. `build/image` makes it 256 MiB large."""
ENTRIES = "::/loader/entries"
ENTRY = f"{ENTRIES}/system-a.conf"
SHELL = (
    "systemd.debug_shell=1 systemd.default_debug_tty=hvc1"
    f" systemd.default_device_timeout_sec={BOOT:.0f}"
    " mitigations=off no_timer_check"
)
"""Kernel parameters: a root shell on the second virtio console, because the first has a login
(kernel-command-line(7)). The card's partitions may take as long as the board, while systemd
waits 90 s by default. The kernel's workarounds for processor faults are off, because an emulated
processor has none and they take a fifth of a boot. The timer check is off, because on a busy
machine a late timer looks broken. Everything else is as shipped."""
BARE = (
    'init=/bin/sh -- -c "mount -t tmpfs tmp /tmp; ip link set lo up;'
    ' modprobe virtio_console; exec sh -i </dev/hvc1 >/dev/hvc1 2>&1"'
)
"""The same shell instead of systemd: the test starts programs of the card by hand."""
FIRMWARE = Path("/usr/share/OVMF/OVMF_CODE_4M.fd")
VARIABLES = Path("/usr/share/OVMF/OVMF_VARS_4M.fd")


class Failed(AssertionError):
    """Error: a command of the board failed."""


class Board:
    """A board with one card. It can be booted, and its power cut, any number of times."""

    def __init__(
        self,
        folder: Path,
        card: Path,
        modem: Path | None,
        *devices: tuple[str, str],
        shell: str = SHELL,
        recorded_to: Path | None = None,
    ) -> None:
        """`devices` are further QEMU arguments. With `recorded_to`, writes to the card are recorded
        there (`disk_log`), and flushed only there.
        """
        self.card = card
        self.share = folder / "share"
        """Folder that the board sees as /mnt, read-only."""
        self.share.mkdir()
        # A socket's path has at most 107 bytes.
        self._short = tempfile.TemporaryDirectory(prefix="board-")
        self._console = Path(self._short.name) / "console"
        self._folder = folder
        self._modem = modem
        self._devices = devices
        self._recorded_to = recorded_to
        self._qemu: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None
        self._heard = b""
        self._number = 0
        self._shell = shell
        # Before anything on the card is recorded or copied.
        self._open_shells()

    def read(self, name: str) -> str:
        """Return a file of the boot partition, as a laptop sees it while the card is out of the
        board.
        """
        return self._mtool("mtype", name).decode()

    def write(self, name: str, content: bytes) -> None:
        self._mtool("mcopy", "-o", "-", name, content=content)

    def files(self, folder: str = "::/") -> list[str]:
        return [each for each in self._mtool("mdir", "-b", folder).decode().splitlines() if each]

    def shows(self, secret: bytes) -> bool:
        """Return True if the secret is readable anywhere in the boot partition, deleted or not."""
        with self.card.open("rb") as card:
            card.seek(MIB)
            return secret in card.read(256 * MIB)

    def _mtool(self, name: str, *arguments: str, content: bytes = b"") -> bytes:
        command = [tool(name, "mtools"), "-i", f"{self.card}{BOOT_PARTITION}", *arguments]
        return subprocess.run(command, input=content, check=True, stdout=subprocess.PIPE).stdout

    def boot(self) -> None:
        """Boot until systemd has started everything."""
        self._start()
        self._connect()
        self._hear(rb"# ", BOOT)
        # The shell must not echo the input or print a prompt.
        self._say(
            "exec env PS1= PS2= LC_ALL=C.UTF-8 PAGER=cat SYSTEMD_COLORS=0 SYSTEMD_URLIFY=0 sh"
        )
        self._say("stty -echo")
        self._mount_share()
        self.run("systemctl is-system-running --wait || true", BOOT)

    def _mount_share(self) -> None:
        self.run("mountpoint -q /mnt || mount -t 9p -o trans=virtio,version=9p2000.L,ro host /mnt")

    def boot_in_vain(self, seconds: float = BOOT) -> None:
        """Boot a system that fails, and wait until the board resets itself."""
        self._start()
        self.until_reset(seconds)

    def until_reset(self, seconds: float) -> None:
        """Wait until the board reboots by itself. The emulator then stays off."""
        assert self._qemu is not None
        self._qemu.wait(seconds)
        self.cut()

    def _open_shells(self) -> None:
        """Add the shell, also to a system that the kit has written since."""
        for name in self.files(ENTRIES):
            entry = self.read(name)
            if self._shell not in entry:
                self.write(name, entry.rstrip().encode() + f" {self._shell}\n".encode())

    def _start(self) -> subprocess.Popen[bytes]:
        assert self._qemu is None
        self._open_shells()
        with (self._folder / "serial.log").open("ab") as log:
            self._qemu = subprocess.Popen(
                self._command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        return self._qemu

    def _command(self) -> list[str]:
        variables = self._folder / "variables.fd"
        variables.write_bytes(VARIABLES.read_bytes())
        devices = [
            ("-drive", f"if=pflash,format=raw,readonly=on,file={FIRMWARE}"),
            ("-drive", f"if=pflash,format=raw,file={variables}"),
            *self._drive(),
            ("-device", "qemu-xhci"),
            ("-chardev", f"socket,id=console,path={self._console},server=on,wait=off"),
            ("-device", "virtio-serial-pci"),
            ("-chardev", "null,id=login"),
            ("-device", "virtconsole,chardev=login"),
            ("-device", "virtconsole,chardev=console"),
            ("-virtfs", f"local,path={self.share},mount_tag=host,security_model=none,readonly=on"),
            # The network has no exit.
            ("-netdev", "user,id=net,restrict=on"),
            ("-device", "virtio-net-pci,netdev=net"),
            *self._devices,
        ]
        if self._modem:
            # An FTDI adapter, like the usual ones.
            devices += [
                ("-chardev", f"serial,id=modem,path={self._modem.resolve()}"),
                ("-device", "usb-serial,chardev=modem"),
            ]
        return [
            # With two emulated processors, the kernel once ran into code that the other one was
            # changing, and the modem's adapter stayed silent.
            *("nice", tool("qemu-system-x86_64", "qemu-system-x86")),
            *("-machine", "q35", "-cpu", "max", "-accel", "tcg"),
            *("-smp", "1", "-m", "768", "-nodefaults", "-no-reboot"),
            *("-display", "none", "-serial", "stdio"),
            *(each for device in devices for each in device),
        ]

    def _drive(self) -> list[tuple[str, str]]:
        log = self._recorded_to
        if log is None:
            # Data that the board has flushed is on the card, and other data is lost with its power.
            return [("-drive", f"if=virtio,format=raw,cache=writethrough,file={self.card}")]
        files = [f"file.filename={self.card},file.cache.no-flush=on"]
        files += [f"log.filename={log},log.cache.no-flush=on"]
        node = ["driver=blklogwrites,node-name=card,file.driver=file,log.driver=file", *files]
        return [
            ("-blockdev", ",".join(node)),
            ("-device", "virtio-blk-pci,drive=card,write-cache=on,discard=off"),
        ]

    def _connect(self) -> None:
        deadline = time.monotonic() + ANSWER
        while True:
            line = socket.socket(socket.AF_UNIX)
            try:
                line.connect(str(self._console))
            except OSError:
                line.close()
                assert self._qemu is not None
                assert self._qemu.poll() is None, "QEMU has ended: see serial.log"
                assert time.monotonic() < deadline
                time.sleep(0.1)
            else:
                break
        self._line = line
        self._heard = b""

    def _say(self, command: str) -> None:
        assert self._line is not None
        self._line.sendall(command.encode() + b"\n")

    def _hear(self, wanted: bytes, seconds: float) -> re.Match[bytes]:
        """Wait for a pattern in the output of the shell, and return the match. Later output stays
        for the next call.
        """
        assert self._line is not None
        deadline = time.monotonic() + seconds
        while (match := re.search(wanted, self._heard, re.DOTALL)) is None:
            self._line.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                piece = self._line.recv(65536)
            except TimeoutError:
                raise AssertionError(
                    f"no {wanted!r} within {seconds:g} s: {self._heard!r}"
                ) from None
            assert piece, "the board has no power any more"
            self._heard += piece
        self._heard = self._heard[match.end() :]
        return match

    def ask(self, command: str, seconds: float = ANSWER) -> tuple[int, str]:
        """Return exit code and output. Replies are numbered, so a late one cannot be confused."""
        self._number += 1
        mark = f"reply-{self._number}"
        # In two parts, so that an echo of the input is not a reply.
        self._say(
            f"( {command}\n) 2>&1 </dev/null; code=$?; echo; echo 'rep''ly-{self._number}' $code."
        )
        match = self._hear(rb"(.*?)\r?\n" + mark.encode() + rb" ([0-9]+)\.\r?\n", seconds)
        return int(match[2]), match[1].decode("utf-8", "replace").replace("\r\n", "\n").strip()

    def run(self, command: str, seconds: float = ANSWER) -> str:
        code, output = self.ask(command, seconds)
        if code:
            raise Failed(f"{command}: exit code {code}\n{output}")
        return output

    def until(self, command: str, seconds: float = ANSWER) -> str:
        """Repeat a command until it succeeds."""
        deadline = time.monotonic() + seconds
        while True:
            code, output = self.ask(command)
            if code == 0:
                return output
            if time.monotonic() > deadline:
                log = self.ask("journalctl -b --no-pager -n 60")[1]
                raise Failed(f"{command}: never, within {seconds:g} s: {output}\n{log}")
            time.sleep(1)

    def until_active(self, *units: str, seconds: float = ANSWER) -> None:
        """Wait until each unit is active. For a list, systemctl accepts any active unit, so each is
        checked separately.
        """
        self.until(" && ".join(f"systemctl is-active {unit}" for unit in units), seconds)

    def cut(self) -> None:
        """Cut the power immediately."""
        if self._qemu is not None:
            self._qemu.kill()
            self._qemu.wait()
        if self._line is not None:
            self._line.close()
        self._qemu = self._line = None
        with suppress(FileNotFoundError):
            self._console.unlink()

    def shut_down(self) -> None:
        assert self._qemu is not None
        self._say("systemctl poweroff")
        self._qemu.wait(BOOT)
        self.cut()

    def close(self) -> None:
        self.cut()
        self._short.cleanup()
