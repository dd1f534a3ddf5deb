"""`python -m fieldagent`, the zipapp, and the installed command all start here."""

from __future__ import annotations

import sys

from fieldagent.cli.arguments import dispatch


def main() -> int:
    return dispatch(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
