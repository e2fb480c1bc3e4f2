"""The unasked folder: private, pruned, refused when unsafe."""

import os
import subprocess
import sys
import time
from pathlib import Path

import platformdirs
import pytest
from tests.complaints import complains

from torchglass.runtime import cache_folder, pruning
from torchglass.runtime.store import current_store


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "torchglass" / "runs"


@pytest.mark.parametrize("named", [None, "", "  ", "/somewhere"])
def test_the_users_cache_is_where_platformdirs_says(monkeypatch, named):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if named is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", named)
    assert cache_folder.of_user() == Path(platformdirs.user_cache_dir("torchglass", appauthor=False))


def make_run(runs: Path, name: str, age_days: float, size: int = 10) -> Path:
    run = runs / name
    run.mkdir(parents=True)
    (run / "text.py").write_text("x" * size)
    (run / cache_folder.LOCK).touch()
    make_old(run, age_days)
    return run


def make_old(run, age_days):
    old = time.time() - age_days * 86400
    os.utime(run, (old, old))


def test_a_run_folder_is_private_and_named_after_time_and_process(cache):
    run = cache_folder.of_this_run()
    assert run.parent == cache
    assert f"-{os.getpid()}-" in run.name
    for folder in (run, cache):
        assert folder.stat().st_mode & 0o777 == 0o700


def test_old_runs_go_first_by_age_then_by_size(tmp_path):
    ancient = make_run(tmp_path, "ancient", 20)
    older = make_run(tmp_path, "older", 3, size=600)
    newer = make_run(tmp_path, "newer", 2, size=600)
    assert cache_folder.prune(tmp_path, max_age_days=14, max_bytes=1000) == [ancient, older]
    assert newer.exists()
    assert not ancient.exists()


def test_pruning_ends_in_time_and_goes_on_with_the_next_process(tmp_path):
    runs = [make_run(tmp_path, f"run{age}", age, size=600) for age in (9, 8, 7)]
    folder = runs[0] / "function"
    folder.mkdir()
    make_old(runs[0], 9)
    assert cache_folder.prune(tmp_path, max_bytes=1000, end=time.perf_counter() - 1) == []
    assert all(run.exists() for run in runs)
    assert cache_folder.prune(tmp_path, max_bytes=50_000) == []
    assert all((run / cache_folder.MEASURED).exists() for run in runs)
    assert cache_folder.prune(tmp_path, max_bytes=1000, end=time.perf_counter() - 1) == []
    assert folder.exists() and runs[0].stat().st_mtime < runs[1].stat().st_mtime
    assert cache_folder.prune(tmp_path, max_bytes=1000) == runs[:2]


def test_a_live_process_keeps_its_run(tmp_path):
    run = make_run(tmp_path, "live", 20)
    program = (
        "import sys, pathlib; from torchglass.runtime import cache_folder as c; "
        f"c._hold(pathlib.Path({str(run)!r})); print('held', flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    make_old(run, 20)
    assert cache_folder.prune(tmp_path) == []
    process.communicate()
    assert cache_folder.prune(tmp_path) == [run]


def test_pruning_what_is_not_there_is_no_error(tmp_path):
    assert cache_folder.prune(tmp_path / "missing") == []


def test_a_folder_that_others_may_write_is_refused(tmp_path):
    open_folder = tmp_path / "open"
    open_folder.mkdir()
    open_folder.chmod(0o777)
    with pytest.raises(cache_folder.FolderRefused, match="may be written by other users"):
        cache_folder.check(open_folder)
    with complains("may be written by other users"):
        instead = cache_folder.asked(open_folder)
    assert instead != open_folder
    assert instead.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_refused(tmp_path, cache):
    cache.mkdir(parents=True)
    os.chown(cache, 12345, 12345)
    with complains("belongs to user 12345"):
        assert cache not in cache_folder.of_this_run().parents


def test_a_file_in_the_way_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with complains("for now"):
        assert cache_folder.asked(tmp_path / "file") != tmp_path / "file"


def test_a_private_group_may_write(tmp_path, monkeypatch):
    folder = tmp_path / "mine"
    folder.mkdir()
    folder.chmod(0o775)
    monkeypatch.setattr(cache_folder, "_is_private_group", lambda gid: True)
    cache_folder.check(folder)
    monkeypatch.setattr(cache_folder, "_is_private_group", lambda gid: False)
    with pytest.raises(cache_folder.FolderRefused):
        cache_folder.check(folder)


def test_the_store_of_a_process_is_one_folder(cache, monkeypatch):
    monkeypatch.delenv("TORCHGLASS_DIR", raising=False)
    from torchglass.runtime import store

    monkeypatch.setattr(store, "_by_root", {})
    monkeypatch.setattr(store, "_asked_for", [])
    assert current_store() is current_store()
    assert current_store().root.parent == cache


def test_pruning_is_due_once_an_hour(tmp_path):
    assert pruning.due(tmp_path)
    assert not pruning.due(tmp_path)
    stamp = tmp_path / pruning.PRUNED
    os.utime(stamp, (0, 0))
    assert pruning.due(tmp_path)
    assert cache_folder.prune(tmp_path, max_bytes=0) == []


@pytest.mark.parametrize("named", [True, False])
def test_a_temporary_folder_goes_with_the_process(tmp_path, named):
    """Reports are written as it ends, and not into a folder that has gone."""
    (tmp_path / "file").touch()
    (tmp_path / "tmp").mkdir()
    code = "import torch, torchglass as tg; tg.compile(lambda x: x.sin() + 1)(torch.ones(3))"
    env = {k: v for k, v in os.environ.items() if k != "TORCHGLASS_DIR"} | {"TMPDIR": str(tmp_path / "tmp")}
    env |= {"TORCHGLASS_DIR" if named else "XDG_CACHE_HOME": str(tmp_path / "file")}
    run = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert "torchglass keeps its files in" in run.stderr and not list((tmp_path / "tmp").iterdir())
