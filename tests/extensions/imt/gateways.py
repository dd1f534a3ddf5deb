"""A simulated Cloudloop for the contract test of operators."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fieldagent.extensions.imt.hub import cloudloop
from fieldagent.http.message import Response
from fieldagent.http.routes import make_router
from fieldagent.hub.operator.contract import OperatorHost, Own
from tests.extensions.imt import test_cloudloop
from tests.hub import test_rockblock
from tests.hub.operator.gateways import Gateway, MakeGateway


class CloudloopGateway:
    kind = cloudloop.KIND
    address = "cloudloop-address"
    imei = test_cloudloop.IMEI
    body = b"Hello"
    codes: Mapping[Any, Any] = cloudloop.CLOUDLOOP
    own: Own

    def __init__(self, url: str, service: test_cloudloop.Service, home: Path) -> None:
        self._service = service
        self.own = test_cloudloop.own(home, url)

    def taken(self) -> list[bytes]:
        sent = [asked for name, asked in self._service.asked if name == "DoSendImtMessage"]
        return [base64.b64decode(asked["message"]) for asked in sent]

    def refuse(self, code: Any) -> None:
        self._service.answers["DoSendImtMessage"] = Response(code, b"", "application/json")

    def fall_silent(self) -> bool:
        self._service.answers["DoSendImtMessage"] = Response(502, b"")
        return True

    async def bring(self, host: OperatorHost) -> bool:
        async with test_rockblock.serving(make_router(self.kind.routes(self.own, host))) as url:
            return (await test_cloudloop.bring(url, test_cloudloop.lingo())).status == 200


@asynccontextmanager
async def cloudloop_gateway(home: Path) -> AsyncIterator[Gateway]:
    async with test_cloudloop.service(home) as (service, _, url):
        yield CloudloopGateway(url, service, home)


GATEWAYS: dict[str, MakeGateway] = {"cloudloop": cloudloop_gateway}
