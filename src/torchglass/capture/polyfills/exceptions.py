"""Methods of exception groups, and what ``except*`` does with them."""

# ruff: noqa: SIM110  (the machine cannot use the builtins that these stand for)
# mypy: ignore-errors

from __future__ import annotations

from .registry import polyfill


@polyfill()
def split_group(group, condition):
    if isinstance(condition, (type, tuple)):
        return _split(group, lambda error: isinstance(error, condition))
    return _split(group, condition)


@polyfill()
def subgroup(group, condition):
    return split_group(group, condition)[0]


@polyfill()
def projected(group, kept):
    """The part of ``group`` whose leaves are leaves of the parts ``kept``."""
    leaves = []
    for part in kept:
        _leaves(part, leaves)

    def is_kept(error):
        if isinstance(error, BaseExceptionGroup):
            return False
        for leaf in leaves:
            if leaf is error:
                return True
        return False

    return _split(group, is_kept)[0]


def _leaves(error, found):
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            _leaves(one, found)
    else:
        found.append(error)


def _split(error, matches):
    if matches(error):
        return error, None
    if not isinstance(error, BaseExceptionGroup):
        return None, error
    found, rest = [], []
    for one in error.exceptions:
        yes, no = _split(one, matches)
        if yes is not None:
            found.append(yes)
        if no is not None:
            rest.append(no)
    return _derived(error, found), _derived(error, rest)


def _derived(group, exceptions):
    if not exceptions:
        return None
    made = group.derive(exceptions)
    if not isinstance(made, BaseExceptionGroup):
        raise TypeError("derive must return an instance of BaseExceptionGroup")
    copy_traces(made, group)
    return made


def copy_traces(made, group):
    """Give ``made`` the traceback, cause, context and notes of ``group``: known to the machine."""
    raise NotImplementedError
