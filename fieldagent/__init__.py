"""fieldagent links people and assets in the field with systems elsewhere."""

__version__ = "0.1.0.dev0"
"""The next or the last release. `build/version.py` adds the commit to a build."""
