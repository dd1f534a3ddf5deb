"""The kit's own network as a code that phones join by, of what hostapd is told. Pure."""

from __future__ import annotations

import re

from fieldagent.system.lazy_named_tuple import NamedTuple

_SPECIAL = re.compile(r'([\\;,:"])')


class NoNetwork(Exception):
    """The text says what is missing."""


class WifiNetwork(NamedTuple):
    name: str
    secret: str | None
    """None where the network is open."""

    def code(self) -> str:
        """Return what cameras read (https://github.com/zxing/zxing/wiki/Barcode-Contents)."""
        secret = "" if self.secret is None else f"P:{_marked(self.secret)};"
        kind = "nopass" if self.secret is None else "WPA"
        return f"WIFI:T:{kind};S:{_marked(self.name)};{secret};"


def network_of(text: str) -> WifiNetwork:
    """Return the network of the text of hostapd.conf. Raises NoNetwork."""
    settings: dict[str, str] = {}
    for line in text.splitlines():
        name, is_set, value = line.partition("=")
        if is_set and not name.startswith("#"):
            # Of several networks the first.
            settings.setdefault(name.strip(), value)
    if not settings.get("ssid"):
        raise NoNetwork("it has no line ssid=")
    if settings.get("wpa", "0") == "0":
        return WifiNetwork(settings["ssid"], None)
    # That of SAE may go on with |vlanid= and the like.
    secret = settings.get("wpa_passphrase") or settings.get("sae_password", "").partition("|")[0]
    if not secret:
        raise NoNetwork("it has neither wpa_passphrase= nor sae_password=")
    return WifiNetwork(settings["ssid"], secret)


def _marked(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)
