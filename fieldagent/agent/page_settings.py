"""Settings of the kit's page: its map, the networks that may use it, and its canned messages."""

from __future__ import annotations

from fieldagent.system.properties import Key, WrongProperty, absolute_path, networks, whole

PAGE_PORT = 9092
CANNED = "All well; On our way; Delayed, all well; Arrived; Please call"
CANNED_MOST, CANNED_CHARACTERS = 20, 160


def _canned(value: str) -> tuple[str, ...]:
    """Read `none`, or texts separated by semicolons. Raises WrongProperty."""
    texts = () if value == "none" else tuple(each.strip() for each in value.split(";"))
    fits = all(0 < len(each) <= CANNED_CHARACTERS for each in texts)
    if not fits or len(texts) > CANNED_MOST:
        raise WrongProperty(
            f"must be none, or at most {CANNED_MOST} texts of 1 to {CANNED_CHARACTERS} characters,"
            " with semicolons between them"
        )
    return texts


KEYS = (
    Key(
        "map-file",
        absolute_path,
        None,
        "a PMTiles or MBTiles file that the page draws its map with, raster or vector"
        " (docs/how-to/maps.md); coastlines and a grid otherwise",
    ),
    Key(
        "page-listen",
        networks,
        (),
        "networks from which people may come to the page and the API, by TLS and with the pass"
        " phrase that `fieldagent page --set` sets; none otherwise",
    ),
    Key("page-port", whole(1, 65535, "port"), PAGE_PORT, f"port of that ({PAGE_PORT})"),
    Key(
        "page-portal-port",
        whole(1, 65535, "port"),
        None,
        "port at which phones that join the kit's own network are told, over plain HTTP, where the"
        " page is (docs/how-to/access-point.md); none otherwise",
    ),
    Key(
        "canned-messages",
        _canned,
        _canned(CANNED),
        "texts that the page sends in two presses, with semicolons between them, or none"
        f" ({CANNED})",
    ),
)
