"""The two ways in which a codec or state machine refuses: which side broke the protocol."""

from __future__ import annotations


class LocalProtocolError(Exception):
    """Our own program asked for something that the protocol does not allow."""


class RemoteProtocolError(Exception):
    """The peer sent something that the protocol does not allow; the text says what."""
