"""Exceptions: raised, chained, caught, passed through ``finally``, with the words and attributes of eager's."""

# ruff: noqa: B011, B018, B904
from __future__ import annotations

from ..tables import rand, table, tables

WHOLE, BREAKING, whole, breaking = tables()
PROGRAMS, program = table()


@whole
def exceptions(x):
    log = []
    try:
        {}["missing"]
    except KeyError as error:
        log.append(type(error).__name__)
    else:
        log.append("else")
    finally:
        log.append("finally")
    try:
        try:
            raise ValueError("inner")
        except ValueError as error:
            raise RuntimeError("outer") from error
    except RuntimeError as error:
        log.append(str(error))
        log.append(type(error.__cause__).__name__)

    def helper():
        try:
            return x + 1
        finally:
            log.append("cleanup")

    return helper(), log


@breaking
def raises(x):
    y = x + 1
    raise ValueError(f"no {y.shape}")


@breaking
def raises_in_torch(x):
    y = x + 1
    return y @ y


class CustomError(Exception):
    def __init__(self, first, second):
        super().__init__(first)
        self.second = second


@breaking
def raises_with_own_init(x):
    raise CustomError(1, x.shape)


@whole
def caught_with_own_init(x):
    try:
        raise CustomError(1, x + 1)
    except CustomError as error:
        return error.second, error.args, str(error), repr(KeyError("k"))


@whole
def arguments_of_an_exception_written(x):
    error = ValueError(1, 2)
    error.args = (9,)
    try:
        raise error
    except ValueError as caught:
        return str(caught), caught.args, caught, x + 1


@breaking
def exceptions_more(x):
    class MyErr(ValueError):
        pass

    try:
        try:
            raise MyErr("a", 1)
        finally:
            y = x + 1
    except (KeyError, ValueError) as e:
        z = e.args, type(e).__name__, isinstance(e, ValueError), repr(e)
    try:
        [][1]
    except IndexError as e:
        w = str(e)
    try:
        {}["a"]
    except LookupError as e:
        v = e.args
    try:
        int("a")
    except Exception as e:
        u = str(e)
    try:
        x.foo
    except AttributeError as e:
        t = str(e)
    try:
        assert False, "msg"
    except AssertionError as e:
        s = str(e)
    try:
        raise ValueError("a") from KeyError("b")
    except ValueError as e:
        r = type(e.__cause__).__name__, e.__suppress_context__
    try:
        1 / 0
    except ZeroDivisionError as e:
        q = str(e)
    return y, z, w, v, u, t, s, r, q


@program
def exception_flow():
    class Early(Exception):
        def __init__(self, value):
            self.value = value

    def inner(x, n):
        if n > 1:
            raise Early(x * n)
        return x + n

    def f(x, n):
        log = []
        try:
            y = inner(x, n)
        except Early as e:
            y = e.value
            log.append("early")
        else:
            log.append("else")
        finally:
            log.append("finally")
        if n == 3:
            raise ValueError(f"n is {n}") from KeyError("k")
        return y, log

    return f, [(rand(2), n) for n in (0, 2, 3, 0)]


@program
def try_finally_return():
    def f(x, n):
        log = []
        for i in range(4):
            try:
                if i == n:
                    return x * i, log
                if i == 2:
                    continue
                log.append(i)
            finally:
                log.append(f"f{i}")
        return x, log

    return f, [(rand(2), n) for n in (0, 1, 3, 9)]


@program
def exceptions_from_torch():
    def f(x, y):
        try:
            return x @ y
        except RuntimeError as e:
            return "shapes" in str(e), x.sum()

    return f, [(rand(2, 3), rand(3, 2)), (rand(2, 3), rand(4, 2))]


@program
def index_errors():
    def f(x, i):
        try:
            return x[i]
        except IndexError as e:
            return str(e)

    return f, [(rand(3), 0), (rand(3), 5), (rand(3), -1)]


@program
def raising_and_chaining():
    def f(x, kind):
        try:
            try:
                {}["k"]
            except KeyError as e:
                if kind == 0:
                    raise ValueError("v") from e
                if kind == 1:
                    raise
                raise TypeError("t")
        except (ValueError, TypeError) as e:
            return x, type(e).__name__, type(e.__cause__).__name__, type(e.__context__).__name__

    return f, [(rand(2), k) for k in (0, 1, 2)]


@program
def assertion_with_message():
    def f(x, n):
        assert n < 3, f"n is {n} and x has {x.shape[0]}"
        return x * n

    return f, [(rand(2), 1), (rand(2), 4), (rand(2), 2)]


@program
def assertion_on_values():
    def f(x):
        assert (x < 10).all(), "too big"
        return x + 1

    return f, [(rand(2),), (rand(2) + 100,)]


@whole
def names_that_modules_lack(x):
    said = []
    for _ in range(2):
        try:
            from math import nothing_of_that_name  # noqa: F401
        except ImportError as error:
            said += [str(error), error.name, error.path]
        try:
            import no_module_of_that_name  # noqa: F401
        except ImportError as error:
            said += [type(error).__name__, str(error), error.name]
    return x + 1, said
