"""fieldagent links people and assets in the field with systems elsewhere."""

__version__ = "0.1.0"
