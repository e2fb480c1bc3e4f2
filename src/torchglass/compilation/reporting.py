"""A function's files for reading are behind its record: both in, written anew soon, or at the end of the process."""

from __future__ import annotations

import functools

from ..inspector import reports
from ..records.compilation import FunctionRecord
from ..runtime import debug_objects
from ..runtime.store import Folder


def rewrite(record: FunctionRecord, folder: Folder) -> None:
    """``folder`` is the function's own or one in it."""
    top = Folder(folder.store, folder.parts[:1])
    debug_objects.moved(record, top.path)
    reports.changed(record, functools.partial(top.write, role="report"), top.store.asked)
