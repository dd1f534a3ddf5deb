"""Errors in groups, as trio raises them."""

from __future__ import annotations


def get_first_error(error: BaseException) -> BaseException:
    """Return the first error of an exception group, to be shown to people. Return any other error
    unchanged.
    """
    return get_first_error(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


def get_all_errors(error: BaseException) -> list[BaseException]:
    """Return the errors of an exception group and its subgroups. For any other error, return a list
    that contains only this error.
    """
    if isinstance(error, BaseExceptionGroup):
        return [each for part in error.exceptions for each in get_all_errors(part)]
    return [error]
