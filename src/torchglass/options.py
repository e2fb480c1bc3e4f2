"""What a caller may ask of the compiler: keyword arguments of ``tg.compile`` in, one validated record out.

    >>> options = CompileOptions.make(mode="max-autotune", options={"cache_limit": 8})
    >>> options.mode, options.get("cache_limit"), options.get("memory_budget")
    ('max-autotune', 8, 1.0)

Every stage gets this record as its second argument and reads it with ``options.get(name)``; nothing is
ambient. A name that nothing knows is an error that lists the names that are valid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from .backends import registry
from .marks.declarations import checked_spec
from .process.arguments import require_flag

if TYPE_CHECKING:
    from .backends.installing import Elsewhere

MODES: dict[str, str] = {
    "default": "compile quickly, run fast",
    "reduce-overhead": "on GPUs, replay CUDA graphs; on CPUs the same as default",
    "max-autotune": "search for the best variant of each kernel and record what was tried",
    "max-autotune-no-cudagraphs": "max-autotune without CUDA graphs",
}

PASSES: dict[str, str] = {
    "fold_constants": "compute once what depends on numbers alone",
    "drop_noop_views": "leave out views that show their tensor as it lies",
    "drop_noop_casts": "leave out casts to the type a tensor has or to a wider one and back, and copies of temporaries",
    "merge_equal": "call an operator once for the same operands",
    "drop_unread": "leave out calls whose result nothing reads",
    "narrow_masks": "keep random masks for backward as one byte per element",
}
"""Passes that ``options={"passes": {name: False}}`` turns off, each with its meaning."""


Check = Callable[[Any], str | None]


@dataclass(frozen=True)
class Option:
    """One key of ``options=``. ``check`` returns a complaint about a value, or None."""

    name: str
    default: Any
    meaning: str
    check: Check


OPTIONS: dict[str, Option] = {}


def _option(name: str, default: Any, meaning: str) -> Callable[[Check], Check]:
    """Enter the decorated check into ``OPTIONS``; refuses a name twice and a default that fails it."""

    def enter(check: Check) -> Check:
        if name in OPTIONS:
            raise AssertionError(f"option {name!r} is defined twice")
        complaint = check(default)
        if complaint is not None:
            raise AssertionError(f"the default of option {name!r} is not valid: {complaint}")
        OPTIONS[name] = Option(name, default, meaning, check)
        return check

    return enter


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


@_option("fallback_random", False, "draw random numbers from eager's generator, in eager's order")
@_option("cache", True, "keep what is compiled for later processes, and look for what earlier ones have kept")
@_option("freezing", False, "treat parameters as constants under no_grad, so that weights can be packed once")
def _boolean(value: Any) -> str | None:
    return None if isinstance(value, bool) else "must be True or False"


@_option("memory_budget", 1.0, "share of the bytes saved for backward to keep; below 1.0 more is recomputed")
def _share(value: Any) -> str | None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return None if number and 0.0 <= value <= 1.0 else "must be a number from 0 to 1"


@_option("cache_limit", 64, "entries a function may have before it runs eagerly")
def _count(value: Any) -> str | None:
    return None if _is_count(value) else "must be a whole number of at least 1"


@_option("hot_calls", 32, "calls after which a graph with open sizes is compiled for theirs as well; 0: never")
def _count_or_zero(value: Any) -> str | None:
    zero = isinstance(value, int) and not isinstance(value, bool) and value == 0
    return None if zero or _is_count(value) else "must be a whole number, or 0"


@_option("threads", None, "threads a kernel may use; None follows torch.get_num_threads()")
def _count_or_none(value: Any) -> str | None:
    return None if value is None or _is_count(value) else "must be None or a whole number of at least 1"


@_option("passes", {}, "passes to turn off or on by name")
def _passes(value: Any) -> str | None:
    if not isinstance(value, Mapping):
        return "must be a mapping from names of passes to True or False"
    for name, wanted in value.items():
        if name not in PASSES:
            return unknown("pass", name, PASSES)
        if not isinstance(wanted, bool):
            return f"must say True or False for pass {name!r}"
    return None


INDUCTOR_OPTIONS: dict[str, str] = {
    "triton.cudagraphs": 'use mode="reduce-overhead"',
    "triton.cudagraph_trees": 'use mode="reduce-overhead"',
    "max_autotune": 'use mode="max-autotune"',
    "max_autotune_gemm": 'use mode="max-autotune"',
    "max_autotune_pointwise": 'use mode="max-autotune"',
    "coordinate_descent_tuning": 'use mode="max-autotune"',
    "epilogue_fusion": "epilogues are fused where it pays; there is no switch",
    "shape_padding": "there is no padding of shapes",
    "trace.enabled": "set TORCHGLASS_DIR, or use tg.prepare_debug(folder)",
    "trace.graph_diagram": "set TORCHGLASS_DIR, or use tg.prepare_debug(folder)",
    "guard_filter_fn": "guards cannot be dropped, because an entry without them could give wrong results",
    "activation_memory_budget": 'use options={"memory_budget": ...}',
}
"""Options of torch.compile's own generator that programs often pass, and what to write instead."""


