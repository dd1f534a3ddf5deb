"""Errors that come in groups, as trio raises them."""

from __future__ import annotations


def first_error(error: BaseException) -> BaseException:
    """Return, of errors that came in a group, the one that people are told."""
    return first_error(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


def all_errors(error: BaseException) -> list[BaseException]:
    """Return those of a group, of groups within it too; one that came alone, alone."""
    if isinstance(error, BaseExceptionGroup):
        return [each for part in error.exceptions for each in all_errors(part)]
    return [error]
