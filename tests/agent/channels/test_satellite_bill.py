"""The kit's bookings agree with the gateway's counts, which lie between the credits that are
certainly paid and those that may be paid. Real agent and real clock. The simulated gateway
reports each price.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fieldagent.wire.sbd import MO_STATUS, SessionVerdict
from tests.processes import Agent, Running, agent, sky, until

DOUBTFUL = [n for n, status in MO_STATUS.items() if status.verdict is SessionVerdict.DOUBTFUL]
MO = re.compile(r"MO [0-9]+ from .*, ([0-9]+) credits?$")


def counted(gateway: Running) -> int:
    return sum(int(match[1]) for line in gateway.output() if (match := MO.search(line)))


def _satellite(kit: Agent) -> Any:
    return kit.call("GET", "/api/status").body["channels"]["Satellite"]


def booked(kit: Agent) -> tuple[int, int]:
    """Return the credits that are certainly paid today, and the maximum that may be paid."""
    satellite = _satellite(kit)
    known = satellite["creditsToday"]
    return known, known + satellite["creditsInDoubtToday"]


def ends_with(status: str) -> Callable[[Running], None]:
    def end(gateway: Running) -> None:
        gateway.type(f"status {status}")
        gateway.expect("the next session ends")

    return end


def lose_reply(gateway: Running) -> None:
    gateway.type("lose-reply")
    gateway.expect("lost")


TROUBLES = {
    **{f"status {n}": ends_with(str(n)) for n in DOUBTFUL},
    **{f"status {n}, delivered": ends_with(f"{n} delivered") for n in DOUBTFUL},
    "no service, delivered": ends_with("32 delivered"),
    # The gateway has the message, but the modem does not know that, so the MOMSN stays.
    **{f"status {n}, unmoved": ends_with(f"{n} delivered unmoved") for n in [0, *DOUBTFUL]},
}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_credits_in_doubt_cover_cost_at_gateway(trouble: str, tmp_path: Path) -> None:
    with sky(tmp_path, latency=0) as gateway, agent(tmp_path) as kit:
        TROUBLES[trouble](gateway)
        answer = kit.post("in doubt")
        assert answer.body["status"] == "Delivered"
        assert kit.post("after it").body["status"] == "Delivered"
        known, most = booked(kit)
        # The gateway's output and the session's answer arrive over different pipes.
        until(lambda: counted(gateway) >= known)
        assert 2 <= known <= counted(gateway) <= most <= 3


@pytest.mark.parametrize("emptied", [False, True], ids=["modem continues", "modem loses power"])
def test_session_before_power_cut_is_booked(emptied: bool, tmp_path: Path) -> None:
    """If the modem also lost its buffer, it is unknown if the message left. `show` reports the
    second copy, and its possible cost counts against the budget.
    """
    with sky(tmp_path, latency=0) as gateway:
        with agent(tmp_path) as kit:
            lose_reply(gateway)
            id_ = kit.call("POST", "/api/package/async", {"message": {"content": "x"}}).body["id"]
            until(lambda: counted(gateway) == 1)
            kit.kill()
        if emptied:
            gateway.type("brownout")
            gateway.expect("lost power")
        with agent(tmp_path, {"satellite-credits-per-day": "3"}) as kit:
            until(lambda: kit.call("GET", f"/api/package/{id_}").body["status"] == "Delivered")
            known, most = booked(kit)
            assert known == 1 <= counted(gateway) == most == 1 + emptied
            story = kit.call("GET", f"/api/package/{id_}").body["history"]
            again = [line["detail"] for line in story if line["event"] == "goes again"]
            detail = "unknown whether the earlier copy was sent; it may have cost 1 credit"
            assert again == [detail] * emptied


def test_mail_without_credits_to_fetch_is_reported(tmp_path: Path) -> None:
    settings = {"satellite-credits-per-day": "2", "satellite-sos-reserve": "0"}
    with sky(tmp_path, latency=0) as gateway:
        for text in ("fetched", "second", "third"):
            gateway.type(f"mt {text}")
        with agent(tmp_path, settings) as kit:
            kit.post("fetches the first with what the day has")
            reason = "2 messages at the gateway, but no credits are left today to fetch more"
            until(lambda: reason in _satellite(kit)["reason"])
