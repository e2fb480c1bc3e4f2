"""What torch.export and torch.compile's ``shapes_spec=`` say sizes with, as mappings, lists and leaves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SPECS = "torch.fx.experimental.dynamic_spec"


def plain_spec(spec: Any) -> Any:
    """A specification without containers of PyTorch's own, told by their names: where the user has none of them, the
    modules that make them need not be there.

    ``ShapesSpec._params``, ``ParamsSpec._named_args``, ``._varargs``, ``._varkw``, ``SeqSpec._entries``: there is no
    other way to what they hold. Without them ``shapes_spec=`` could not be taken. Tried: 2.13 (2.11 has none).
    """
    kind = type(spec).__name__ if type(spec).__module__ == _SPECS else ""
    if kind == "ShapesSpec":
        return plain_spec(spec._params or {})
    if kind == "ParamsSpec":
        variadic = {"*args": spec._varargs, "**kwargs": spec._varkw}
        return plain_spec(spec._named_args | {name: found for name, found in variadic.items() if found})
    if kind == "SeqSpec":
        return plain_spec(spec._entries)
    if kind in ("TensorSpec", "DictSpec"):
        return plain_spec(list(spec) if kind == "TensorSpec" else dict(spec.items()))
    if isinstance(spec, Mapping):
        return {key: plain_spec(value) for key, value in spec.items()}
    return [plain_spec(value) for value in spec] if isinstance(spec, (list, tuple)) else spec
