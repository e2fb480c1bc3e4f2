"""``except*`` and exception groups: each captured in one graph where nothing leaves the function."""

# ruff: noqa: F841
from __future__ import annotations

from ..tables import rand, table, tables

WHOLE, BREAKING, whole, breaking = tables()
PROGRAMS, program = table()


@whole
def except_star(x):
    log = []
    try:
        raise ExceptionGroup("g", [ValueError(1), TypeError(2)])
    except* ValueError as e:
        log.append(len(e.exceptions))
    except* TypeError as e:
        log.append("t")
    return x + 1, log


@whole
def except_star_none(x):
    try:
        y = x + 1
    except* ValueError:
        y = x
    return y


def group(*errors):
    return ExceptionGroup("g", list(errors))


def told(error):
    """A group as tuples: what can be compared."""
    if isinstance(error, BaseExceptionGroup):
        return type(error), error.message, [told(e) for e in error.exceptions]
    return type(error), str(error)


def caught(call):
    try:
        call()
    except BaseException as error:
        links = error.__context__, error.__cause__, error.__suppress_context__
        return told(error), [told(e) if isinstance(e, BaseException) else e for e in links]


@whole
def two_clauses(x):
    log = []
    try:
        raise group(ValueError(1), TypeError(2), ValueError(3))
    except* ValueError as e:
        log.append(told(e))
        x = x + 1
    except* (TypeError, KeyError) as e:
        log.append(told(e))
        x = x * 2
    else:
        x = x * 100
    finally:
        log.append("finally")
    return x, log


@whole
def no_exception(x):
    try:
        y = x + 1
    except* ValueError:
        y = x
    else:
        y = y * 2
    return y


@whole
def naked(x):
    try:
        raise ValueError(1)
    except* TypeError:
        x = x * 100
    except* ValueError as e:
        x = x + len(e.exceptions)
        log = told(e)
    return x, log


@whole
def nested_groups(x):
    log = []
    try:
        raise group(group(ValueError(1), group(KeyError(2), ValueError(3))), TypeError(4))
    except* ValueError as e:
        log.append(told(e))
    except* Exception as e:
        log.append(told(e))
    return x + 1, log


@whole
def rest_goes_on(x):
    def f():
        try:
            raise group(ValueError(1), TypeError(2))
        except* ValueError:
            pass

    return x + 1, caught(f)


@whole
def raised_again(x):
    def f():
        try:
            raise group(group(ValueError(1), KeyError(5)), TypeError(2), OSError(3))
        except* ValueError:
            raise
        except* OSError:
            pass

    return x + 1, caught(f)


@whole
def raised_by_name(x):
    def f():
        try:
            raise group(ValueError(1), TypeError(2))
        except* ValueError as e:
            raise e

    return x + 1, caught(f)


def reraise():
    raise


@whole
def raised_again_in_a_call(x):
    def f():
        try:
            raise group(ValueError(1), TypeError(2))
        except* ValueError:
            reraise()

    return x + 1, caught(f)


@whole
def raised_anew(x):
    def f():
        try:
            raise group(ValueError(1), TypeError(2), KeyError(3))
        except* ValueError:
            raise RuntimeError("a") from None
        except* TypeError as e:
            raise RuntimeError("b") from e

    return x + 1, caught(f)


@whole
def naked_raised_again(x):
    def f():
        try:
            raise ValueError(1)
        except* ValueError:
            raise

    return x + 1, caught(f)


@whole
def naked_not_caught(x):
    def f():
        try:
            raise ValueError(1)
        except* TypeError:
            pass

    return x + 1, caught(f)


@whole
def contexts_inside(x):
    log = []
    try:
        raise group(ValueError(1), TypeError(2))
    except* ValueError:
        try:
            raise KeyError(3)
        except KeyError as e:
            log.append(told(e.__context__))
    except* TypeError:
        pass
    return x + 1, log


@whole
def loops_and_returns(x):
    log = []
    for n in range(4):
        try:
            if n % 2:
                raise group(ValueError(n), KeyError(n))
            x = x + n
        except* ValueError:
            log.append(n)
            x = x * 2
        except* KeyError:
            log.append(-n)
        finally:
            log.append("f")
    return x, log


