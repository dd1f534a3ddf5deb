"""`POST` and `DELETE /api/check-in`: ask the hub to raise an alarm if the kit sends nothing for
some time.
"""

from __future__ import annotations

from fieldagent.agent.assembly import Parts
from fieldagent.agent.outbound.check_in import make_request
from fieldagent.agent.outbound.standing import PackageState
from fieldagent.http.guard import get_required_body
from fieldagent.http.message import Request
from fieldagent.http.problem import Problem
from fieldagent.package.reading import (
    Fault,
    InvalidPackage,
    WrongValue,
    read_check_in,
)
from fieldagent.package.strict_json import load_document


async def begin_check_in(parts: Parts, request: Request) -> PackageState:
    """Ask the hub to raise an alarm if the kit sends nothing for the number of seconds in the
    request's body. Raises Problem if the body is invalid.
    """
    return await _ask(parts, _read_deadline(get_required_body(request)))


async def end_check_in(parts: Parts) -> PackageState:
    """Ask the hub to end the check-in."""
    return await _ask(parts, None)


async def _ask(parts: Parts, limit_s: int | None) -> PackageState:
    package = make_request(limit_s, frozenset(parts.queues))
    if package is None:
        detail = "no channel leads to the hub: set hub-address or satellite-port and restart"
        raise Problem(409, detail=detail)
    return await parts.intake.accept(package)


def _read_deadline(body: bytes) -> int:
    """Return the seconds in the body. Raises NotJson if the body is not JSON, and InvalidPackage if
    the seconds are missing or invalid.
    """
    document = load_document(body)
    if not isinstance(document, dict):
        raise InvalidPackage([Fault('must be an object such as {"within": 14400}', "")])
    faults = [
        Fault("is not a known member; known is within", f"/{name[:80]}")
        for name in document
        if name != "within"
    ]
    try:
        if "within" not in document:
            raise WrongValue("is required")
        within = read_check_in(document["within"])
    except WrongValue as wrong:
        faults.append(Fault(str(wrong), "/within"))
    if faults:
        raise InvalidPackage(faults)
    return within
