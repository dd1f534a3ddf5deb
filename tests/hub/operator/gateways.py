"""Simulated gateways of the satellite operators, for the contract test: they accept or refuse MT
messages, do not answer, and deliver MO messages.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import trio

from fieldagent.extensions import NAMES
from fieldagent.http.listeners import get_port
from fieldagent.http.message import Response
from fieldagent.http.routes import make_router
from fieldagent.hub.operator import directip, rockblock
from fieldagent.hub.operator.contract import (
    HandedOver,
    MoListener,
    OperatorHost,
    OperatorKind,
    Own,
)
from tests.http.serving import anybody
from tests.hub import test_directip, test_rockblock
from tests.wire.test_rockblock import FORM, KEY_PEM, claims, token

EXAMPLE = Path(__file__).parents[3] / "examples/folder_operator.py"


class Gateway(Protocol):
    kind: OperatorKind
    own: Own
    address: str
    """Name of the setting with its address."""
    imei: str
    """IMEI of the modem that it knows."""
    body: bytes
    """Body of the MO message that `bring` delivers."""
    codes: Mapping[Any, Any]
    """Codes for `refuse`, and the failure that each one means."""

    def taken(self) -> list[bytes]:
        """Return the accepted MT messages, the oldest first."""

    def refuse(self, code: Any) -> None:
        """Answer the next call with this code."""

    def fall_silent(self) -> bool:
        """Cut the next call before an answer. Return False if the gateway cannot do that."""

    async def bring(self, host: OperatorHost) -> bool:
        """Bring one MO message. Return True if the hub confirmed it."""


class DirectIpGateway:
    kind = directip.KIND
    address = "directip-gateway"
    imei = test_directip.IMEI
    body = b"body"
    codes: Mapping[Any, Any] = directip.DIRECTIP
    own: Own

    def __init__(self, there: test_directip.Gateway) -> None:
        self._there = there
        self.own = {**settings_of(self.kind), "directip-gateway": ("127.0.0.1", there.port)}

    def taken(self) -> list[bytes]:
        first = self._there.queue.get_first()
        return [] if first is None else [first]

    def refuse(self, code: Any) -> None:
        self._there.side.faults.status = code

    def fall_silent(self) -> bool:
        self._there.side.faults.cut = 1
        return True

    async def bring(self, host: OperatorHost) -> bool:
        listener = self.kind.listen({**self.own, "directip-listen": ("127.0.0.1", 0)})
        assert listener is not None
        bring = test_directip.Hub(get_port(listener.sockets))
        async with serving(listener, host):
            return await bring(test_directip.mo(self.body))


class RockBlockGateway:
    kind = rockblock.KIND
    address = "rockblock-address"
    imei = test_rockblock.IMEI
    body = b"Hello"
    codes: Mapping[Any, Any] = rockblock.ROCKBLOCK
    own: Own

    def __init__(self, url: str, service: test_rockblock.Service, key: Path) -> None:
        self._service = service
        self.own = {
            **settings_of(self.kind),
            "rockblock-address": f"{url}/MT",
            "rockblock-username": "me",
            "rockblock-password": "secret",
            "rockblock-public-key": key,
        }

    def taken(self) -> list[bytes]:
        return [bytes.fromhex(form["data"][0]) for form in self._service.forms]

    def refuse(self, code: Any) -> None:
        self._service.answer = Response(200, b"FAILED,%d,Text" % code, "text/plain")

    def fall_silent(self) -> bool:
        self._service.answer = Response(502, b"<html>Bad gateway</html>", "text/html")
        return True

    async def bring(self, host: OperatorHost) -> bool:
        async with test_rockblock.serving(make_router(self.kind.routes(self.own, host))) as url:
            signed = {**FORM, "JWT": token(claims())}
            return (await test_rockblock.bring(url, signed)).status == 200


class Shelf:
    """Implements `contract.Book` in memory: the values that the hub stores for an operator."""

    def __init__(self) -> None:
        self.known: dict[str, tuple[str, str]] = {}
        self.ids: set[str] = set()
        self.until: float | None = None
        self.handed: dict[str, str] = {}
        self.left: Mapping[str, float] = {}

    async def record_balance(self, left: Mapping[str, float], *, below: float) -> None:
        self.left = left

    async def store_modem(self, imei: str, kind: str, address: str) -> None:
        self.known[imei] = (kind, address)

    async def find_imei(self, address: str) -> str | None:
        return next((imei for imei, known in self.known.items() if known[1] == address), None)

    async def has_message(self, id_: str) -> bool:
        return id_ in self.ids

    async def record_message(self, id_: str) -> None:
        self.ids.add(id_)

    async def read_fetched(self) -> float | None:
        return self.until

    async def record_fetched_until(self, until: float) -> None:
        self.until = until

    async def list_under_way(self) -> list[HandedOver]:
        return [HandedOver(id_, state) for id_, state in self.handed.items()]

    async def record_state(self, id_: str, state: str, *, is_final: bool) -> None:
        self.handed[id_] = state


class FolderGateway:
    address = "folder-path"
    imei = "300234010000001"
    body = b"by hand"
    codes: Mapping[Any, Any] = {}
    own: Own

    def __init__(self, kind: OperatorKind, path: Path) -> None:
        self.kind = kind
        self._path = path
        self.own = {"folder-path": path}

    def taken(self) -> list[bytes]:
        return [file.read_bytes() for file in sorted(self._path.glob("*.mt"))]

    def refuse(self, code: Any) -> None:
        raise AssertionError("its only failure is the disk's")

    def fall_silent(self) -> bool:
        return False

    async def bring(self, host: OperatorHost) -> bool:
        file = self._path / f"{self.imei}-1.mo"
        file.write_bytes(self.body)
        listener = self.kind.listen(self.own)
        assert listener is not None
        async with serving(listener, host):
            with trio.move_on_after(3):
                while file.exists():
                    await trio.sleep(0.05)
        return not file.exists()


@asynccontextmanager
async def serving(listener: MoListener, host: OperatorHost) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(listener.serve, listener.sockets, host)
        yield
        nursery.cancel_scope.cancel()


def settings_of(kind: OperatorKind) -> dict[str, Any]:
    return {key.name: key.default for key in kind.keys}


@asynccontextmanager
async def directip_gateway(home: Path) -> AsyncIterator[Gateway]:
    async with test_directip.gateway() as there:
        yield DirectIpGateway(there)


@asynccontextmanager
async def rockblock_gateway(home: Path) -> AsyncIterator[Gateway]:
    service = test_rockblock.Service(b"OK,4711")
    async with test_rockblock.serving(anybody(service.handle)) as url:
        key = home / "rockblock.pem"
        key.write_text(KEY_PEM)
        yield RockBlockGateway(url, service, key)


@asynccontextmanager
async def folder_gateway(home: Path) -> AsyncIterator[Gateway]:
    yield FolderGateway(example(), home)


def example() -> OperatorKind:
    """Load the operator of docs/how-to/add-an-operator.md."""
    spec = importlib.util.spec_from_file_location("folder_operator", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    kind: OperatorKind = module.KIND
    return kind


MakeGateway: TypeAlias = "Callable[[Path], AbstractAsyncContextManager[Gateway]]"
_CORE: dict[str, MakeGateway] = {
    "directip": directip_gateway,
    "rockblock": rockblock_gateway,
    "folder": folder_gateway,
}


def gateways() -> dict[str, MakeGateway]:
    """Return the gateways by operator, with those of each extension that has a `gateways` module.
    An operator without a gateway fails its tests.
    """
    known = dict(_CORE)
    for name in NAMES:
        if importlib.util.find_spec(f"tests.extensions.{name}.gateways") is not None:
            known |= importlib.import_module(f"tests.extensions.{name}.gateways").GATEWAYS
    return known
