"""An Ethernet between network namespaces, with plugs that a test can pull. Frames are then lost
silently, and no side notices it.

It uses the kernel's tap devices (tuntap.txt of its documentation) and a switch in a thread of ours,
because not all kernels have veth.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import selectors
import struct
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.machine import unavailable
from tests.own_network import own_network

TUN = Path("/dev/net/tun")
TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI = 0x0002, 0x1000
CLONE_NEWNET = 0x40000000
NAME = "eth0"
FRAME = 65_536


class Plug:
    """The plug of one machine, which is a network namespace with its own address."""

    def __init__(self, inside: list[str], address: str) -> None:
        """`inside` is the command prefix that runs a program there."""
        self.inside = inside
        self.address = address
        self.is_pulled = False
        self.tap = _opened_in(inside[1].removeprefix("--net="))
        for words in (f"addr add {address}/24 dev {NAME}", f"link set {NAME} up"):
            subprocess.run([*inside, "ip", *words.split()], check=True)

    @contextmanager
    def pulled(self) -> Iterator[None]:
        self.is_pulled = True
        try:
            yield
        finally:
            self.is_pulled = False


def _opened_in(namespace: str) -> int:
    """Return the file descriptor of a new tap device in the namespace. A separate thread enters the
    namespace to open it.
    """
    files: list[int] = []

    def open_one() -> None:
        with Path(namespace).open() as there:
            if ctypes.CDLL(None, use_errno=True).setns(there.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns", namespace)
        tap = os.open(TUN, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", NAME.encode(), IFF_TAP | IFF_NO_PI))
        files.append(tap)

    thread = threading.Thread(target=open_one)
    thread.start()
    thread.join()
    return files[0]


def _switch(plugs: list[Plug], end: int) -> None:
    """Pass each frame to all other plugs, until `end` becomes readable."""
    with selectors.DefaultSelector() as selector:
        selector.register(end, selectors.EVENT_READ)
        for plug in plugs:
            selector.register(plug.tap, selectors.EVENT_READ, plug)
        while True:
            for key, _ in selector.select():
                if key.data is None:
                    return
                _forward(key.data, plugs)


def _forward(sender: Plug, plugs: list[Plug]) -> None:
    frame = os.read(sender.tap, FRAME)
    for plug in plugs:
        if plug is not sender and not (plug.is_pulled or sender.is_pulled):
            os.write(plug.tap, frame)


@contextmanager
def ethernet(*addresses: str) -> Iterator[list[Plug]]:
    """Yield the plugs of machines with these addresses, which are connected by one switch."""
    if not os.access(TUN, os.R_OK | os.W_OK):
        unavailable(f"no {TUN}")
    with ExitStack() as stack:
        plugs = []
        for address in addresses:
            plug = Plug(stack.enter_context(own_network()), address)
            stack.callback(os.close, plug.tap)
            plugs.append(plug)
        ended, end = os.pipe()
        stack.callback(os.close, ended)
        thread = threading.Thread(target=_switch, args=(plugs, ended), daemon=True)
        thread.start()
        stack.callback(thread.join)
        stack.callback(os.close, end)
        yield plugs
