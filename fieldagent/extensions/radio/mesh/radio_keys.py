"""The group's radio keys on this kit: the keys in the settings, or the keys that the hub has set
later, step by step.

The hub's keys are in a file of the state directory. After a power cut, the file has either its old
or its new content. It contains a digest of the keys in the settings. If a person sets another
`radio-key` in the settings, the digest differs, and the file is ignored.
"""

from __future__ import annotations

import hashlib
import json
import logging
from pathlib import Path
from typing import Any

from fieldagent.extensions.radio.mesh.key_change import KeyStep
from fieldagent.extensions.radio.settings import RadioSettings
from fieldagent.system.folder import replace_file
from fieldagent.system.lazy_dataclass import dataclass

log = logging.getLogger(__name__)

FILE = "radio-keys.json"
ACCEPTED_KEYS_MAX = 4
"""Maximum number of accepted keys. The maximum is more than two because a change of keys may begin
before the previous change has ended."""


@dataclass(frozen=True, slots=True)
class RadioKeys:
    """Radio keys of 32 bytes. The kit sends with the first of `keys`, and accepts all of them."""

    keys: tuple[bytes, ...]
    step: KeyStep
    dropped: tuple[bytes, ...] = ()
    """Old keys, which are no longer accepted. A kit that still sends with an old key was away
    during the change, or is stolen."""


def read_radio_keys(settings: RadioSettings) -> RadioKeys:
    """Return the keys in the settings `radio-key` and `radio-key-next`, with the step of the change
    that these settings mean.
    """
    step = KeyStep.from_keys(settings.key, settings.key_next)
    return RadioKeys((*settings.key, *settings.key_next), step)


def make_keys_after(now: RadioKeys, step: int, new_key: bytes) -> RadioKeys:
    """Return the keys after `step` (1 to 3) of the change to `new_key`. `now` contains the present
    keys, at any step. A repeated step or an earlier step has no effect.
    """
    others = tuple(key for key in now.keys if key != new_key)
    dropped = tuple(key for key in now.dropped if key != new_key)
    if step == 3:
        return RadioKeys((new_key,), KeyStep.NONE, (*dropped, *others)[-ACCEPTED_KEYS_MAX:])
    if now.keys[:1] == (new_key,):
        return now
    if step == 2:
        return RadioKeys((new_key, *others[: ACCEPTED_KEYS_MAX - 1]), KeyStep.SENDS_NEW, dropped)
    older_keys = (*others[:1], *others[1:][-(ACCEPTED_KEYS_MAX - 2) :], new_key)
    return RadioKeys(older_keys, KeyStep.SENDS_OLD, dropped)


def load(settings: RadioSettings, folder: Path) -> RadioKeys:
    """Return the keys that are valid now. `folder` is the agent's state directory. A file that
    cannot be read is logged and ignored.
    """
    key_path = folder / FILE
    try:
        content = _read(key_path.read_bytes())
    except FileNotFoundError:
        return read_radio_keys(settings)
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.error("%s cannot be read, so radio-key of the settings is used: %s", key_path, error)
        return read_radio_keys(settings)
    made_of, keys = content
    return keys if made_of == _digest(settings) else read_radio_keys(settings)


def store(settings: RadioSettings, folder: Path, keys: RadioKeys) -> None:
    """Store the keys that are valid from now on. Raises OSError."""
    document = {
        "settings": _digest(settings),
        "keys": [key.hex() for key in keys.keys],
        "step": int(keys.step),
        "dropped": [key.hex() for key in keys.dropped],
    }
    replace_file(folder / FILE, json.dumps(document).encode())


def _read(content: bytes) -> tuple[str, RadioKeys]:
    document: dict[str, Any] = json.loads(content)
    keys, dropped = (tuple(map(_derive_key, document[name])) for name in ("keys", "dropped"))
    if not keys:
        raise ValueError("it has no key")
    return str(document["settings"]), RadioKeys(keys, KeyStep(document["step"]), dropped)


def _derive_key(digits: str) -> bytes:
    key = bytes.fromhex(digits)
    if len(key) != 32:
        raise ValueError("a key is 32 bytes long")
    return key


def _digest(settings: RadioSettings) -> str:
    """Return a digest of the keys in the settings. It differs if the keys change, but does not
    reveal them.
    """
    keys = b"".join(settings.key) + b"|" + b"".join(settings.key_next)
    return hashlib.sha256(b"fieldagent radio-key" + keys).hexdigest()
