"""`fieldagent simulate gsm` as a process, with several senders at the same time."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from fcntl import ioctl
from pathlib import Path
from termios import FIONREAD

from tests.extensions.sms.network import gsm
from tests.processes import until


def test_sms_is_reported_after_a_blocked_answer(tmp_path: Path) -> None:
    """The line is full in the middle of an answer. The SMS is reported after that answer."""
    with gsm(tmp_path) as modem:
        line = os.open(tmp_path / "gsm", os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
        try:
            modem.type("full")
            modem.expect("done")
            os.write(line, b"AT+CMGF=0\rAT+CNMI=2,1,0,1,0\r" + b"AT+CMGL=4\r" * 60 + b"AT+CMGD=1\r")
            until(lambda: _count_unread(line) > 2000)
            modem.type("sms +41790000001 noon")
            modem.expect("1 stored")
            heard = bytearray()

            def is_heard() -> bool:
                with suppress(BlockingIOError):
                    heard.extend(os.read(line, 65536))
                return heard.count(b"+CMGL: 20,") == 60 and b'+CMTI: "ME",1' in heard

            until(is_heard)
        finally:
            os.close(line)


def _count_unread(line: int) -> int:
    return int.from_bytes(ioctl(line, FIONREAD, bytes(4)), sys.byteorder)
