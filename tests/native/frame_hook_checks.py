"""What the frame hook promises, checked without torch: ``python frame_hook_checks.py FOLDER`` (of the built module).

Run by test_frame_hook.py under every Python that is here, with PYTHONMALLOC=debug and faulthandler.
"""

import gc
import sys
import threading
import time
import weakref

sys.path.insert(0, sys.argv[1])
from frame_hook_alone import Region, watching


def compiling(*names, seen=None):
    """A region that answers functions of these names with ("entry", parameters, fetched)."""

    def entry(*arguments):
        assert not watching()
        return ("entry", *arguments)

    def compile(function, parameters, compiled):
        assert not watching() and compiled is None
        if seen is not None:
            seen.append(function.__name__)
        if function.__name__ not in names:
            region.skip(function.__code__)
            return None
        region.add(function, lambda arguments: (entry, ("fetched",)))
        return entry, ("first",)

    region = Region(compile)
    return region


def positional(a, b=2):
    return a, b


def everything(a, /, b, c=3, *rest, d, e=5, **more):
    return a, b, c, d, e, rest, more


def with_cells(a, b=1):
    def inner():
        return a, b

    return inner()


def nothing():
    return ()


def check_parameters():
    region = compiling("positional", "everything", "with_cells", "nothing")
    with region:
        assert watching()
        assert positional(1) == ("entry", 1, 2, ("first",))
        assert positional(b=3, a=1) == ("entry", 1, 3, ("fetched",))
        assert everything(1, 2, 3, 4, d=6, z=7)[1:-1] == (1, 2, 3, 6, 5, (4,), {"z": 7})
        assert with_cells(1) == ("entry", 1, 1, ("first",))
        assert nothing() == ("entry", ("first",)) and nothing() == ("entry", ("fetched",))
        try:
            positional()
        except TypeError as error:
            assert "missing 1 required positional argument" in str(error)
        else:
            raise AssertionError
    assert not watching() and positional(1) == (1, 2) and nothing() == ()


def check_references():
    region = compiling("positional", "everything", "nothing")
    first, second = object(), object()

    def many(count):
        with region:
            for _ in range(count):
                positional(first, second)
                everything(first, second, 1, first, d=second, z=first)
                nothing()

    many(100)
    gc.collect()
    before = sys.getrefcount(first), sys.getrefcount(second), sys.getrefcount(positional), sys.getallocatedblocks()
    many(20_000)
    gc.collect()
    after = sys.getrefcount(first), sys.getrefcount(second), sys.getrefcount(positional), sys.getallocatedblocks()
    assert after[:3] == before[:3], (before, after)
    assert abs(after[3] - before[3]) < 50, (before, after)


def check_exceptions():
    def entry(*arguments):
        raise ValueError("from the entry")

    def compile(function, parameters, compiled):
        if function.__name__ == "positional":
            region.add(function, lambda arguments: (entry, ()))
            return entry, ()
        return None

    region = Region(compile)

    def broken():
        raise KeyError("from the frame")

    for _ in range(1000):
        try:
            with region:
                positional(1, object())
        except ValueError as error:
            names = []
            trace = error.__traceback__
            while trace is not None:
                names.append(trace.tb_frame.f_code.co_name)
                trace = trace.tb_next
            assert names == ["check_exceptions", "entry"], names
        else:
            raise AssertionError
        assert not watching()
        try:
            with region:
                broken()
        except KeyError:
            pass
        assert not watching()


