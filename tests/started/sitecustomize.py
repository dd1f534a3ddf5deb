"""What Python imports first in each process that a test starts (site(3)): the guard beside it.

pip is let go: it fetches what a build is made of, by its hash.
"""

import sys

if "pip" not in sys.orig_argv[1:3]:
    # This folder is the first in the path; the tests' own process has it below `tests`.
    __import__("loopback").install()

# `tests/breaking.py` changes a program so, and Debian has one of its own.
for _folder in sys.path:
    _next = f"{_folder}/sitecustomize.py"
    if _next == __file__:
        continue
    try:
        with open(_next) as _file:  # noqa: PTH123
            _text = _file.read()
    except OSError:
        continue
    exec(compile(_text, _next, "exec"), {"__file__": _next})
    break
