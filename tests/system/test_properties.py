"""Valid values of a setting that names a place in a network."""

from __future__ import annotations

import pytest

from fieldagent.system.properties import WrongProperty, read_endpoint, read_url

NAMES = ["a..b", ".example.org", "x" * 64 + ".org", "."]
"""Python cannot resolve these: it raises UnicodeError."""


@pytest.mark.parametrize("name", NAMES)
def test_invalid_host_name_is_refused(name: str) -> None:
    for read, value in ((read_endpoint, f"{name}:2947"), (read_url, f"http://{name}/inbound")):
        with pytest.raises(WrongProperty):
            read(value)


@pytest.mark.parametrize("name", ["localhost", "example.org.", "my_broker", "münchen.example"])
def test_valid_host_name_is_accepted(name: str) -> None:
    assert read_endpoint(f"{name}:2947") == (name, 2947)
    assert read_url(f"https://{name}/in") == f"https://{name}/in"


def test_ip_address_is_accepted() -> None:
    assert read_endpoint("[::1]:2947") == ("::1", 2947)
    assert read_endpoint("192.0.2.1:80") == ("192.0.2.1", 80)


@pytest.mark.parametrize("value", ["http://hub example/", "https://hub.example.org/in bound"])
def test_url_with_a_space_is_refused(value: str) -> None:
    with pytest.raises(WrongProperty, match="blank"):
        read_url(value)
