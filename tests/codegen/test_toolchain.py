"""C compilers that do odd things: graphs then run by ATen's operators, with a message, and nothing of theirs stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import torchglass as tg
from torchglass.runtime import cache_folder, store, toolchain
from torchglass.runtime.compilers import Compilers
from torchglass.runtime.toolchain import NoCompiler, ToolchainError, compile_c

SOURCE = "int answer(void) { return 42; }\n"


@pytest.fixture
def cc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Make ``$CC`` a shell script of these lines, or a command."""

    def use(lines: str, script: bool = True) -> None:
        toolchain.compiler.cache_clear()
        if script:
            path = tmp_path / "cc"
            path.write_text(f"#!/bin/sh\n{lines}\n")
            path.chmod(0o755)
        monkeypatch.setenv("CC", str(path) if script else lines)

    yield use
    monkeypatch.undo()
    toolchain.compiler.cache_clear()


def test_what_a_compiler_says_need_not_be_utf_8(cc, tmp_path: Path) -> None:
    cc("printf '\\377\\376bad\\n' >&2; exec gcc \"$@\"")
    assert compile_c(tmp_path / "a.c", text=SOURCE).address("answer")
    with pytest.raises(ToolchainError, match="��bad"):
        compile_c(tmp_path / "a.c", text="no C\n")


def test_a_command_with_an_open_quote(cc) -> None:
    cc("gcc '", script=False)
    with pytest.raises(NoCompiler, match=r"\$CC is \"gcc '\", which is no command: No closing quotation"):
        toolchain.compiler()


@pytest.mark.complains("cannot be loaded")
def test_a_library_that_is_none(cc, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cc('while [ "$1" ]; do [ "$1" = -o ] && echo rubbish > "$2"; shift; done; exit 0')
    x = torch.ones(3)
    with store.use(tmp_path / "files"):
        compiled = tg.compile(lambda x: x.sin() * 41.5)
        assert torch.equal(compiled(x), x.sin() * 41.5)
    assert "cannot be loaded" in caplog.text and len(tg.explain(compiled).to_dict()["entries"]) == 1
    assert not list((tmp_path / "files").rglob("*.so"))


@pytest.mark.parametrize("kept", ["s/2", "s*9/10", "s-1", "64", "20"])
@pytest.mark.complains("cannot be loaded: file too short")
def test_a_library_that_was_cut_off(cc, tmp_path: Path, kept: str) -> None:
    """The loader would map pages that are not there."""
    cc(
        'for a in "$@"; do [ "$p" = -o ] && o=$a; p=$a; done; gcc "$@" || exit 1\n'
        f'case "$o" in *.so) s=$(stat -c %s $o); truncate -s $(({kept})) $o;; esac'
    )
    x = torch.ones(3)
    with store.use(tmp_path / "files"):
        compiled = tg.compile(lambda x: x.sin() * 43.5)
        assert torch.equal(compiled(x), x.sin() * 43.5)
    assert not list((tmp_path / "files").rglob("*.so"))


def test_a_kept_library_that_was_cut_off_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_c(tmp_path / "a.c", text=SOURCE)
    (file,) = tmp_path.glob("*.so")
    key, whole = file.suffixes[0][1:], file.read_bytes()
    file.write_bytes(toolchain.library.sealed(toolchain.library.content_of(whole, key)[:5000], key))
    monkeypatch.setattr(toolchain, "_libraries", {})
    assert compile_c(tmp_path / "a.c", text=SOURCE).address("answer")
    assert file.read_bytes() == whole


def test_a_compiler_that_leaves_a_process_behind_is_not_waited_for_longer(cc, tmp_path: Path) -> None:
    cc('sleep 30 & echo "$!" >> "$0.left"; gcc "$@"')
    begin = time.monotonic()
    try:
        assert compile_c(tmp_path / "a.c", text=SOURCE).address("answer")
        with pytest.raises(ToolchainError, match="unknown type name"):
            compile_c(tmp_path / "a.c", text="no C\n")
        assert time.monotonic() - begin < 15
    finally:
        for process in (tmp_path / "cc.left").read_text().split():
            os.kill(int(process), signal.SIGKILL)


def test_a_kept_library_that_can_no_longer_be_loaded_is_made_anew(tmp_path: Path, monkeypatch) -> None:
    compile_c(tmp_path / "a.c", text=SOURCE)
    (file,) = tmp_path.glob("*.so")
    key = file.suffixes[0][1:]
    whole = file.read_bytes()
    file.write_bytes(toolchain.library.sealed(b"of another system", key))
    monkeypatch.setattr(toolchain, "_libraries", {})
    assert compile_c(tmp_path / "a.c", text=SOURCE).address("answer")
    assert toolchain.library.content_of(file.read_bytes(), key) is not None and len(file.read_bytes()) == len(whole)


def test_a_folder_with_a_newline(tmp_path: Path) -> None:
    folder = tmp_path / 'a\n"b'
    folder.mkdir()
    assert compile_c(folder / "a.c", text=SOURCE).address("answer")


def test_compilers_that_are_stopped_leave_no_files(cc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary, seen = tmp_path / "tmp", tmp_path / "seen"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    monkeypatch.setenv("TMPDIR", str(temporary))
    cc(f'[ "$1" = --version ] && exit; touch "$TMPDIR/ccabc.s" {seen}; exec sleep 100')
    compilers = Compilers()
    monkeypatch.setattr(compilers, "run", _stopped_when(seen, compilers))
    with pytest.raises(ToolchainError):
        compile_c(tmp_path / "a.c", text=SOURCE, compilers=compilers)
    assert seen.exists() and not list(temporary.iterdir())


def _stopped_when(file: Path, compilers: Compilers):
    def run(command):
        process = compilers.start(command, stdout=subprocess.DEVNULL)
        while process.poll() is None:
            if file.exists():
                compilers.stop()
            time.sleep(0.01)
        return process.returncode, ""

    return run


def test_what_killed_processes_left_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code = "import time\nfrom torchglass.runtime import cache_folder\nwith cache_folder.work_folder() as f:\n"
    code += "    print(f, flush=True)\n    time.sleep(100)"
    killed, alive = (
        subprocess.Popen(
            [sys.executable, "-c", code], env=os.environ | {"TMPDIR": str(tmp_path)}, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    )
    try:
        left, used = (process.stdout.readline().strip() for process in (killed, alive))
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        foreign = tmp_path / "torchglass-notes"
        foreign.mkdir()
        assert os.path.isdir(left)
        cache_folder._delete_left_work.cache_clear()
        with cache_folder.work_folder() as own:
            assert {str(p) for p in tmp_path.iterdir()} == {used, own, str(foreign)}
    finally:
        alive.kill()
        alive.communicate()
        killed.communicate()
