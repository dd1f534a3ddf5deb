"""The two kinds of protocol errors. They differ by the side that broke the protocol."""

from __future__ import annotations


class LocalProtocolError(Exception):
    """Our own program requested something that the protocol does not allow."""


class RemoteProtocolError(Exception):
    """The peer sent data that the protocol does not allow. The message describes the error."""
