"""Bounds of time, on a machine that others use, too."""
import functools
import threading
import time
import warnings

TRIES = 3
# What a busy machine adds to a deadline, in seconds: two processors have a dozen hosts, their stores, the loads and perhaps
# another compiler. A host that waited for the store would be seconds late, not this. ./dev bench faults is stricter.
NOISE = 0.150


class Lateness:
    """How late this process gets its turn while the block runs: what the machine adds to each step of everybody's."""

    EVERY = 0.010
    STILL = 0.100  # later than a busy machine is: it stood still

    def __enter__(self):
        self.late, self.ended = [], threading.Event()
        self.thread = threading.Thread(target=self._look)
        self.thread.start()
        return self

    def _look(self):
        while not self.ended.is_set():
            due = time.monotonic() + self.EVERY
            time.sleep(self.EVERY)
            self.late.append((due, time.monotonic() - due))

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()

    def lost(self):
        """All of it, in seconds."""
        return sum(late for _, late in self.late)

    def longest(self):
        """The most that it adds to one step, in seconds."""
        return max((late for _, late in self.late), default=0.0)

    def still(self, begin, end):
        """For how many seconds between the two it stood still."""
        return sum(max(min(due + late, end) - max(due, begin), 0) for due, late in self.late if late > self.STILL)

    def calm(self, begin, end):
        """Whether it did not stand still between the two, nor caught up on what had come meanwhile."""
        return not any(due < end and begin < due + 2 * late for due, late in self.late if late > self.STILL)

    def p99(self, since):
        """Of what was due after `since`, in seconds."""
        late = sorted(late for due, late in self.late if due >= since)
        return late[len(late) * 99 // 100] if late else 0.0


class Never(Exception):
    """Something that must never be was: no further try makes that good."""


def always(holds, seen):
    """For what has nothing to do with time, in a test that is tried again for its bounds of time."""
    if not holds:
        raise Never(seen)


class Again(UserWarning):
    """A test that was tried again; conftest.py reports each."""


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
