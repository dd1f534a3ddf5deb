"""Bodies of the maximum size, each made to cost the server as much as possible."""

from __future__ import annotations

SIZE = 2**20
"""Maximum bytes of a body for both servers."""


def _members(count: int) -> bytes:
    return (
        b"{"
        + b",".join(b'"m%d":1' % number for number in range(count))
        + b',"m%d":1}' % (count - 1)
    )


def _filled(before: bytes, unit: bytes, after: bytes = b"") -> bytes:
    return before + unit * ((SIZE - len(before) - len(after)) // len(unit)) + after


def _form(unit: bytes, size: int = SIZE) -> bytes:
    return unit * (size // len(unit))


FORM_SIZE = 16_384
"""Maximum bytes of a form for the hub."""
FORMS = {
    f"{name}, {size} bytes": _form(unit, size)
    for size in (FORM_SIZE, SIZE)
    for name, unit in {
        "pairs of nothing": b"=&",
        "members": b"a=1&",
        "ampersands": b"&",
        "escapes": b"%41",
        "escapes cut short": b"%",
        "plus signs": b"+",
        "a token": b"JWT=a.b.c&",
        "dots": b"JWT=....",
    }.items()
}

BODIES = {
    "40 000 members, the last one twice": _members(40_000),
    "80 000 members, the last one twice": _members(80_000),
    "90 000 members, none of them known": _members(90_000)[:-12] + b"}",
    "arrays in an array": _filled(b"[", b"[],"),
    "arrays in arrays": _filled(b"", b"["),
    "objects in objects": _filled(b"", b'{"":'),
    "empty strings": _filled(b"", b'""'),
    "quotes behind backslashes": _filled(b"", b'\\"'),
    "a string without an end": _filled(b'"', b"a"),
    "backslashes without an end": _filled(b'"', b"\\\\"),
    "an integer": _filled(b'{"id":', b"9", b"}"),
    "a fraction": _filled(b'{"location":{"longitude":1,"latitude":0.', b"3", b"}}"),
    "a power": _filled(b'{"location":{"longitude":1,"latitude":', b"3", b"e-1000000}}"),
    "a decimal in a string": _filled(b'{"location":{"longitude":1,"latitude":"', b"1", b'"}}'),
    "a time": _filled(b'{"location":{"timestamp":"', b"1", b'"}}'),
    "base64": _filled(b'{"data":{"payload":"', b"A", b'"}}'),
    "padding": _filled(b'{"data":{"payload":"', b"=", b'"}}'),
    "halves of characters": _filled(b'{"message":{"content":"', b"\\ud83d", b'"}}'),
    "a name of escapes": _filled(b'{"', b"\\u0000", b'":1}'),
    "a channel of escapes": _filled(b'{"channels":["', b"\\u0000", b'"]}'),
    "a long name twice": (b'"' + b"\x7f" * (SIZE // 2 - 8) + b'":1').join([b"{", b",", b"}"]),
    "blanks": _filled(b"", b" ", b"x"),
    "lines": _filled(b"", b"\n", b"[" * 20),
    "no UTF-8": _filled(b"{", b"\xff"),
}
