"""Bounds of time, on a machine that others use, too."""
import functools
import warnings

TRIES = 3
# What a busy machine adds to a deadline, in seconds: two processors have a dozen hosts, their stores, the loads and perhaps
# somebody's compiler. A host that waited for the store would be seconds late, not this. ./dev bench faults is stricter.
NOISE = 0.150


class Never(Exception):
    """Something that must never be was: no further try makes that good."""


def always(holds, seen):
    """For what has nothing to do with time, in a test that is tried again for its bounds of time."""
    if not holds:
        raise Never(seen)


class Again(UserWarning):
    """A test that was tried again; conftest.py tells of each."""


def again(why):
    warnings.warn(Again(why), stacklevel=2)


def measured(test):
    """
    For a test that asserts how long something takes, or what comes about within a time. What it says is that this machine
    can do it: it is tried up to three times, each with servers of its own, for a busy machine stands still at times. What
    must never be, however busy the machine is, belongs into always(): that fails at the first time.
    """
    @functools.wraps(test)
    def tried(*arguments, **named):
        for _ in range(TRIES - 1):
            try:
                return test(*arguments, **named)
            except AssertionError as problem:
                lines = str(problem).splitlines() or [""]
                again(f"{test.__name__}: {lines[0][:200]}")
        return test(*arguments, **named)
    return tried
