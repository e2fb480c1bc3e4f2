"""``README.md`` of a function that torch.compile compiled: what happened, in order, with links to the files."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .layout import Entry, Function


def readme(function: Function) -> str:
    return "\n".join(_lines(function)) + "\n"


def _lines(top: Function) -> Iterator[str]:
    code = top.code
    yield f"# {top.name} (torch.compile)"
    yield ""
    yield f"`{code.co_filename}`, line {code.co_firstlineno}. Names are by function and entry, alike in every run."
    yield "[full_code.py](full_code.py) is all of it as one module, [report.html](report.html) shows it by your lines."
    for function in top.walk():
        where = function.folder.relative_to(top.folder).as_posix()
        yield ""
        yield f"## {function.name if function is not top else 'The function itself'}"
        if function is not top:
            yield (
                f"What is left after a graph break at line {function.code.co_firstlineno}: [resume_function.py]"
                f"({where}/resume_function.py)."
            )
        for entry in function.entries:
            yield from _entry(entry, top)


def _entry(entry: Entry, top: Function) -> Iterator[str]:
    where = entry.folder.relative_to(top.folder).as_posix()
    yield ""
    yield f"### {where} (torch.compile's {entry.frame[0]}/{entry.frame[1]})"
    runs = "this file is what runs" if entry.runs_own_file else "shown for reading, torch.compile's bytecode runs"
    yield f"- [transformed.py]({where}/transformed.py): {runs}"
    if entry.guards is not None:
        lost = sum(not line.expression for line in entry.guards)
        words = f", {lost} in words only" if lost else ""
        yield f"- [guards.py]({where}/guards.py): {len(entry.guards)} guards{words}"
    else:
        yield "- guards: torch.compile had dropped this entry when the folder was finished"
    shown = set()
    for name, file, text in entry.events:
        if file and file not in shown:
            shown.add(file)
            yield f"- [{file}]({where}/graph_0/{file})"
        elif name == "dynamo_graph_break_reason":
            yield f"- graph break: {_first(text, 'Graph Break Reason')}"
        elif name == "recompile_reasons":
            yield f"- compiled again because: {' '.join(text.split())[:400]}"
    for name in entry.new.co_names:
        target = _resume(name, entry, top)
        if target is not None:
            yield f"- continues with `{name}`: [{target}]({target}/resume_function.py)"


def _first(text: str, key: str) -> str:
    match = re.search(rf"{key}: (.*)", text)
    return match[1] if match else text.splitlines()[0] if text else ""


def _resume(name: str, entry: Entry, top: Function) -> str | None:
    """The folder of the resume function that the transformed code calls by ``name``, if it has been compiled."""
    code = entry.targets.get(name)
    for function in top.walk():
        if code is not None and function.code is code:
            return function.folder.relative_to(top.folder).as_posix()
    return None
