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
            yield f"- [graph_0/{file}]({where}/graph_0/{file}): {_what(entry.files[file])}"
        elif name == "dynamo_graph_break_reason":
            yield f"- graph break: {_first(text, 'Graph Break Reason')}"
        elif name == "recompile_reasons":
            yield f"- compiled again because: {' '.join(text.split())[:400]}"
    reached = {function.code: function.folder.relative_to(top.folder).as_posix() for function in top.walk()}
    for name, code in entry.targets.items():
        there = reached.get(code, "")
        link = f"[{there}]({there}/resume_function.py)" if there else f"`{entry.names[name]}`, which was never reached"
        yield f"- goes on with {link}"


def _what(text: str) -> str:
    """What a file says of itself in its first line."""
    title = text.partition("\n")[0].strip('#" ').rstrip(".")
    return title[:1].lower() + title[1:] if text.startswith('"""') else title.partition(",")[0]


def _first(text: str, key: str) -> str:
    match = re.search(rf"{key}: (.*)", text)
    return match[1] if match else text.splitlines()[0] if text else ""