def check_thrown_by_native_code():
    """What C++ throws ends the call: the frame is cleared and popped, its references are given back."""
    region = Region(lambda function, parameters, compiled: None)
    held, thrown = object(), "bad_alloc"
    region.add(positional, lambda parameters: thrown)
    region.add(everything, lambda parameters: thrown)

    def raised(call, *args, **kwargs):
        try:
            with region:
                call(*args, **kwargs)
        except (MemoryError, RuntimeError) as error:
            names, trace = [], error.__traceback__
            while trace is not None:
                names.append(trace.tb_frame.f_code.co_name)
                trace = trace.tb_next
            assert names == ["raised"], names
            return type(error), str(error)
        raise AssertionError

    assert raised(positional, held)[0] is MemoryError
    gc.collect()
    before = sys.getrefcount(held), sys.getallocatedblocks()
    for _ in range(2000):
        assert raised(positional, held)[0] is MemoryError
        assert raised(everything, held, held, 1, held, d=held, z=held)[0] is MemoryError
    gc.collect()
    assert sys.getrefcount(held) == before[0] and abs(sys.getallocatedblocks() - before[1]) < 50
    thrown = "said in C++"
    assert raised(positional, held) == (RuntimeError, "said in C++")
    assert not watching() and positional(1) == (1, 2)


def check_failing_compiler():
    shown = []
    hook, sys.unraisablehook = sys.unraisablehook, lambda what: shown.append(what.exc_type)

    def compile(function, parameters, compiled):
        raise RuntimeError("a defect")

    try:
        with Region(compile):
            for _ in range(5):
                assert positional(1) == (1, 2)
        assert shown == [RuntimeError], shown
    finally:
        sys.unraisablehook = hook

    def interrupted(function, parameters, compiled):
        raise KeyboardInterrupt

    try:
        with Region(interrupted):
            positional(1)
    except KeyboardInterrupt:
        pass
    else:
        raise AssertionError
    with Region(lambda *a: "nonsense"):
        sys.unraisablehook = lambda what: None
        assert positional(1) == (1, 2)
        sys.unraisablehook = hook


def check_plain_answers():
    region = Region(lambda function, parameters, compiled: None)
    region.add(positional, lambda arguments: False)
    with region:
        assert positional(1) == (1, 2)
    misses = []

    def compile(function, parameters, compiled):
        misses.append(parameters)
        return (lambda *a: "new"), ()

    region = Region(compile)
    region.add(positional, lambda arguments: None)
    with region:
        assert positional(1) == "new" and positional(2) == "new"
    assert misses == [(1, 2), (2, 2)]


def check_generators_and_others():
    seen = []
    region = compiling(seen=seen)

    def numbers():
        yield 1
        yield positional(2)

    async def coroutine():
        return 3

    started = numbers()
    next(started)
    with region:
        assert list(numbers()) == [1, (2, 2)]
        assert list(started) == [(2, 2)]
        try:
            coroutine().send(None)
        except StopIteration as stop:
            assert stop.value == 3

        class Body:
            value = positional(5)

        namespace = {}
        exec("y = 1\ndef g(): return y", namespace)
        assert namespace["g"]() == 1 and Body.value == (5, 2)
        assert [x + 1 for x in (1, 2)] == [2, 3] and sorted([2, 1], key=lambda v: v) == [1, 2]
        unfinished = numbers()
        next(unfinished)
    assert list(unfinished) == [(2, 2)]
    assert not {"numbers", "coroutine", "Body", "<module>"} & set(seen), seen


def check_throwing_into_generators():
    seen = []
    region = compiling(seen=seen)

    def careful():
        try:
            yield 1
        except ValueError:
            yield nothing()

    with region:
        generator = careful()
        next(generator)
        assert generator.throw(ValueError) == ()
        generator.close()


def check_nesting():
    inner, outer = compiling("positional"), compiling("nothing")

    def through(*arguments):
        with inner:
            result = positional(7)
        assert not watching()
        return result

    outer.add(with_cells, lambda arguments: (through, ()))
    with outer:
        assert with_cells(1)[:3] == ("entry", 7, 2)
        assert watching() and nothing()[0] == "entry" and positional(1) == (1, 2)
        with inner:
            assert positional(1)[0] == "entry" and nothing() == ()
        assert nothing()[0] == "entry"
    assert not watching()


