"""Programs that print, log and warn."""

# ruff: noqa: B028
from __future__ import annotations

import logging
import warnings

from ..tables import rand, table, tables

WHOLE, BREAKING, whole, breaking = tables()
PROGRAMS, program = table()


@whole
def warn(x):
    warnings.warn("careful")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y = x + 1
    return y


logger = logging.getLogger(__name__)


@whole
def logs(x):
    logger.info("a %s", 1)
    logger.info("bb")
    logger.debug("x")
    logging.getLogger("q").debug("y")
    if logger.isEnabledFor(logging.DEBUG):
        x = x + 100
    return x + 1


@program
def progress_wrapper():
    class Progress:
        def __init__(self, it, total=None):
            self.it, self.n, self.total = it, 0, total or len(it)

        def __iter__(self):
            for item in self.it:
                self.n += 1
                yield item

        def __len__(self):
            return self.total

        def set_postfix(self, **kw):
            self.post = {k: round(v, 3) for k, v in kw.items()}

    def f(xs):
        bar = Progress(xs)
        total = 0
        for i, x in enumerate(bar):
            total = total + x
            bar.set_postfix(i=i * 1.0)
        return total, bar.n, len(bar), bar.post

    return f, [([rand(2), rand(2, seed=1)],)] * 2


@program
def logging_and_printing():
    log = logging.getLogger("user")

    def f(x, verbose):
        log.info("shape %s", x.shape)
        y = x * 2
        if verbose:
            print("mean is", round(y.mean().item(), 3), f"{y.shape=}", sep=" | ")
        print("done", end="!\n")
        return y

    return f, [(rand(3), True), (rand(3, seed=1), False), (rand(3, seed=1), True)]


@program
def warnings_caught():
    def f(x):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.warn("hidden")
            x = x * 2
        return x

    return f, [(rand(2),)] * 2


@breaking
def warnings_that_are_recorded_and_read(x):
    with warnings.catch_warnings(record=True) as recorded:
        warnings.simplefilter("always")
        warnings.warn("careful")
        warnings.warn(DeprecationWarning("old"))
        count = len(recorded)
        warnings.warn("again")
    return x * count, [str(warning.message) for warning in recorded]
