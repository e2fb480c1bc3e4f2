"""A kept entry that is damaged, half written or somebody else's costs a compile: no wrong result, and no crash."""

from __future__ import annotations

import errno
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch

from torchglass.cache import folder

from .processes import run, same, twice

HEAD = "import torch, torchglass as tg\nF = torch.nn.functional\ntorch.manual_seed(0)\n"
TEXT = (
    HEAD
    + """
def f(x, w):
    return F.softmax(x @ w, -1) * 2
def main():
    w = torch.randn(8, 8, requires_grad=True)
    y = tg.compile(f)(torch.randn(4, 8), w)
    y.square().sum().backward()
    return [y, w.grad]
"""
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made") / "cache"
    first, _ = twice(TEXT, folder)
    return folder, first.result


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.parent.name != folder.name)


DAMAGES = {
    "cut off": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "empty": lambda path: path.write_bytes(b""),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "one bit": lambda path: path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:]),
    "gone": lambda path: path.unlink(),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "a link": lambda path: (path.rename(path.with_suffix(".real")), path.symlink_to(path.with_suffix(".real"))),
    "not to be read": lambda path: path.chmod(0o000),
    "writable by others": lambda path: path.chmod(0o666),
}


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", DAMAGES)
def test_each_file_damaged(made, tmp_path, name: str, every: int) -> None:
    folder, expected = made
    count = len(_files(folder))
    assert count >= 12
    for index in range(0, count, every):
        copy = tmp_path / str(index)
        shutil.copytree(folder, copy)
        DAMAGES[name](_files(copy)[index])
        outcome = run(TEXT, copy)
        assert outcome.status == 0 and same(outcome.result, expected), (name, _files(folder)[index])


def test_json_of_somebody_elses_making(made, tmp_path) -> None:
    """The digests fit, and what the files say is nonsense."""
    import hashlib
    import json

    folder, expected = made
    for number, (name, text) in enumerate(
        [("table.json", "[]"), ("table.json", "{}"), ("entry.json", '{"names": 3}'), ("graph_0/graph.json", "null"),
         ("guards.json", "7"), ("transformed.py", "def transformed(:"), ("transformed.py", "x = 1"),
         ("graph_0/forward_wrapper.py", "raise SystemError"), ("graph_0/forward_kernels.so", "no library")]
    ):  # fmt: skip
        copy = tmp_path / str(number)
        shutil.copytree(folder, copy)
        (digests,) = copy.glob("*/*/digests.json")
        rows = json.loads(digests.read_text())
        rows[name] = hashlib.sha256(text.encode()).hexdigest()
        digests.write_text(json.dumps(rows))
        (digests.parent / name).write_text(text)
        outcome = run(TEXT, copy)
        assert outcome.status == 0 and same(outcome.result, expected), name
        assert outcome.compiled or name == "guards.json"


def test_a_folder_that_cannot_be_written(tmp_path) -> None:
    """Full disk: everything is compiled, and nothing is left half."""

    def full() -> None:
        from torchglass.cache import folder

        def no_space(path, content):
            raise OSError(errno.ENOSPC, "No space left on device")

        folder._write = no_space

    outcome = run(TEXT, tmp_path / "cache", before=full)
    assert outcome.compiled and any("could not be kept" in line for line in outcome.said)
    assert not list((tmp_path / "cache").glob("*/*"))
    assert not run(TEXT, tmp_path / "cache").found


