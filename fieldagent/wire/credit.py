"""What a satellite message costs: whole credits of 50 bytes."""

CREDIT_BYTES = 50


def credits_for(size: int) -> int:
    return -(-size // CREDIT_BYTES)


def paid_with(size: int) -> int:
    """Bytes that go for what `size` of them cost."""
    return credits_for(size) * CREDIT_BYTES
