"""A person who sends messages with LXMF over Reticulum, both from PyPI, with one RNode. They are
independent of this product. `python -m tests.peers.lxmf_person FOLDER PORT yes|no [ADDRESS]`.

It announces itself and prints its address. With another address it sends a message there and prints
the result. yes: flow control.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import LXMF  # type: ignore[import-untyped]
import RNS  # type: ignore[import-untyped]

CONFIG = """
[reticulum]
enable_transport = No
share_instance = No
[logging]
loglevel = 3
[interfaces]
[[LoRa]]
type = RNodeInterface
enabled = yes
port = {port}
frequency = 869525000
bandwidth = 125000
txpower = 14
spreadingfactor = 7
codingrate = 5
flow_control = {flow}
"""
PATIENCE = 60.0


def say(line: str) -> None:
    print(line, flush=True)


def main() -> None:
    folder, port, flow, *to = sys.argv[1:]
    Path(folder).mkdir()
    (Path(folder) / "config").write_text(CONFIG.format(port=port, flow=flow))
    RNS.Reticulum(folder)
    (board,) = [each for each in RNS.Transport.interfaces if "LoRa" in str(each)]
    say(f"board {'on' if board.online else 'off'}")
    router = LXMF.LXMRouter(storagepath=f"{folder}/lxmf")
    me = router.register_delivery_identity(RNS.Identity(), display_name=port[-1])
    router.register_delivery_callback(
        lambda message: say(f"came {message.content_as_string()} {board.r_stat_rssi}")
    )
    router.announce(me.hash)
    say(f"address {me.hash.hex()}")
    if to:
        send(router, me, bytes.fromhex(to[0]))
    threading.Event().wait()


def send(router: LXMF.LXMRouter, me: RNS.Destination, to: bytes) -> None:
    ends = time.monotonic() + PATIENCE
    while not RNS.Transport.has_path(to):
        RNS.Transport.request_path(to)
        if time.monotonic() > ends:
            say("no path")
            return
        time.sleep(2)
    person = RNS.Destination(
        RNS.Identity.recall(to),
        RNS.Destination.OUT,
        RNS.Destination.SINGLE,
        "lxmf",
        "delivery",
    )
    text = "hut reached, all well"
    message = LXMF.LXMessage(
        person, me, text, desired_method=LXMF.LXMessage.OPPORTUNISTIC, include_ticket=False
    )
    message.register_delivery_callback(lambda message: say("delivered"))
    message.register_failed_callback(lambda message: say("failed"))
    router.handle_outbound(message)


if __name__ == "__main__":
    main()
