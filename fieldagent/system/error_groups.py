"""Errors in groups, as trio raises them."""

from __future__ import annotations


def get_first_error(error: BaseException) -> BaseException:
    """Return the first error of a group, for people; another error unchanged."""
    return get_first_error(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


def get_all_errors(error: BaseException) -> list[BaseException]:
    """Return the errors of a group and its subgroups; a single error in a list."""
    if isinstance(error, BaseExceptionGroup):
        return [each for part in error.exceptions for each in get_all_errors(part)]
    return [error]
