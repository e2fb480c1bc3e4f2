"""Which folder entries are kept in and looked for: the user's own unasked, the one that is asked for, or none.

    TORCHGLASS_CACHE is not set       <user's cache>/torchglass/entries; where that is not safe none, as the log says
    TORCHGLASS_CACHE=folder           that folder; where it is not safe none, as a warning says
    TORCHGLASS_CACHE=0, off, or ""    none
    options={"cache": False}          none, for one function

Under TORCHGLASS_DIR and prepare_debug, where people look at what is compiled and edit it, none either.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import NamedTuple

from ..options import CompileOptions
from ..process import fallbacks
from ..runtime import cache_folder
from ..runtime.store import ArtifactStore

ENVIRONMENT = "TORCHGLASS_CACHE"
OFF = ("", "0", "off")
log = logging.getLogger("torchglass.cache")


class Root(NamedTuple):
    """``asked``: a person named it. Unasked nothing is kept of which some source lies in no file (``modules.py``)."""

    path: Path
    asked: bool


def is_wanted(options: CompileOptions, store: ArtifactStore) -> bool:
    """Whether entries of a function, whose artifacts go to ``store``, are to be looked for and kept."""
    return not store.asked and bool(options.get("cache"))


def root_for(options: CompileOptions, store: ArtifactStore) -> Root | None:
    """The root for a function whose artifacts go to ``store``."""
    return root() if is_wanted(options, store) else None


def root() -> Root | None:
    """The folder of this process, if there is one that is safe. A relative one is that of the first time, wherever the
    program goes.
    """
    asked = os.environ.get(ENVIRONMENT)
    if asked is not None and asked.lower() in OFF:
        return None
    named = asked or str(cache_folder.of_user() / "entries")
    if named not in _roots:
        _roots[named] = _checked(Path(os.path.abspath(os.path.expanduser(named))), asked is not None)
    return _roots[named]


_roots: dict[str, Root | None] = {}


def _checked(path: Path, asked: bool) -> Root | None:
    try:
        cache_folder.make(path, 0o700)
        cache_folder.check(path)
        cache_folder.check_parents(path)
        return Root(path, asked)
    except OSError as error:
        message = f"torchglass keeps no entries in {path}: {error}"
        if asked:
            fallbacks.say(message, key=("cache", path))
        else:
            log.info(message)
        return None
