"""API that adds and changes devices. Secrets are shown only once."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from fieldagent.http.message import Request, Response, make_json_response
from fieldagent.http.problem import Problem
from fieldagent.http.query import refuse_others
from fieldagent.http.routes import Route
from fieldagent.hub.access import directory, imei_claims, imeis, revocation, secret
from fieldagent.hub.access.bodies import (
    make_choice_reader,
    make_conflict,
    make_integer_reader,
    make_line_reader,
    make_not_found,
    make_pattern_reader,
    read_body,
    read_flag,
    read_id,
    read_imei,
    read_user,
)
from fieldagent.hub.access.caller import Caller
from fieldagent.hub.access.subject import Subject
from fieldagent.hub.administration.acts import AdministrationContext
from fieldagent.hub.administration.deletion import delete_subject
from fieldagent.hub.api import reading
from fieldagent.hub.field import check_in, dead_letters, kept_letters
from fieldagent.hub.field.check_in import Rule
from fieldagent.hub.field.mobile_originated import MobileOriginatedReceiver
from fieldagent.hub.store.contract import Db
from fieldagent.package.reading import INT32, Field
from fieldagent.system.wording import sentence

CREDITS_MAX = INT32[-1]
_TIME = make_pattern_reader(re.compile("([01][0-9]|2[0-3]):[0-5][0-9]"), "a time such as 18:00")


def _read_minute(value: Any) -> int:
    """Return the minute of the UTC day."""
    hour, minute = _TIME(value).split(":")
    return int(hour) * 60 + int(minute)


NEW_DEVICE_FIELDS = {
    "name": Field(make_line_reader(), "name", required=True),
    "userId": Field(read_user, "member", required=True),
    "imei": Field(read_imei, "imei"),
    "tagged": Field(read_flag, "tagged"),
    "relay": Field(read_flag, "relay"),
    "creditsPerDay": Field(make_integer_reader(0, CREDITS_MAX), "credits_per_day"),
    "sosReserve": Field(make_integer_reader(0, CREDITS_MAX), "sos_reserve"),
    "checkInEvery": Field(make_integer_reader(300, 366 * 86_400), "every"),
    "checkInBy": Field(_read_minute, "by_minute"),
}
CHANGE = {
    "name": Field(make_line_reader(), "name"),
    "imei": Field(read_imei, "imei"),
    "relay": Field(read_flag, "relay"),
    "disabled": Field(read_flag, "disabled"),
    "revoked": Field(read_flag, "revoked"),
    "why": Field(make_line_reader(revocation.REASON_MAX), "why"),
}
SATELLITE_KEY = {
    "satelliteKey": Field(
        make_pattern_reader(re.compile("[0-9A-Fa-f]{64}"), "64 hexadecimal digits"), "satellite_key"
    )
}


class DevicesApi:
    def __init__(
        self,
        acts: AdministrationContext,
        mobile_originated: MobileOriginatedReceiver,
        operators: Collection[str],
    ) -> None:
        self._acts = acts
        self._mobile_originated = mobile_originated
        self._new = {
            **NEW_DEVICE_FIELDS,
            "operator": Field(make_choice_reader(operators), "operator"),
        }

    def make_routes(self) -> list[Route]:
        """Return the routes that change devices. Only administrators can use them. `ReadApi` lists
        devices.
        """
        route = self._acts.route
        return [
            route("POST", "/api/devices", self.add),
            route("PATCH", "/api/devices/{id}", self.change),
            route("DELETE", "/api/devices/{id}", self.remove),
            route("POST", "/api/devices/{id}/token", self.make_token),
            route("POST", "/api/devices/{id}/key", self.set_satellite_key),
            route("DELETE", "/api/devices/{id}/key", self.remove_key),
        ]

    async def add(self, request: Request, caller: Caller) -> Response:
        """Add a device, and respond with status 201, its link token and, on request, its satellite
        key. Both secrets are shown only once. Raises Problem 409 if the user, the name or the IMEI
        cannot be used.
        """
        refuse_others(request, ())
        body = read_body(request, self._new)
        air_key = secret.make_air_key() if body.pop("tagged", False) else None
        member = body.pop("member")
        rule = Rule(body.pop("every", None), body.pop("by_minute", None))
        if None not in rule[:2]:
            conflict_text = "replaces checkInEvery: set only one of the two"
            raise Problem(
                422,
                sentence("checkInBy {what}", what=conflict_text),
                errors=[(conflict_text, "/checkInBy")],
            )
        new = directory.NewDevice(air_key=air_key, **body)

        def store_device(db: Db, now: float) -> dict[str, Any]:
            if not directory.is_member(db, caller.workspace, member):
                raise make_conflict("is not a user of this workspace", "userId")
            id_, token = directory.add_device(
                db, caller.workspace, member, new, now=now, actor=str(caller.member)
            )
            if rule != Rule():
                check_in.begin_rule(db, id_, rule, now=now)
            answer: dict[str, Any] = {"id": id_, "hubToken": token}
            if air_key is not None:
                answer["satelliteKey"] = air_key.hex()
            if new.imei and imei_claims.find_holder(db, new.imei, id_):
                answer["contested"] = imei_claims.CLAIMS
            return {**answer, "deadLettersTaken": self._accept_letters(db, id_)}

        return make_json_response(await self._acts.carry_out(caller, store_device), 201)

    async def change(self, request: Request, id: str, caller: Caller) -> Response:  # noqa: A002
        """Change everything that the body contains, or nothing. Return the device, and the number
        of dead letters that the hub could use after the change. Raises Problem 404, 409, 422.
        """
        refuse_others(request, ())
        body = read_body(request, CHANGE)

        def store_changes(db: Db, now: float) -> dict[str, Any]:
            device, actor = find_device(db, caller, id), str(caller.member)
            holders = [device]
            if "name" in body:
                directory.rename_device(db, device, body["name"], now=now, actor=actor)
            if "imei" in body:
                imeis.set_imei(db, device, body["imei"], now=now, actor=actor)
            if "relay" in body:
                directory.set_relay(db, device, body["relay"], now=now, actor=actor)
            if "disabled" in body:
                disabled_at = now if body["disabled"] else None
                directory.set_disabled(db, "device", device, disabled_at, now=now, actor=actor)
            if body.get("revoked"):
                revocation.revoke(db, device, body.get("why", ""), now=now, actor=actor)
            elif "revoked" in body:
                revocation.restore(db, device, now=now, actor=actor)
                # Other devices may have relayed items of this device.
                holders = dead_letters.list_devices_with_letters(db, caller.workspace)
            accepted_count = kept_letters.accept_letters(db, self._mobile_originated, holders)
            (shown_device,), _ = reading.list_devices(db, caller, device + 1, 1, now)
            return {**shown_device, "deadLettersTaken": accepted_count}

        return make_json_response(await self._acts.carry_out(caller, store_changes))

    async def remove(self, request: Request, id: str, caller: Caller) -> Response:  # noqa: A002
        """Delete a device permanently, with everything that waits for the device. Items that the
        device sent remain.
        """
        refuse_others(request, ())

        def find(db: Db, now: float) -> Subject:
            return Subject("device", find_device(db, caller, id), "")

        await delete_subject(self._acts, caller, find)
        return Response(204)

    async def make_token(self, request: Request, id: str, caller: Caller) -> Response:  # noqa: A002
        """Return a new link token, which is shown only once. The old token becomes invalid. Raises
        Problem 404 if the workspace does not have the device.
        """
        refuse_others(request, ())

        def store_token(db: Db, now: float) -> str:
            device = find_device(db, caller, id)
            return directory.make_link_token(db, device, now=now, actor=str(caller.member))

        return make_json_response({"hubToken": await self._acts.carry_out(caller, store_token)})

    async def set_satellite_key(self, request: Request, id: str, caller: Caller) -> Response:  # noqa: A002
        """Set the satellite key in the body, or a new satellite key if the body contains none."""
        refuse_others(request, ())
        text = read_body(request, SATELLITE_KEY).get("satellite_key") if request.body else None
        key = secret.make_air_key() if text is None else bytes.fromhex(text)
        accepted_count = await self._set_key(caller, id, key)
        shown_key = {"satelliteKey": key.hex()} if text is None else {}
        return make_json_response({**shown_key, "deadLettersTaken": accepted_count})

    async def remove_key(self, request: Request, id: str, caller: Caller) -> Response:  # noqa: A002
        """Remove the satellite key of a device. The hub then accepts the device's messages without
        a tag.
        """
        refuse_others(request, ())
        await self._set_key(caller, id, None)
        return Response(204)

    async def _set_key(self, caller: Caller, id_: str, key: bytes | None) -> int:
        def store_key(db: Db, now: float) -> int:
            device = find_device(db, caller, id_)
            directory.set_air_key(db, device, key, now=now, actor=str(caller.member))
            return self._accept_letters(db, device)

        return await self._acts.carry_out(caller, store_key)

    def _accept_letters(self, db: Db, device: int) -> int:
        return kept_letters.accept_letters(db, self._mobile_originated, [device])


def find_device(db: Db, caller: Caller, text: str) -> int:
    """Return the id of the device. Raises Problem if the device is not in the caller's
    workspace.
    """
    device = read_id(text)
    if not reading.is_device_known(db, caller, device):
        raise make_not_found("device", text)
    return device
