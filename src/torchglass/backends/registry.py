"""Names that ``tg.compile(backend=...)`` takes: a name or a callable in, a ``Backend`` out.

    >>> resolve("eager").stages
    ('capture',)

Our own three differ in how far a captured graph goes down our line; ``pipeline`` reads ``stages``. Every
other backend is *foreign*: it takes the captured graph (``torch.fx.GraphModule``) and its example inputs, and
gives a callable, as a backend of torch.compile does. A name registered with torch.compile runs through the
public ``torch.compile(gm, backend=name)``.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from ..options import CompileOptions

Compiler = Callable[..., Callable[..., Any]]


@dataclass(frozen=True)
class Backend:
    """What becomes of a captured graph.

    ``stages`` are those of ours that it passes; ``foreign`` is None for our own backends, else
    ``(gm, example_inputs, options) -> callable(*inputs) -> outputs``.
    """

    name: str
    stages: tuple[str, ...]
    meaning: str
    foreign: Compiler | None = None


OWN: dict[str, Backend] = {
    b.name: b
    for b in (
        Backend("eager", ("capture",), "capture only: the captured graph runs op by op"),
        Backend(
            "aot_eager",
            ("capture", "autodiff"),
            "capture and autodiff: the forward and backward graphs run op by op",
        ),
        Backend(
            "glass",
            ("capture", "autodiff", "lower", "fuse", "codegen"),
            "the whole line: fused loops in generated C (CPU) or Triton (GPU)",
        ),
    )
}
ALIASES = {"torchglass": "glass"}
"""Our name among torch.compile's backends means the same here."""


def check(backend: object) -> str | Callable[..., Any]:
    """The backend as options keep it.

    Raises ValueError for an unknown name, TypeError for what is neither a name nor a callable.
    """
    if isinstance(backend, str):
        backend = ALIASES.get(backend, backend)
        if backend in OWN or backend in registered_with_torch():
            return backend
        raise ValueError(unknown("backend", backend, names()))
    if callable(backend):
        return backend
    raise TypeError(
        "backend must be a name or a callable (gm: torch.fx.GraphModule, example_inputs) -> callable, "
        f"not {backend!r}. {listing(names())}"
    )


def resolve(backend: str | Callable[..., Any]) -> Backend:
    """The ``Backend`` of a name or callable; raises as :func:`check` does."""
    backend = check(backend)
    if not isinstance(backend, str):
        name = getattr(backend, "__name__", type(backend).__name__)
        return Backend(name, ("capture",), "a function of the caller's", _calling(backend))
    if backend in OWN:
        return OWN[backend]
    return Backend(backend, ("capture",), "a backend of torch.compile", _through_torch(backend))


def is_own(backend: str | Callable[..., Any]) -> bool:
    """Whether the backend is one of our three, whose modes and options we know."""
    return isinstance(backend, str) and ALIASES.get(backend, backend) in OWN


def names() -> list[str]:
    """Every name that ``backend=`` takes: ours first, then those registered with torch.compile."""
    return [*OWN, *sorted(set(registered_with_torch()) - set(OWN))]


def registered_with_torch() -> list[str]:
    """Names of torch.compile's backends, debugging ones included. Loads torch.compile: slow the first
    time.
    """
    return list(torch.compiler.list_backends(exclude_tags=None))


def unknown(what: str, name: object, valid: Iterable[str]) -> str:
    """A complaint that names the nearest valid name, if one is near, and lists them all."""
    valid = list(valid)
    near = difflib.get_close_matches(str(name), valid, n=1)
    guess = f"did you mean {near[0]!r}? " if near else ""
    return f"unknown {what} {name!r}: {guess}{listing(valid)}"


def listing(valid: Iterable[str]) -> str:
    """``Valid: 'a', 'b'``."""
    return "Valid: " + (", ".join(repr(v) for v in valid) or "none yet")


def _calling(function: Callable[..., Any]) -> Compiler:
    """A caller's function. It gets ``mode`` and ``options`` only if they were given, as in torch.compile."""

    def compile_graph(gm: torch.fx.GraphModule, inputs: Sequence[Any], options: CompileOptions) -> Callable[..., Any]:
        wishes: dict[str, Any] = {}
        if options.mode != "default":
            wishes["mode"] = options.mode
        if options.options:
            wishes["options"] = dict(options.options)
        compiled = function(gm, inputs, **wishes)
        if not callable(compiled):
            raise TypeError(f"backend {function!r} must return a callable, not {compiled!r}")
        return compiled

    return compile_graph


def _through_torch(name: str) -> Compiler:
    """The graph under torch.compile: static, since every entry of ours has a graph for its own sizes."""

    def compile_graph(gm: torch.fx.GraphModule, inputs: Sequence[Any], options: CompileOptions) -> Callable[..., Any]:
        wishes: dict[str, Any] = {"options": dict(options.options)} if options.options else {}
        if options.mode != "default":
            wishes["mode"] = options.mode
        return torch.compile(gm, backend=name, dynamic=bool(options.dynamic), fullgraph=True, **wishes)

    return compile_graph
