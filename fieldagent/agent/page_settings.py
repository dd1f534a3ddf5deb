"""Settings of the kit's page: its map, the networks that may use it, and its canned messages."""

from __future__ import annotations

from fieldagent.system.properties import (
    Key,
    WrongProperty,
    make_integer_reader,
    read_absolute_path,
    read_networks,
)

PAGE_PORT = 9092
CANNED = "All well; On our way; Delayed, all well; Arrived; Please call"
CANNED_MOST, CANNED_CHARACTERS = 20, 160


def _read_canned(value: str) -> tuple[str, ...]:
    """Parse `none`, or texts separated by semicolons. Raises WrongProperty for any other value."""
    texts = () if value == "none" else tuple(each.strip() for each in value.split(";"))
    fits = all(0 < len(each) <= CANNED_CHARACTERS for each in texts)
    if not fits or len(texts) > CANNED_MOST:
        raise WrongProperty(
            f"must be none, or at most {CANNED_MOST} texts of 1 to {CANNED_CHARACTERS}"
            " characters, separated by semicolons"
        )
    return texts


KEYS = (
    Key(
        "map-file",
        read_absolute_path,
        None,
        "PMTiles or MBTiles file for the map of the page, raster or vector"
        " (docs/how-to/maps.md); without it, coastlines and a grid",
    ),
    Key(
        "page-listen",
        read_networks,
        (),
        "networks that may open the page and use the API, with TLS and the passphrase of"
        " `fieldagent page --set`; without it, only this machine",
    ),
    Key(
        "page-port",
        make_integer_reader(1, 65535, "port"),
        PAGE_PORT,
        f"port of the page for the network ({PAGE_PORT})",
    ),
    Key(
        "page-portal-port",
        make_integer_reader(1, 65535, "port"),
        None,
        "HTTP port that shows phones on the kit's own network the address of the "
        "page (docs/how-to/access-point.md)",
    ),
    Key(
        "canned-messages",
        _read_canned,
        _read_canned(CANNED),
        f"texts that the page sends with two presses, separated by semicolons, or none ({CANNED})",
    ),
)