def check_disabled():
    def off(x):
        assert not watching()
        return positional(x)

    off._torchglass_disabled = True
    with compiling("positional", "off"):
        assert off(1) == (1, 2) and positional(1)[0] == "entry"
        assert watching()


def check_tracing():
    events = []

    def trace(frame, event, argument):
        events.append((frame.f_code.co_name, event))
        return trace

    with compiling("positional"):
        sys.settrace(trace)
        try:
            assert positional(1) == (1, 2)
        finally:
            sys.settrace(None)
        assert positional(1)[0] == "entry"
        sys.setprofile(lambda *a: None)
        assert positional(1)[0] == "entry"
        sys.setprofile(None)
    assert ("positional", "return") in events


def check_recursion():
    def entry(n, fetched):
        with region:
            return down(n - 1) if n else 0

    def down(n):
        return None

    region = Region(lambda *a: None)
    region.add(down, lambda arguments: (entry, ()))
    with region:
        assert down(50) == 0
        try:
            down(10**6)
        except RecursionError:
            pass
        else:
            raise AssertionError
    assert not watching()


def check_recursion_ends_before_the_stack():
    def down(n):
        return down(n - 1) + 1 if n else 0

    def work():
        with Region(lambda *a: None):
            assert down(100) == 100
            try:
                down(10**6)
            except RecursionError as error:
                found.append(str(error))

    found, limit = [], sys.getrecursionlimit()
    sys.setrecursionlimit(10**7)
    try:
        work()
        threading.stack_size(256 * 1024)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(0)
        sys.setrecursionlimit(limit)
    counts_itself = sys.version_info >= (3, 12)  # Python has a limit of its own for calls that take C stack
    assert len(found) == 2 and (counts_itself or all("C stack" in text for text in found)), found


def check_an_entered_region_lives():
    def compile(function, parameters, compiled):
        return None

    Region(compile).__enter__()
    assert positional(1) == (1, 2) and watching()
    region = next(found for found in gc.get_referrers(compile) if type(found) is Region)
    region.__exit__(None, None, None)
    alive = sys.getrefcount(compile)
    del region
    assert not watching() and sys.getrefcount(compile) == alive - 1


def check_leaving_out_of_order():
    first, second = compiling("positional"), compiling("nothing")
    first.__enter__()
    second.__enter__()
    first.__exit__()
    assert watching() and positional(1) == (1, 2) and nothing()[0] == "entry"
    refused = []

    def leave(region):
        try:
            region.__exit__()
        except RuntimeError as error:
            refused.append(str(error))

    leave(first)
    thread = threading.Thread(target=leave, args=(second,))
    thread.start()
    thread.join()
    second.__exit__()
    leave(second)
    assert not watching() and refused == ["Region.__exit__ without __enter__ on this thread"] * 3


def check_stack_chunks():
    """A frame that is answered may be the first of its chunk of the interpreter's stack."""
    region = compiling("positional", "wide")
    names = [f"v{i}" for i in range(60)]
    namespace = {"positional": positional}
    parameters = ", ".join(f"{n}={i}" for i, n in enumerate(names))
    exec(f"def wide({parameters}): return 0", namespace)
    exec(
        f"def deep(n, {parameters}):\n positional(n)\n wide()\n return deep(n - 1) + 1 if n else 0",
        namespace,
    )
    for depth in range(0, 300, 7):
        with region:
            assert namespace["deep"](depth) == depth


def check_threads():
    region = compiling("positional")
    wrong, stop = [], threading.Event()

    def outside():
        while not stop.is_set():
            if positional(1) != (1, 2) or watching():
                wrong.append("outside")

    def inside():
        for _ in range(3000):
            with region:
                if positional(1)[0] != "entry" or not watching():
                    wrong.append("inside")

    threads = [threading.Thread(target=inside) for _ in range(3)]
    other = threading.Thread(target=outside)
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    for thread in (other, *threads):
        thread.start()
    for thread in threads:
        thread.join()
    stop.set()
    other.join()
    sys.setswitchinterval(switch)
    assert not wrong, wrong
    started = []
    with region:
        thread = threading.Thread(target=lambda: started.append(watching()))
        thread.start()
        thread.join()
    assert started == [False]