@whole
def inside_one_another(x):
    log = []
    try:
        try:
            raise group(ValueError(1), TypeError(2), KeyError(3))
        except* ValueError:
            log.append("v")
            raise OSError(4) from None
    except* TypeError as e:
        log.append(told(e))
    except* OSError as e:
        log.append(told(e))
    except* KeyError as e:
        log.append(told(e))
    return x + 1, log


class Errors(ExceptionGroup):
    def __new__(cls, message, errors, code):
        self = super().__new__(cls, message, errors)
        self.code = code
        return self

    def derive(self, errors):
        return Errors(self.message, errors, self.code + 1)


@whole
def class_of_ones_own(x):
    log = []
    try:
        raise Errors("mine", [ValueError(1), TypeError(2)], 7)
    except* ValueError as e:
        log.append((type(e).__name__, e.code, str(e)))
    except* TypeError as e:
        log.append((type(e).__name__, e.code, len(e.exceptions)))
    return x + 1, log


@whole
def methods(x):
    e = group(ValueError(1), group(TypeError(2), ValueError(3)))
    parts = e.split(ValueError)
    some = e.subgroup(lambda one: isinstance(one, TypeError))
    other = e.derive([KeyError(1)])
    return x + 1, [told(p) for p in parts], told(some), told(other), str(e), e.subgroup(OSError), e.message


@whole
def kinds(x):
    made = [BaseExceptionGroup("b", [ValueError(1)]), BaseExceptionGroup("b", [KeyboardInterrupt()])]
    return x + 1, [type(m) for m in made]


@whole
def notes(x):
    e = group(ValueError(1), TypeError(2))
    e.add_note("said")
    return x + 1, [p.__notes__ for p in e.split(ValueError)]


@whole
def wrong_groups(x):
    log = []
    for errors in ([], [1], [KeyboardInterrupt()]):
        try:
            ExceptionGroup("g", errors)
        except (ValueError, TypeError) as e:
            log.append((type(e), str(e)))
    return x + 1, log


@whole
def wrong_classes(x):
    log = []
    for wrong in (ExceptionGroup, int):
        try:
            try:
                raise group(ValueError(1))
            except* wrong:
                pass
        except TypeError as e:
            log.append(str(e))
    return x + 1, log


@breaking
def leaves(x):
    try:
        raise group(ValueError(1), group(TypeError(2)), KeyError(3))
    except* ValueError:
        x = x + 1


@breaking
def leaves_raised_anew(x):
    try:
        raise group(ValueError(1), TypeError(2))
    except* ValueError as e:
        raise RuntimeError(str(x.shape)) from e


@breaking
def returned(x):
    e = Errors("mine", [ValueError(1), TypeError(2)], 7)
    e.add_note("n")
    return x + 1, told(e), e.args, e


@breaking
def branch_in_the_body(x):
    log = []
    try:
        if x.sum() > 0:
            raise group(ValueError(1), TypeError(2))
        raise KeyError("negative")
    except* ValueError:
        log.append("v")
    except* TypeError as e:
        log.append(told(e))
    except* KeyError as e:
        log.append(told(e))
    return x + len(log), log


@breaking
def branch_in_a_clause(x):
    log = []

    def f():
        try:
            raise group(ValueError(1), TypeError(2), KeyError(3))
        except* ValueError:
            log.append(1 if x.sum() > 0 else -1)
            raise
        except* TypeError:
            log.append(x.sum().item() > 0)

    return x + 1, caught(f), log


@breaking
def raised_outside(x):
    try:
        int(str(x.sum().item()) + "?")
    except* ValueError as e:
        found = told(e)
    return x + 1, found


@program
def except_star_groups():
    def f(x):
        log = []
        try:
            raise ExceptionGroup("g", [ValueError("a"), TypeError("b"), ValueError("c")])
        except* ValueError as eg:
            log.append(("v", [str(e) for e in eg.exceptions]))
        except* TypeError as eg:
            log.append(("t", len(eg.exceptions)))
        return x + len(log), log

    return f, [(rand(2),)] * 2