def test_a_read_only_folder_is_used(made, tmp_path) -> None:
    folder, expected = made
    copy = tmp_path / "cache"
    shutil.copytree(folder, copy)
    for path in (copy, *copy.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        outcome = run(TEXT, copy)
        assert outcome.found and not outcome.compiled and same(outcome.result, expected)
    finally:
        for path in (copy, *copy.rglob("*")):
            path.chmod(0o755)


CALLS = ("open", "mkdir", "rename", "write", "close", "fsync", "replace", "chmod", "utime", "unlink")


def _killed_at(step: int):
    """Kill the process with the ``step``-th system call of a write, as ``kill -9`` would: it returns to nobody."""

    def before() -> None:
        from torchglass.cache import folder

        state = {"left": step, "inside": False}
        for name in CALLS:
            real = getattr(os, name, None)
            if real is not None:
                setattr(os, name, _counting(real, state))
        write = folder.write

        def watched(*args, **kwargs):
            state["inside"] = True
            try:
                return write(*args, **kwargs)
            finally:
                state["inside"] = False

        folder.write = watched

    def _counting(real, state):
        def call(*args, **kwargs):
            if state["inside"]:
                state["left"] -= 1
                if state["left"] == 0:
                    os.kill(os.getpid(), 9)
            return real(*args, **kwargs)

        return call

    return before


@pytest.mark.parametrize("part", [2, pytest.param(6, marks=pytest.mark.slow)])
def test_killed_at_any_system_call_of_a_write(tmp_path, made, part: int) -> None:
    _, expected = made
    step, killed = 1, 0
    while True:
        folder = tmp_path / str(step)
        outcome = run(TEXT, folder, before=_killed_at(step))
        if outcome.status != -9:
            break
        killed += 1
        after = run(TEXT, folder)
        assert after.status == 0 and same(after.result, expected), step
        assert run(TEXT, folder).found, step
        step += 1 + step // part
    assert killed >= 5


def test_a_folder_of_other_users(tmp_path) -> None:
    """One that others may write is not used, nor is one in such a folder; a person hears why."""
    for mode in ("itself", "parent"):
        place = tmp_path / mode / "cache"
        place.mkdir(parents=True)
        (place if mode == "itself" else place.parent).chmod(0o777)
        program = tmp_path / "program.py"
        program.write_text(TEXT + "\nmain()\n")
        done = subprocess.run(
            [sys.executable, program],
            env={**os.environ, "TORCHGLASS_CACHE": str(place)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0 and "torchglass keeps no entries in" in done.stderr, done.stderr
        assert not list(place.iterdir())


def test_an_entry_that_is_a_link(made, tmp_path) -> None:
    folder, expected = made
    copy = tmp_path / "cache"
    shutil.copytree(folder, copy)
    (entry,) = copy.glob("*/[0-9]*")
    entry.rename(tmp_path / "elsewhere")
    entry.symlink_to(tmp_path / "elsewhere")
    outcome = run(TEXT, copy)
    assert outcome.compiled and not outcome.found and same(outcome.result, expected)


def test_a_file_that_is_a_link(made, tmp_path) -> None:
    """Also one to what was written."""
    folder, expected = made
    copy = tmp_path / "cache"
    shutil.copytree(folder, copy)
    (path,) = copy.glob("*/[0-9]*/graph_0/forward_kernels.so")
    path.rename(tmp_path / "elsewhere.so")
    path.symlink_to(tmp_path / "elsewhere.so")
    outcome = run(TEXT, copy)
    assert outcome.compiled and not outcome.found and same(outcome.result, expected)


NOBODY = 65534
AS_NOBODY = TEXT.replace(
    "def main():\n",
    f"""
import os
import torchglass.compilation.traced_graph  # nobody may not read what root has installed
def main():
    os.setegid({NOBODY})
    os.seteuid({NOBODY})
    try:
        return as_nobody()
    finally:
        os.seteuid(0)
        os.setegid(0)
def as_nobody():
""",
)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
@pytest.mark.parametrize("owner", [0, NOBODY, 12345])
def test_a_read_only_folder_of_somebody(owner: int) -> None:
    """Of root's, and of one's own: it is used. Of another user's not."""
    with tempfile.TemporaryDirectory() as place:  # pytest's folders are closed to others
        os.chmod(place, 0o755)
        copy = Path(place, "cache")
        first = run(AS_NOBODY.replace(f"({NOBODY})", "(0)"), copy)
        for path in (copy, *copy.rglob("*")):
            os.chown(path, owner, owner)
            path.chmod(0o555 if path.is_dir() else 0o444)
        before = sorted(copy.rglob("*"))
        outcome = run(AS_NOBODY, copy)
        assert same(outcome.result, first.result) and sorted(copy.rglob("*")) == before
        if owner == 12345:
            assert outcome.compiled and any("belongs to user 12345" in line for line in outcome.warned)
        else:
            assert outcome.found and not outcome.compiled


def test_names_that_programs_cannot_draw_again(tmp_path, monkeypatch) -> None:
    """pt#194451: two processes with the same seeds wrote to one place, named by a generator that was restored."""
    names, rename = [], os.rename
    monkeypatch.setattr(folder.os, "rename", lambda a, b: (names.append(a), rename(a, b)))
    for content in ("1", "2"):
        random.seed(0)
        torch.manual_seed(0)
        folder.write(tmp_path / "entries", {"a": content})
    assert len(set(names)) == 2


def test_a_clock_that_goes_back(made, tmp_path) -> None:
    folder, _ = made
    copy = tmp_path / "cache"
    shutil.copytree(folder, copy)
    for path in copy.rglob("*"):
        os.utime(path, (4e9, 4e9))
    assert run(TEXT, copy).found


def test_pruning(made, tmp_path) -> None:
    from torchglass.cache import folder as kept

    folder, _ = made
    copy = tmp_path / "cache"
    shutil.copytree(folder, copy)
    (entry,) = copy.glob("*/[0-9]*")
    assert kept.prune(copy) == []
    abandoned = entry.parent / f"{kept.UNFINISHED}1-a"
    abandoned.mkdir()
    os.utime(abandoned, (1e9, 1e9))
    os.utime(entry, (1e9, 1e9))
    assert kept.prune(copy) == [entry]
    assert not list(copy.glob("*/*"))
    shutil.rmtree(copy)
    shutil.copytree(folder, copy)
    assert kept.prune(copy, max_bytes=10) == [entry]


def test_the_command(made, tmp_path, capsys) -> None:
    from torchglass.__main__ import main

    folder, _ = made
    copy = tmp_path / "cache"
    shutil.copytree(folder, copy)
    assert main(["cache", "list", "--cache", str(copy)]) == 0
    assert "warm_program.f, 1 entry" in capsys.readouterr().out
    assert main(["cache", "verify", "--cache", str(copy)]) == 0
    (entry,) = copy.glob("*/[0-9]*")
    (entry / "transformed.py").write_text("")
    assert main(["cache", "verify", "--cache", str(copy)]) == 1
    assert "transformed.py is not what was written" in capsys.readouterr().out
    assert main(["cache", "prune", "--cache", str(copy), "--bytes", "0"]) == 0
    assert main(["cache", "list", "--cache", str(tmp_path / "nothing")]) == 2


def test_why_a_process_missed(tmp_path, capsys) -> None:
    from torchglass.__main__ import main

    assert run(TEXT, tmp_path / "cache").compiled
    assert run(
        TEXT.replace("main():", "main():\n    torch.backends.mkldnn.set_flags(False)"), tmp_path / "cache"
    ).compiled
    assert main(["cache", "why-miss", "f", "--cache", str(tmp_path / "cache")]) == 0
    assert "onednn: false and true" in capsys.readouterr().out
    one, other = (tmp_path / "cache").glob("f-*")
    assert main(["cache", "why-miss", str(one), str(other)]) == 2  # no folder is named
    assert main(["cache", "why-miss", str(one), str(other), "--cache", str(tmp_path / "cache")]) == 0
    assert "onednn: " in capsys.readouterr().out


def test_a_folder_that_goes_after_a_hit(tmp_path) -> None:
    """What misses then is compiled, and told why."""
    text = (
        HEAD
        + """
import os, shutil
def f(x):
    return x.sin() * 2
def main():
    compiled = tg.compile(f)
    x = torch.ones(3, requires_grad=True)
    y = compiled(x)
    if GO:
        shutil.rmtree(os.environ["TORCHGLASS_CACHE"])
    y.sum().backward(retain_graph=True)
    many = torch.autograd.grad(y, x, torch.eye(3), is_grads_batched=True)  # by the graph's file, not in kernels
    with torch.no_grad():
        z = compiled(torch.ones(5))
    return [y, z, x.grad, many, len(str(tg.explain(compiled))) > 100]
"""
    )
    first = run(text.replace("GO", "False"), tmp_path / "cache")
    second = run(text.replace("GO", "True"), tmp_path / "cache")
    assert len(second.found) == 1 and len(second.compiled) == 1 and same(first.result, second.result)


def test_a_damaged_entry_is_replaced(made, tmp_path) -> None:
    folder, expected = made
    copy = tmp_path / "cache"
    shutil.copytree(folder, copy)
    (table,) = copy.glob("*/*/table.json")
    table.write_text(table.read_text() + " ")
    damaged = run(TEXT, copy)
    assert damaged.compiled and any("damaged, and set aside" in line for line in damaged.said)
    after = run(TEXT, copy)
    assert after.found and not after.compiled and same(after.result, expected)


def test_a_relative_folder_stays_where_it_was(tmp_path) -> None:
    text = TEXT.replace("def main():", f"import os\nos.chdir({str(tmp_path)!r})\ndef main():\n    os.chdir('/')")
    for _ in range(2):
        outcome = run(text, None, TORCHGLASS_CACHE=os.path.relpath(tmp_path / "cache"))
    assert outcome.found and not outcome.compiled
