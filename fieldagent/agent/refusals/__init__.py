"""Converts exceptions of the lower layers, which refuse a request, into the Problem that the caller
receives.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from fieldagent.agent.journal.directory import NoSuchPerson
from fieldagent.agent.outbound.ending import AgentStopping
from fieldagent.agent.outbound.intake import Conflict, KeyReused
from fieldagent.agent.outbound.package_state import UnknownPackage
from fieldagent.http.problem import Problem
from fieldagent.package.reading import Fault, InvalidPackage, number_of_faults
from fieldagent.package.strict_json import NotJson
from fieldagent.store.group import NotOnDisk, StoreFailed, StoreFull
from fieldagent.system.wording import sentence

log = logging.getLogger(__name__)


def describe_unread_member(faults: Sequence[Fault]) -> dict[str, Any]:
    """Log the unreadable parts of an SOS. Return the member of the response that lists them, or an
    empty dict if there are no faults.
    """
    if not faults:
        return {}
    unread_members = [{"detail": str(fault.detail), "pointer": fault.pointer} for fault in faults]
    reason_text = "; ".join(f"{each['pointer']} {each['detail']}" for each in unread_members)
    log.warning("an SOS is accepted without its unreadable part: %s", reason_text[:500])
    return {"unread": unread_members}


@contextmanager
def convert_refusals() -> Iterator[None]:
    """If the block raises an exception that refuses the request, raise the matching Problem
    instead.
    """
    try:
        yield
    except NotJson as error:
        raise Problem(400, detail=str(error)) from None
    except InvalidPackage as error:
        faults = [(fault.detail, fault.pointer) for fault in error.faults]
        detail = sentence(
            "nothing was queued: the Package has {faults}", faults=number_of_faults(faults)
        )
        members = {"code": "no-such-person"} if isinstance(error, NoSuchPerson) else None
        raise Problem(422, detail=detail, errors=faults, members=members) from None
    except Conflict as conflict:
        # The IETF draft on Idempotency-Key, section 2.7, defines this status.
        status = 422 if isinstance(conflict, KeyReused) else 409
        raise Problem(status, detail=str(conflict)) from None
    except UnknownPackage as unknown:
        raise Problem(404, detail=str(unknown)) from None
    except AgentStopping as stopped:
        raise Problem(503, detail=str(stopped), headers=(("Retry-After", "10"),)) from None
    except NotOnDisk as away:
        detail = sentence("only an SOS is accepted, and is sent from memory: {away}", away=away)
        raise Problem(507, detail=detail) from None
    except StoreFull as full:
        detail = sentence(
            "nothing was accepted: {full}; free some space and post it again", full=full
        )
        raise Problem(507, detail=detail) from None
    except StoreFailed as failed:
        detail = sentence(
            "the agent accepts nothing more: {failed}; check the disk and restart the agent",
            failed=failed,
        )
        raise Problem(503, detail=detail, headers=(("Retry-After", "30"),)) from None
