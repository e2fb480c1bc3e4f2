"""Processes that share a folder are right, whatever their texts; damaged files are made anew."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.store import damage

import torchglass as tg
from torchglass.runtime import cache_folder, library, store
from torchglass.runtime.store import load_python, use

RANK = """
import sys, torch, torch.distributed as dist, torchglass as tg
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=rank, world_size=2)
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4 + 0 * rank, 3))
loss = tg.compile(lambda y, w: ((y * w).sin() + y.exp().tanh()).sum(), fullgraph=True)
for size in (5 + 60 * rank, 7):  # texts of different lengths
    x, w = torch.randn(size, 4), torch.randn(3)
    dist.barrier()
    y = model(x)
    found = loss(y, w)
    torch.testing.assert_close(found, ((y * w).sin() + y.exp().tanh()).sum())
    found.backward()
    model.zero_grad()
print("right")
"""


def sharing(folder: Path, *arguments: object, seconds: float = 300) -> str:
    environment = {**os.environ, "TORCHGLASS_DIR": str(folder), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.store.sharing", *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_processes_with_other_texts_at_one_folder(tmp_path):
    assert "4 processes, 0 wrong" in sharing(tmp_path, "processes", 4, 2)


def test_forked_workers_with_other_shapes(tmp_path):
    assert "8 workers, 0 wrong" in sharing(tmp_path, "workers", 8, 3)


@pytest.mark.slow
def test_64_processes(tmp_path):
    assert "64 processes, 0 wrong" in sharing(tmp_path, "processes", 64, 5, seconds=1800)


@pytest.mark.slow
def test_1000_forked_workers(tmp_path):
    assert "1000 workers, 0 wrong" in sharing(tmp_path, "workers", 1000, 8, seconds=3600)


def test_two_ranks_with_one_folder(tmp_path):
    environment = {**os.environ, "TORCHGLASS_DIR": str(tmp_path / "glass"), "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(rank), str(tmp_path / "meet")],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    said = [rank.communicate(timeout=300) for rank in ranks]
    assert [out for out, _ in said] == ["right\n"] * 2, said


def test_a_process_whose_text_differs_goes_on_beside(tmp_path, capfd):
    """What the first one runs stays as it is while it lives; the second one's folder is whole."""
    with use(tmp_path) as ours:
        ours.folder("f").write("same.py", "x = 1\n")
        kept = ours.folder("f").write("other.py", "x = 1\n")
        child = os.fork()
        if child == 0:
            folder = ours.folder("f")
            folder.write("same.py", "x = 1\n")
            artifact = folder.write("other.py", "x = 2\n")
            right = load_python(artifact).x == 2 and artifact.path == tmp_path / "f@2/other.py"
            os._exit(0 if right and (tmp_path / "f@2/same.py").read_text() == "x = 1\n" else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert kept.path.read_text() == "x = 1\n"
    assert "those of this one are in f@2" in capfd.readouterr().err


def test_a_forked_child_has_a_run_folder_of_its_own(tmp_path, monkeypatch):
    import platformdirs

    monkeypatch.setattr(platformdirs, "user_cache_dir", lambda *a, **k: str(tmp_path))
    run = store.ArtifactStore(None, asked=False)
    folder = run.folder("f")
    before = folder.path
    child = os.fork()
    if child == 0:
        os._exit(0 if folder.path != before and folder.write("a.py", "").path.parent == folder.path else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert folder.path == before and not list(before.glob("*.py"))


def test_a_damaged_file_is_made_anew(tmp_path):
    damage.main(tmp_path, 8, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_10000_damaged_files(tmp_path, seed):
    damage.main(tmp_path, 1000, seed)


def test_a_library_that_another_process_cuts_off_runs_on(tmp_path):
    with use(tmp_path):
        compiled = tg.compile(lambda x: x.sin() * 2 + 1, fullgraph=True)
        x = torch.randn(5)
        compiled(x)
        for file in tmp_path.rglob("*.so"):
            os.truncate(file, 0)
        torch.testing.assert_close(compiled(x), x.sin() * 2 + 1)


def test_what_is_sealed_is_whole_and_of_its_key():
    file = library.sealed(b"\x7fELF" * 20, "0123")
    assert library.content_of(file, "0123") == b"\x7fELF" * 20
    assert library.content_of(file, "0124") is None
    for place in range(len(file)):
        assert library.content_of(file[:place], "0123") is None
        assert library.content_of(file[:place] + bytes([file[place] ^ 1]) + file[place + 1 :], "0123") is None


def mappings() -> int:
    with open("/proc/self/maps") as lines:
        return sum("memfd:torchglass" in line for line in lines)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at /proc")
def test_libraries_that_nobody_uses_are_unloaded(tmp_path):
    gc.collect()
    before = mappings()
    with use(tmp_path):
        for size in range(3, 9):
            x = torch.ones(size)
            torch.testing.assert_close(tg.compile(lambda x: x.cos() * 3 - 1)(x), x.cos() * 3 - 1)
            gc.collect()
    assert mappings() <= before + 6  # one library is some five


def test_a_lambda_compiled_in_a_loop_stays_in_one_folder(tmp_path):
    with use(tmp_path):
        for _ in range(4):
            x = torch.ones(3)
            torch.testing.assert_close(tg.compile(lambda x: x.tan() + 1)(x), x.tan() + 1)
            gc.collect()
    folders = {path.name for path in tmp_path.iterdir() if not path.name.startswith(".")}
    assert len(folders) == 1 and len(list(tmp_path.rglob("*.so"))) == 1


def test_edits_set_aside_do_not_overwrite_each_other(tmp_path):
    for n in range(3):
        path = store.ArtifactStore(tmp_path).folder("f").write("a.py", f"x = {n}\n").path
        path.write_text(f"# mine {n}\n")
    store.ArtifactStore(tmp_path).folder("f").write("a.py", "x = 9\n")
    assert {p.name: p.read_text() for p in path.parent.glob("*.stale*")} == {
        "a.py.stale": "# mine 0\n",
        "a.py.stale.2": "# mine 1\n",
        "a.py.stale.3": "# mine 2\n",
    }


@pytest.mark.complains("may be written by other users")
def test_a_sub_folder_that_others_may_write_is_not_used(tmp_path):
    artifact = store.ArtifactStore(tmp_path).folder("f").write("a.py", "x = 1\n")
    artifact.path.write_text("x = 2\n")
    artifact.path.parent.chmod(0o777)
    again = store.ArtifactStore(tmp_path).folder("f").write("a.py", "x = 1\n")
    assert not again.edited and not again.kept and load_python(again).x == 1


@pytest.mark.complains("may be written by other users")
def test_a_parent_that_others_may_write_is_refused(tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    (shared / "mine").mkdir(mode=0o700)
    assert cache_folder.asked(shared / "mine") != shared / "mine"
    shared.chmod(0o1777)  # as /tmp
    assert cache_folder.asked(shared / "mine") == shared / "mine"
    link = tmp_path / "link"
    link.symlink_to(shared / "mine")
    assert cache_folder.asked(link) == link
    shared.chmod(0o777)
    assert cache_folder.asked(link) != link


@pytest.mark.complains("keeps")
def test_a_folder_that_another_process_keeps_locked(tmp_path, monkeypatch):
    monkeypatch.setattr(cache_folder, "PATIENCE", 0.05)
    folder = store.ArtifactStore(tmp_path).folder("f")
    with cache_folder.locked(tmp_path / "f"):
        assert load_python(folder.write("a.py", "x = 1\n")).x == 1
        assert not folder.write("b.py", "x = 1\n").kept


@pytest.mark.parametrize(
    "name", ["transformed.py", "captured.py", "forward_wrapper.py", "forward_kernels.c", "guards.py"]
)
def test_a_file_that_lost_its_last_lines_is_made_anew(tmp_path, name, capsys):
    """Cut off at the end of a line, ``transformed.py`` is a function that returns None."""
    damage.start(tmp_path)
    (path,) = tmp_path.rglob(name)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-2]))
    damage.start(tmp_path)
    assert path.read_text() == "".join(lines)
