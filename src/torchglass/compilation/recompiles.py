"""What becomes of the sizes for which an entry was added: the guard that failed in, words for people out.

x.shape[0] was 10, is 8           x.shape[0] is left open from here on (from the first call with ...)
`x.shape[0] == 8` does not hold   its value was used, for `for i in range(x.shape[0]):` (model.py:12)
"""

from __future__ import annotations

import linecache
import textwrap
from collections.abc import Mapping, Sequence

from ..errors import DeclaredSizeError
from ..inspector import show
from ..records.capture import Capture
from ..records.declared_sizes import DeclaredSizes, FixedSizes
from ..records.guards import Guard
from ..records.origin import Origin
from ..records.size_relations import Assumption
from ..records.sources import Attr, Computed, Item, Source, StrideOf, is_tensor_size
from ..runtime.guards import Scope, changed_values


def size_advice(guard: Guard, scope: Scope, fixed: FixedSizes, made: Sequence[Guard], otherwise: str) -> str:
    """What the entry that was made then, with the guards ``made``, does about each size that changed; '' where the
    guard is about nothing such. ``otherwise`` is why it holds one to a number if nothing in the program asks for that.
    """
    if guard.is_relation():
        return because(guard.why, guard.origin)
    if isinstance(guard.source, Computed):
        return f"{guard.source.render()} stays a number: {because(guard.why, guard.origin)}"
    told = []
    for source in changed_values([guard], scope):
        name = source.written() or source.render()
        if source in fixed:
            told.append(f"{name} stays a number: {because(*fixed[source])}")
        elif is_tensor_size(source) or guard.check == "length" or type(guard.expected) is int:
            name = f"len({name})" if guard.check == "length" else name
            held = next((one for one in made if _holds(one, source)), None)
            if held is None:
                told.append(_open(name, source))
            else:
                why = otherwise if is_tensor_size(source) else because(held.why, held.origin)
                told.append(f"{name} stays a number: {why}" if why else f"{name} stays a number")
    return "; ".join(told)


def _holds(guard: Guard, source: Source) -> bool:
    """Whether a guard holds a size to one number."""
    if guard.check == "tensor" and is_tensor_size(source):
        if isinstance(source, StrideOf):
            return guard.source == source.of and guard.expected.strides[source.dim] is not None
        assert isinstance(source, Item) and isinstance(source.of, Attr)
        return guard.source == source.of.of and guard.expected.shape[source.key] is not None
    return guard.source == source and guard.check in ("constant", "length")


def _open(name: str, source: Source) -> str:
    """That a size is left open, and how the program says so beforehand, where there is a way."""
    told = f"{name} is left open from here on"
    if isinstance(source, Item) and isinstance(source.of, Attr) and is_tensor_size(source):
        tensor = source.of.of.written()
        told += f" (from the first call with `tg.mark_dynamic({tensor}, {source.key})`)" if tensor else ""
    return told


def refuse_numbers(name: str, capture: Capture, fixed: Mapping[Source, Assumption]) -> None:
    """Raise DeclaredSizeError where a program needs a number of what it says will change; 0 and 1 are unlike others."""
    needed = {source: (str(row.why), row.origin) for source, row in fixed.items()}
    for guard in capture.guards:
        is_number = guard.check == "constant" and type(guard.expected) is int and guard.expected > 1
        if guard.source is not None and is_number:
            needed.setdefault(guard.source, (guard.why, guard.origin))
    for source, declared in capture.sizes.declared.items():
        if declared.strict and source in needed:
            raise declared_error(name, [source], capture.sizes.declared, *needed[source])


def declared_error(
    name: str, sources: Sequence[Source], declared: DeclaredSizes, why: str, origin: Origin
) -> DeclaredSizeError:
    """The error for sizes that a program says will change and needs as numbers."""
    sizes = " or ".join(source.written() or source.render() for source in sources)
    by = " and ".join(dict.fromkeys(declared[source].by for source in sources))
    return DeclaredSizeError(
        f"`{name}` needs {sizes} as a number, but {by} says that it changes\n  because {because(why, origin)}\n"
        '  hint: tg.maybe_mark_dynamic, or "auto" in dynamic_shapes, lets there be an entry for each size'
    )


def because(why: str, origin: Origin) -> str:
    """A reason with the user's line: ``its value was used, for `for i in range(x.shape[0]):` (model.py:12)``."""
    text = textwrap.shorten(linecache.getline(origin.file, origin.line), 100, placeholder=" ...")
    place = f"`{text}` ({show.place(origin)})" if text else show.place(origin)
    return f"{why}, for {place}" if place else why
