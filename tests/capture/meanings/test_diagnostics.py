"""Logging and warnings in captured code: shown, raised and asked about as in eager."""

import functools
import logging
import warnings

import pytest
import torch
import torch.nn.functional as F

import torchglass as tg

log = logging.getLogger("tests.capture.diagnostics")
BACKENDS = ("eager", "glass")


@functools.lru_cache(None)
def warning_once(logger, *args):
    logger.warning(*args)


def logged(x):
    y = x * 2
    log.info("shape %s", tuple(y.shape))
    log.error("NaN in loss")
    return y + 1


def breaks_and_logs(x):
    y = x * 2
    tg.graph_break()
    log.error("NaN in loss")
    return y + 1


def asks(x):
    return x * (2 if log.isEnabledFor(logging.DEBUG) else 3) + log.getEffectiveLevel()


def quiet(x):
    log.debug("nobody reads %s", x.shape)
    logging.getLogger("tests.capture.other").debug("nor this")
    return x * 2


def once(x):
    warning_once(log, "a warning, once")
    return x * 2


def warns(x):
    warnings.warn("odd", RuntimeWarning, stacklevel=1)
    return x * 2


def warns_the_caller(x):
    warnings.warn("odd", RuntimeWarning, stacklevel=2)
    return x * 2


def warns_below(x):
    return warns(x) + 1


def filters_inside(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.warn("odd", RuntimeWarning, stacklevel=1)
        y = x * 2
    return y + 1


def filters_inside_over_a_break(x):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tg.graph_break()
        try:
            warnings.warn("odd", RuntimeWarning, stacklevel=1)
        except RuntimeWarning as error:
            x = x + len(str(error))
    return x + 1


def deprecated(x):
    return F.upsample(x[None, None], scale_factor=2)


def once_by_module(x):
    logging.error("at the root")
    return x


PROGRAMS = [
    logged, breaks_and_logs, asks, quiet, warns, warns_the_caller, warns_below, filters_inside,
    filters_inside_over_a_break,
    deprecated, once_by_module,
]  # fmt: skip


def trace_of(function, caplog, action, level):
    """What two calls return or raise, and all that is shown meanwhile."""
    caplog.clear()
    outcome = []
    with warnings.catch_warnings(record=True) as seen, caplog.at_level(level):
        warnings.simplefilter(action)
        for n in range(3):
            try:
                outcome.append(function(torch.ones(2, 2) + n).sum().item())
            except Warning as error:
                outcome.append(str(error))
    records = [(r.name, r.levelname, r.getMessage(), r.lineno, r.funcName) for r in caplog.records]
    known = function is not deprecated and getattr(function, "__wrapped__", None) is not deprecated  # whose line
    shown = [(str(w.message), w.category, *((w.filename, w.lineno) if known else ())) for w in seen]
    return outcome, [r for r in records if not r[0].startswith("torchglass")], shown


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("function", PROGRAMS)
def test_all_is_shown_and_raised_as_in_eager(function, backend, caplog):
    compiled = tg.compile(function, backend=backend)
    for action in ("ignore", "always", "error", "ignore"):
        for level in (logging.WARNING, logging.DEBUG, logging.CRITICAL, logging.WARNING):
            expected = trace_of(function, caplog, action, level)
            assert trace_of(compiled, caplog, action, level) == expected, (action, level)


@pytest.mark.parametrize("function", [quiet, filters_inside])
def test_what_nobody_is_shown_does_not_break(function):
    compiled = tg.compile(function, backend="eager", fullgraph=True)
    assert torch.equal(compiled(torch.ones(2)), function(torch.ones(2)))


def test_what_is_logged_once_does_not_break(caplog):
    compiled = tg.compile(once, backend="eager", fullgraph=True)
    for _ in range(3):
        compiled(torch.ones(2))
    assert [r.getMessage() for r in caplog.records if r.name == log.name] == ["a warning, once"]


def test_levels_are_relied_on():
    compiled = tg.compile(asks, backend="eager", fullgraph=True)
    for level in (logging.WARNING, logging.DEBUG, logging.WARNING):
        log.setLevel(level)
        assert torch.equal(compiled(torch.ones(2)), asks(torch.ones(2)))
    logging.disable(logging.CRITICAL)
    try:
        assert torch.equal(compiled(torch.ones(2)), asks(torch.ones(2)))
    finally:
        logging.disable(logging.NOTSET)
        log.setLevel(logging.NOTSET)


def test_a_deprecation_of_pytorchs_is_shown_and_stays_whole():
    compiled = tg.compile(deprecated, fullgraph=True)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        for _ in range(2):
            compiled(torch.ones(2, 2))
    assert [("upsample" in str(w.message), w.filename) for w in seen] == [(True, __file__)]


def narrow(x):
    return x.var()


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "glass"])
def test_warnings_of_kernels_go_through_the_filters(backend):
    """The variance of one number: eager's kernel warns, each time."""
    compiled = tg.compile(narrow, backend=backend)
    compiled(torch.ones(1))
    for function in (narrow, compiled):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            function(torch.ones(1))
        assert len(seen) == 1 and "degrees of freedom" in str(seen[0].message)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(UserWarning, match="degrees of freedom"):
                function(torch.ones(1))


def test_a_record_of_data_is_of_the_programs_line(caplog):
    def program(x):
        y = x * 2
        log.warning("sum %.2f", y.sum())
        return y

    for function in (program, tg.compile(program, backend="eager")):
        caplog.clear()
        function(torch.ones(2))
        (record,) = caplog.records
        assert (record.funcName, record.pathname) == ("program", __file__)
        assert record.lineno == program.__code__.co_firstlineno + 2
