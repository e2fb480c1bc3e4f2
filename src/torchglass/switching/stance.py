"""What programs ask of every compiled function at once: ``set_stance("force_eager")`` in, what a call does out.

    with tg.set_stance("eager_on_recompile"):
        compiled(x)                 # an entry that fits runs; else the function itself

A call whose entry exists asks nothing here: ``_native.set_detour`` leads it elsewhere where a stance wants that. A
missed call asks :func:`entry_for`. ``torch.compiler.set_stance`` says the same to us (following.py).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .. import _native
from ..backends import registry

if TYPE_CHECKING:
    from ..pipeline import FunctionState
    from ..runtime.callee_compilation import Entry

    Rule = Callable[[FunctionState, tuple[Any, ...]], Entry | None]

STANCES: dict[str, str] = {
    "default": "compile, and run what is compiled",
    "force_eager": "run every function itself, as if nothing were compiled",
    "eager_on_recompile": "run entries that fit; where none does, the function itself",
    "fail_on_recompile": "run entries that fit; where none does, raise RuntimeError",
    "eager_then_compile": "run the function itself at its first call, compile from the second on",
    "aot_eager_then_compile": "the first call by backend aot_eager, which keeps less for backward than eager does",
}

_NO_DETOUR, _TO_FUNCTION, _TO_MISS = 0, 1, 2


@dataclass(frozen=True)
class Stance:
    """``backend``: what compiles instead of what each function asked for. ``skip_guard_eval_unsafe`` is kept and has no
    effect: guards are checked always.
    """

    name: str = "default"
    skip_guard_eval_unsafe: bool = False
    backend: str | Callable[..., Any] | None = None

    @property
    def detour(self) -> int:
        if self.name == "force_eager":
            return _TO_FUNCTION
        return _NO_DETOUR if self.backend is None else _TO_MISS


_now = Stance()


def take(stance: Stance) -> Stance:
    """Make it the stance of all threads; returns the one before."""
    global _now
    before, _now = _now, stance
    _native.set_detour(stance.detour)
    return before


def entry_for(state: FunctionState, arguments: tuple[Any, ...]) -> Entry | None:
    """The entry for a call that missed, by the rule of the stance; None to run the function itself."""
    if _now.backend is not None:
        state = state.under(_now.backend)
    return RULES[_now.name](state, arguments)


def _compile(state: FunctionState, arguments: tuple[Any, ...]) -> Entry | None:
    return state.entry_for(arguments)


def _run(state: FunctionState, arguments: tuple[Any, ...]) -> Entry | None:
    return None


def _refuse(state: FunctionState, arguments: tuple[Any, ...]) -> Entry | None:
    if state.called and not state.guards:  # plain Python between graphs
        return None
    reasons = "".join(f"\n  - {reason}" for reason in state.why_missed(arguments)) or " it has no entry"
    raise RuntimeError(
        f"the stance 'fail_on_recompile' keeps `{state.name}` ({state.record.origin}) from being compiled for a call "
        f"that no entry takes:{reasons}"
    )


def _run_first(state: FunctionState, arguments: tuple[Any, ...]) -> Entry | None:
    if state.ran:
        return state.entry_for(arguments)
    state.ran = True
    return None


def _aot_eager_first(state: FunctionState, arguments: tuple[Any, ...]) -> Entry | None:
    if state.ran:
        return state.entry_for(arguments)
    state.ran = True
    return state.under("aot_eager").entry_for(arguments)


RULES: dict[str, Rule] = {
    "default": _compile,
    "force_eager": _run,
    "eager_on_recompile": _run,
    "fail_on_recompile": _refuse,
    "eager_then_compile": _run_first,
    "aot_eager_then_compile": _aot_eager_first,
}


class set_stance:
    """Say what calls of compiled functions do from now on; as a context manager or decorator, there alone.

    ``stance`` is one of ``STANCES``. ``force_backend``, with "default" alone: the backend that compiles every function,
    whatever it was compiled with; what was compiled before is kept for later. Raises ValueError for an unknown name.
    """

    def __init__(
        self,
        stance: str = "default",
        *,
        skip_guard_eval_unsafe: bool = False,
        force_backend: str | Callable[..., Any] | None = None,
    ) -> None:
        if callable(stance):
            raise TypeError('set_stance takes the name of a stance: @set_stance("force_eager")')
        if stance not in STANCES:
            raise ValueError(registry.unknown("stance", stance, STANCES))
        if force_backend is not None:
            if stance != "default":
                raise ValueError(f"force_backend goes with the stance 'default', not {stance!r}")
            force_backend = registry.check(force_backend)
        self.stance = Stance(stance, skip_guard_eval_unsafe, force_backend)
        self.before = take(self.stance)

    def __enter__(self) -> None:
        take(self.stance)

    def __exit__(self, *exception: object) -> None:
        take(self.before)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        take(self.before)
        wanted = self.stance

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            before = take(wanted)
            try:
                return function(*args, **kwargs)
            finally:
                take(before)

        return call
