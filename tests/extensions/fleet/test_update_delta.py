"""A kit uses the signed delta next to a program, or else the whole program."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fieldagent.extensions.fleet import update
from fieldagent.extensions.fleet.fetching import UpdateRefused
from fieldagent.extensions.fleet.trial import Place
from fieldagent.system.program_delta import get_contents, make_delta, make_delta_name, make_zip
from tests.machine import tool
from tests.signer import Signer

CODE = b"print('a line')\n" * 400


def program(version: str) -> bytes:
    about = f'__version__ = "{version}"\n'.encode()
    return make_zip({"fieldagent/__init__.py": about, "__main__.py": CODE})


class Served:
    """Content of a stick: 2.0.0, and its delta from 1.0.0, which the kit runs."""

    def __init__(self, folder: Path) -> None:
        tool("openssl", "openssl")
        self.folder, self.signer = folder, Signer(folder / "keys")
        self.key = folder / "update.pub"
        self.key.write_text(self.signer.public)
        self.now, self.next = folder / "now.pyz", folder / "next.pyz"
        self.now.write_bytes(program("1.0.0"))
        self.next.write_bytes(program("2.0.0"))
        self.signer.release(self.next)
        self.delta = self.signer.delta(self.next, self.now)

    def signed_delta(self, body: bytes, *how: str) -> None:
        self.delta.write_bytes(body)
        text = "fieldagent delta 2.0.0, signed 2026-01-01, expires 9999-01-01"
        self.signer.sign(self.delta, "-t", text, *how)

    def receive_message(self) -> tuple[bytes, str]:
        place = Place(self.folder / "place")
        place.folder.mkdir(exist_ok=True)
        return update._verify_program(str(self.next), self.now.read_bytes(), self.key, place)


@pytest.fixture
def served(tmp_path: Path) -> Served:
    return Served(tmp_path)


def test_program_is_rebuilt_from_the_delta_alone(
    served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    served.next.unlink()
    assert served.receive_message() == (program("2.0.0"), "2.0.0")
    assert "a delta of" in capsys.readouterr().err


def sign_with_another_key(served: Served) -> None:
    Signer(served.folder / "others").sign(
        served.delta, "-t", "fieldagent delta 2.0.0, signed 2026-01-01, expires 9999-01-01"
    )


def expired(served: Served) -> None:
    text = "fieldagent delta 2.0.0, signed 2026-01-01, expires 2026-01-02"
    served.signer.sign(served.delta, "-t", text)


def sign_as_program(served: Served) -> None:
    text = "fieldagent program 2.0.0, signed 2026-01-01, expires 9999-01-01"
    served.signer.sign(served.delta, "-t", text)


def make_delta_from_another_program(served: Served) -> None:
    """Sign a delta with the publisher's key, but from the wrong program."""
    served.signed_delta(make_delta(get_contents(program("0.9.0")), get_contents(program("2.0.0"))))


def make_delta_to_no_program(served: Served) -> None:
    served.signed_delta(make_delta(get_contents(served.now.read_bytes()), b"no contents"))


def without_zstd(served: Served) -> None:
    """A delta from another Debian's set of packages."""


SPOILED: list[tuple[Callable[[Served], object], str]] = [
    (lambda served: served.delta.write_bytes(b"!"), "changed, or cut short"),
    (lambda served: served.delta.unlink(), "cannot be read"),
    (sign_with_another_key, "this machine trusts only"),
    (expired, "the signature expired on 2026-01-02"),
    (sign_as_program, "the signature is for a program of fieldagent, not a delta"),
    (make_delta_from_another_program, "for a different program"),
    (make_delta_to_no_program, "the result of the delta is not a program"),
    (lambda served: served.signed_delta(b"fieldagent delta 2\n" + bytes(99)), "a later version"),
    (without_zstd, "apt install zstd"),
]


@pytest.mark.parametrize(("spoil", "reason"), SPOILED, ids=[reason for _, reason in SPOILED])
def test_unusable_delta_is_reported_and_the_whole_program_fetched(
    served: Served,
    spoil: Callable[[Served], object],
    reason: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spoil(served)
    if spoil is without_zstd:
        (tools := served.folder / "tools").mkdir()
        (tools / "openssl").symlink_to(tool("openssl", "openssl"))
        monkeypatch.setenv("PATH", str(tools))
    assert served.receive_message() == (program("2.0.0"), "2.0.0")
    said = capsys.readouterr().err
    assert "the whole program is fetched, because the delta cannot be used: " in said
    assert reason in said


def test_missing_delta_is_not_reported(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (served.delta, served.delta.with_name(f"{served.delta.name}.minisig")):
        path.unlink()
    assert served.receive_message() == (program("2.0.0"), "2.0.0")
    assert "delta" not in capsys.readouterr().err


def test_delta_is_refused_as_a_program(served: Served) -> None:
    """This also holds if a person gives the address of a delta as that of a program."""
    served.next = served.delta
    with pytest.raises(UpdateRefused, match="is for a delta of fieldagent, not a program"):
        served.receive_message()


def test_publisher_and_kit_use_the_same_delta_name(served: Served) -> None:
    here = get_contents(served.now.read_bytes())
    assert str(served.delta) == make_delta_name(str(served.next), here)
