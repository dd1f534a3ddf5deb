"""Makes the text of a QR code with which phones join the kit's own network, from hostapd.conf.
Pure."""

from __future__ import annotations

import re

from fieldagent.system.lazy_named_tuple import NamedTuple

_SPECIAL = re.compile(r'([\\;,:"])')


class NoNetwork(Exception):
    """Error: the text of hostapd.conf is incomplete. The message names the missing setting."""


class WifiNetwork(NamedTuple):
    name: str
    secret: str | None
    """Passphrase. None if the network is open."""

    def make_code(self) -> str:
        """Return the text of the code for cameras
        (https://github.com/zxing/zxing/wiki/Barcode-Contents).
        """
        secret = "" if self.secret is None else f"P:{_escape(self.secret)};"
        kind = "nopass" if self.secret is None else "WPA"
        return f"WIFI:T:{kind};S:{_escape(self.name)};{secret};"


def read_network(text: str) -> WifiNetwork:
    """Return the network in the text of hostapd.conf. Raises NoNetwork."""
    settings: dict[str, str] = {}
    for line in text.splitlines():
        name, is_set, value = line.partition("=")
        if is_set and not name.startswith("#"):
            # Use the first network if there are several.
            settings.setdefault(name.strip(), value)
    if not settings.get("ssid"):
        raise NoNetwork("the file has no ssid= line")
    if settings.get("wpa", "0") == "0":
        return WifiNetwork(settings["ssid"], None)
    # The password for SAE may be followed by |vlanid= and similar parts.
    secret = settings.get("wpa_passphrase") or settings.get("sae_password", "").partition("|")[0]
    if not secret:
        raise NoNetwork("the file has neither wpa_passphrase= nor sae_password=")
    return WifiNetwork(settings["ssid"], secret)


def _escape(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)
