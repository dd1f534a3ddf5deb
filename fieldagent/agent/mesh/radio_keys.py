"""The group's radio-keys as this kit has them: those of its settings, or what the hub has made of
them since, a step at a time.

The hub's are in a file of the state directory, which a power cut leaves as it was or as it is to
be. It says of which settings it was made: who writes another radio-key there takes over from the
hub, and the file counts no more.
"""

from __future__ import annotations

import hashlib
import json
import logging
from typing import Any

from fieldagent.agent.mesh.key_change import KeyStep
from fieldagent.agent.settings import Settings
from fieldagent.system.folder import put_file
from fieldagent.system.lazy_dataclass import dataclass

log = logging.getLogger(__name__)

FILE = "radio-keys.json"
HEARD_MAX = 4
"""Keys at most: of changes that began before another had ended."""


@dataclass(frozen=True, slots=True)
class RadioKeys:
    """32-byte keys. The first of `keys` is sent with, all are heard."""

    keys: tuple[bytes, ...]
    step: KeyStep
    dropped: tuple[bytes, ...] = ()
    """Who sends with one of these has not come along: a thief, or a kit that was away."""


def of_settings(settings: Settings) -> RadioKeys:
    """Return what `radio-key` and `radio-key-next` say."""
    step = KeyStep.of(settings.radio_key, settings.radio_key_next)
    return RadioKeys((*settings.radio_key, *settings.radio_key_next), step)


def after(now: RadioKeys, step: int, new: bytes) -> RadioKeys:
    """Return them at `step` (1 to 3) of the change to `new`, from whatever step they are at: none
    is taken twice, and none back."""
    others = tuple(key for key in now.keys if key != new)
    dropped = tuple(key for key in now.dropped if key != new)
    if step == 3:
        return RadioKeys((new,), KeyStep.NONE, (*dropped, *others)[-HEARD_MAX:])
    if now.keys[:1] == (new,):
        return now
    if step == 2:
        return RadioKeys((new, *others[: HEARD_MAX - 1]), KeyStep.SENDS_NEW, dropped)
    heard = (*others[:1], *others[1:][-(HEARD_MAX - 2) :], new)
    return RadioKeys(heard, KeyStep.SENDS_OLD, dropped)


def load(settings: Settings) -> RadioKeys:
    """Return those that count now. A file that cannot be read is told in the log, and counts for
    nothing."""
    place = settings.state_directory / FILE
    try:
        content = _read(place.read_bytes())
    except FileNotFoundError:
        return of_settings(settings)
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.error("%s cannot be read, radio-key of the settings counts: %s", place, error)
        return of_settings(settings)
    made_of, keys = content
    return keys if made_of == _digest(settings) else of_settings(settings)


def store(settings: Settings, keys: RadioKeys) -> None:
    """Have these count from now on. Raises OSError."""
    said = {
        "settings": _digest(settings),
        "keys": [key.hex() for key in keys.keys],
        "step": int(keys.step),
        "dropped": [key.hex() for key in keys.dropped],
    }
    put_file(settings.state_directory / FILE, json.dumps(said).encode())


def _read(content: bytes) -> tuple[str, RadioKeys]:
    said: dict[str, Any] = json.loads(content)
    keys, dropped = (tuple(map(_key, said[name])) for name in ("keys", "dropped"))
    if not keys:
        raise ValueError("it holds no key")
    return str(said["settings"]), RadioKeys(keys, KeyStep(said["step"]), dropped)


def _key(digits: str) -> bytes:
    key = bytes.fromhex(digits)
    if len(key) != 32:
        raise ValueError("a key is 32 bytes long")
    return key


def _digest(settings: Settings) -> str:
    """It tells other settings, and no key."""
    keys = b"".join(settings.radio_key) + b"|" + b"".join(settings.radio_key_next)
    return hashlib.sha256(b"fieldagent radio-key" + keys).hexdigest()
