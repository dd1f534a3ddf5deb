"""fieldagent links people and assets in the field with systems elsewhere."""

__version__ = "0.1.0.dev0"
"""The release that comes next, or came last: `build/version.py` adds a commit to what is built."""
