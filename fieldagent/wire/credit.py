"""What a satellite message costs: whole credits of 50 bytes."""

CREDIT_BYTES = 50


def credits_for(size: int) -> int:
    return -(-size // CREDIT_BYTES)