class Kept:
    pass


def check_closures_die():
    region = Region(lambda *a: None)

    def make(kept):
        def closure():
            return kept

        return closure

    for _ in range(4):
        kept = Kept()
        alive = weakref.ref(kept)
        function = make(kept)
        copy = type(function)(function.__code__, function.__globals__, "copy", None, function.__closure__)
        region.add(function, lambda arguments, copy=copy: ((lambda fetched: "entry"), ()))
        with region:
            assert function() == "entry"
        del kept, function, copy
        assert alive() is None
    for _ in range(20):  # too many of one code: left alone
        region.add(function := make(1), lambda arguments: ((lambda fetched: "entry"), ()))
    with region:
        assert function() == 1 and make(2)() == 2


def check_codes_die():
    region = compiling("made")
    gc.collect()
    sizes = []
    for _ in range(4):
        for n in range(3000):
            namespace = {}
            exec(f"def made(x): return x + {n}", namespace)
            with region:
                assert namespace["made"](1)[0] == "entry"
        gc.collect()
        sizes.append(sys.getallocatedblocks())
    assert max(sizes[1:]) < sizes[0] + 60_000, sizes  # bounded: everything is forgotten now and then


def check_regions_are_collected():
    region = compiling("positional")
    with region:
        positional(1)
        del region
        assert positional(1)[0] == "entry"
    kept = Kept()

    cycle = [kept]
    region = Region(lambda function, parameters, compiled: cycle)

    def closure():
        return cycle

    region.add(closure, lambda arguments: cycle)
    cycle += [region, closure]
    alive = weakref.ref(kept)
    kept = region = closure = cycle = None
    gc.collect()
    assert alive() is None


def check_clearing_while_running():
    def compile(function, parameters, compiled):
        region.clear()
        gc.collect()
        return entry, ()

    def entry(*arguments):
        region.clear()
        return "entry"

    region = Region(compile)
    with region:
        for _ in range(5):
            assert positional(object()) == "entry"
            region.add(positional, lambda arguments: (region.clear(), (entry, ()))[1])
            assert positional(object()) == "entry"


def check_destructors():
    class Loud:
        def __del__(self):
            gone.append(positional(1))

    gone = []
    with compiling("nothing", "positional", "taking"):

        def taking(loud):
            return None

        for _ in range(10):
            assert taking(Loud())[0] == "entry"
    assert len(gone) == 10


def check_callers_are_seen():
    def entry(*arguments):
        return sys._getframe(1).f_code.co_name

    region = Region(lambda *a: None)
    region.add(nothing, lambda arguments: (entry, ()))
    with region:
        assert nothing() == "check_callers_are_seen"


def check_cost():
    """No cost outside regions: the default evaluator is back."""

    def work(n):
        for _ in range(n):
            nothing()

    def best():
        times = []
        for _ in range(15):
            begin = time.perf_counter()
            work(20_000)
            times.append(time.perf_counter() - begin)
        return min(times)

    slower = []
    for _ in range(5):  # others may use the machine: once is enough to show that nothing is left behind
        before = best()
        with compiling("positional"):
            work(1)
            inside = best()
        after = best()
        print(f"a call: {before / 20_000 * 1e9:.0f} ns before, {inside / 20_000 * 1e9:.0f} inside, "
              f"{after / 20_000 * 1e9:.0f} after")  # fmt: skip
        slower.append(after >= before * 1.5 + 1e-4)
        if not slower[-1]:
            break
    assert not all(slower)


if __name__ == "__main__":
    for name, check in list(globals().items()):
        if name.startswith("check_"):
            check()
            gc.collect()
            assert not watching(), name
    print("all hold")
