"""What a compile tells people: values as records keep them, and a function's files for reading, written anew."""

from __future__ import annotations

import functools
from typing import Any

import torch

from ..inspector import reports, show
from ..records.compilation import FunctionRecord, ReprText
from ..records.guards import TensorMeta
from ..records.sources import Source
from ..runtime import debug_objects
from ..runtime.global_state import GlobalState
from ..runtime.store import Folder


def rewrite(record: FunctionRecord, folder: Folder) -> None:
    """The files of a function for reading are behind its record: they are made again soon, or at the end of the
    process. ``folder`` is the function's own or one in it.
    """
    top = Folder(folder.store, folder.parts[:1])
    debug_objects.moved(record, top.path)
    if debug_objects.is_latest(record):  # a backward of an earlier one may come after a reset
        reports.changed(record, functools.partial(top.write, role="report"), top.store.asked)


def report_values(old: Any, new: Any) -> tuple[Any, Any]:
    """What a guard wanted and what it got, as a report keeps them: of the state around calls what differs."""
    if isinstance(old, GlobalState) and isinstance(new, GlobalState):
        return ReprText(old.beside(new)), ReprText(new.beside(old))
    return report_value(old), report_value(new)


def report_value(value: Any) -> Any:
    """A value as a report keeps it: what a call passed must not live on in one."""
    if value is None or isinstance(
        value, (int, float, str, bytes, type, torch.dtype, torch.device, TensorMeta, Source)
    ):
        return value
    text = show.value(TensorMeta.of(value) if isinstance(value, torch.Tensor) else value)
    return ReprText(f"{text[:-1]} at {id(value):#x}>" if text.endswith(" object>") else text)
