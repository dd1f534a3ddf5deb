"""Python's first import in each process that a test starts (site(3)): it installs the guard beside
it.

pip is exempt: it downloads the parts of a build by their hashes.
"""

import sys

if "pip" not in sys.orig_argv[1:3]:
    # This folder is the first in the path. The tests' own process has the module below `tests`.
    __import__("loopback").install()

# `tests/breaking.py` changes programs in this way, and Debian has its own module.
# Tests of a copied tree have two modules like this one: each continues with the folders after its
# own, so that they do not load each other.
_own = __file__.rpartition("/")[0]
for _folder in sys.path[sys.path.index(_own) + 1 :]:
    _next = f"{_folder}/sitecustomize.py"
    try:
        with open(_next) as _file:  # noqa: PTH123
            _text = _file.read()
    except OSError:
        continue
    exec(compile(_text, _next, "exec"), {"__file__": _next})
    break