@dataclass(frozen=True)
class CompileOptions:
    """What one ``tg.compile`` call asked for. Make it with :meth:`make`, which validates.

    ``backend`` is a name of ``backends.registry`` or a callable ``(gm, example_inputs) -> callable``;
    ``dynamic`` is True, False or None (decide from the calls seen), ``dynamic_shapes`` says by names of arguments
    what their sizes are, ``options`` holds only what the caller gave. Treat it as read-only: the record is shared
    by all stages and all entries of a function.
    """

    backend: str | Callable[..., Any] = "glass"
    mode: str = "default"
    dynamic: bool | None = None
    fullgraph: bool = False
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    dynamic_shapes: Mapping[str, Any] = field(default_factory=dict, hash=False)
    elsewhere: Elsewhere | None = None  # what compiles for inputs that are not ours (tg.install)

    @classmethod
    def make(
        cls,
        backend: str | Callable[..., Any] | None = "glass",
        mode: str | None = None,
        dynamic: bool | None = None,
        fullgraph: bool = False,
        options: Mapping[str, Any] | None = None,
        dynamic_shapes: Any = None,
    ) -> CompileOptions:
        """Validate the arguments of ``tg.compile``.

        Raises ValueError for a name that is not known (the message lists the valid ones) and TypeError for
        an argument of the wrong kind. ``options`` go unchecked to a callable backend (as a keyword argument)
        and to a torch.compile backend, which know their own; so does ``mode`` to a callable.
        """
        backend = registry.check("glass" if backend is None else backend)
        if dynamic not in (None, True, False):
            raise TypeError(f"dynamic must be True, False or None, not {dynamic!r}")
        require_flag("fullgraph", fullgraph)
        shapes = checked_spec(dynamic_shapes) or {}
        if shapes and dynamic is False:
            raise ValueError("dynamic_shapes says which sizes change, and dynamic=False that none does")
        own = registry.is_own(backend)
        mode = _mode(mode, named=isinstance(backend, str))
        return cls(backend, mode, dynamic, fullgraph, _options(options, own), shapes)

    def get(self, name: str) -> Any:
        """The value of option ``name``: the caller's, else its default. KeyError if no such option exists."""
        if name in self.options:
            return self.options[name]
        return OPTIONS[name].default

    def wants(self, pass_name: str) -> bool:
        """Whether the pass runs: True unless ``options={"passes": {pass_name: False}}``."""
        return bool(self.get("passes").get(pass_name, True))

    def with_backend(self, backend: str | Callable[..., Any]) -> CompileOptions:
        """The same wishes for another backend; the options of ours mean nothing to one that is not."""
        backend = registry.check(backend)
        if registry.is_own(backend):
            return replace(self, backend=backend)
        return replace(self, backend=backend, mode="default", options={})

    def __deepcopy__(self, memo: dict[int, Any]) -> CompileOptions:
        return self  # frozen; a copied module shares the record, and a callable backend need not be copyable


def unknown(what: str, name: object, valid: Iterable[str]) -> str:
    """A complaint that lists the valid names and guesses which was meant.

    >>> unknown("mode", "max_autotune", ["default", "max-autotune"])
    "unknown mode 'max_autotune': did you mean 'max-autotune'? Valid: 'default', 'max-autotune'"
    """
    return registry.unknown(what, name, valid)


def _mode(mode: str | None, named: bool) -> str:
    if mode is None:
        return "default"
    if not isinstance(mode, str):
        raise TypeError(f"mode must be a string, not {mode!r}. {_listing(MODES)}")
    if named and mode not in MODES:
        raise ValueError(unknown("mode", mode, MODES))
    return mode


def _options(options: Mapping[str, Any] | None, own: bool) -> dict[str, Any]:
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise TypeError(f"options must be a mapping of names to values, not {options!r}. {_listing(OPTIONS)}")
    if own:
        for name, value in options.items():
            _check_option(name, value)
    return dict(options)


def _check_option(name: str, value: Any) -> None:
    row = OPTIONS.get(name)
    if row is None:
        if name in INDUCTOR_OPTIONS:
            instead = INDUCTOR_OPTIONS[name]
            raise ValueError(
                f"option {name!r} belongs to torch.compile's own generator: {instead}. {_listing(OPTIONS)}"
            )
        raise ValueError(unknown("option", name, OPTIONS))
    complaint = row.check(value)
    if complaint is not None:
        kind = ValueError if complaint.startswith("unknown") else TypeError
        raise kind(f"options[{name!r}]: {complaint}" + ("" if kind is ValueError else f", not {value!r}"))


def _listing(names: Iterable[str]) -> str:
    return registry.listing(names)
