"""The artifact store: names, what is written, and what becomes of a person's edit."""

import errno
import gc
import linecache
import os
import shutil
import subprocess
import sys
import threading
import traceback
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

import torchglass as tg
from torchglass.runtime import files
from torchglass.runtime import store as store_module
from torchglass.runtime.store import ArtifactStore, current_store, file_name, load_python, use

TEXT = "def f(x):\n    return x * 2\n"


@pytest.fixture
def store(tmp_path):
    return ArtifactStore(tmp_path)


def again(store: ArtifactStore) -> ArtifactStore:
    """The same folder as the next run of the program sees it."""
    return ArtifactStore(store.root)


class Owner:
    pass


def test_each_owner_has_its_folder_in_order_of_first_use(store):
    first, second = Owner(), Owner()
    assert store.folder("toy", first).path.name == "toy"
    assert store.folder("toy", second).path.name == "toy_2"
    assert store.folder("toy", first).path.name == "toy"
    assert again(store).folder("toy", second).path.name == "toy"


def test_a_number_that_another_functions_name_has_is_left_out(store):
    owners = [Owner() for _ in range(5)]
    names = ("toy", "toy_2", "toy", "toy", "toy_2")
    found = [store.folder(name, owner).name for name, owner in zip(names, owners)]
    assert found == ["toy", "toy_2", "toy_3", "toy_4", "toy_2_2"]


def test_the_folder_of_a_dead_owner_is_not_given_away(store):
    owner = Owner()
    alive = weakref.ref(owner)
    assert store.folder("toy", owner).name == "toy"
    del owner
    gc.collect()
    assert alive() is None
    assert store.folder("toy", Owner()).name == "toy_2"
    assert store.folder("toy").name == "toy_3"
    assert store.folder("toy").name == "toy_3"


@pytest.mark.parametrize("name", ["a b", "<lambda>", "../up", "x" * 500, "", "...", "a/b", "naïve", "tab\there"])
def test_names_are_safe_files(name):
    safe = file_name(name)
    assert safe
    assert len(safe) <= 100
    assert not set(safe) - set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")
    assert not safe.startswith(".")


def test_long_names_stay_apart():
    assert file_name("x" * 200 + "a") != file_name("x" * 200 + "b")


def test_children_nest(store):
    folder = store.folder("toy").child("entry_0").child("resume_at_8")
    assert folder.write("transformed.py", TEXT).path == store.root / "toy/entry_0/resume_at_8/transformed.py"
    assert (store.root / "toy" / store_module.MANIFEST).is_file()


def test_equal_text_does_not_touch_the_file(store):
    path = store.folder("toy").write("a.py", TEXT).path
    os.utime(path, (1, 1))
    artifact = again(store).folder("toy").write("a.py", TEXT)
    assert not artifact.edited
    assert path.stat().st_mtime == 1


def test_new_text_replaces_ours(store):
    store.folder("toy").write("a.py", TEXT)
    artifact = again(store).folder("toy").write("a.py", TEXT + "\n# more\n")
    assert artifact.path.read_text() == artifact.text == TEXT + "\n# more\n"
    assert not list(store.root.rglob("*.stale"))


def test_an_edit_is_kept_and_runs(store, capsys, caplog):
    caplog.set_level("INFO", "torchglass.store")
    path = store.folder("toy").write("a.py", TEXT).path
    path.write_text(TEXT.replace("2", "3"))
    for _ in range(2):  # and is still an edit on the run after
        caplog.clear()
        later = again(store).folder("toy")
        artifact = later.write("a.py", TEXT)
        assert artifact.edited
        assert load_python(artifact).f(2) == 6
        later.write("a.py", TEXT)
        error = capsys.readouterr().err
        assert error.count("using the edited file") == 1
        assert str(path) in error
        assert [r.name for r in caplog.records] == ["torchglass.store"]


def test_an_edit_of_text_that_changed_since_is_set_aside(store, capsys):
    path = store.folder("toy").write("a.py", TEXT).path
    path.write_text("# mine\n")
    artifact = again(store).folder("toy").write("a.py", TEXT + "# new\n")
    assert not artifact.edited
    assert path.read_text() == TEXT + "# new\n"
    assert path.with_name("a.py.stale").read_text() == "# mine\n"
    assert "set aside as a.py.stale" in capsys.readouterr().err
    assert not again(store).folder("toy").write("a.py", TEXT + "# new\n").edited


@pytest.mark.parametrize("left", range(4))
@pytest.mark.parametrize("before", [None, TEXT, "# mine\n"])
def test_a_process_that_is_killed_leaves_no_edit(store, monkeypatch, capsys, before, left):
    """After so many files, of the text and the manifest: what follows finds either text of ours, and no person's."""
    if before is not None:
        store.folder("toy").write("a.py", TEXT).path.write_text(before)
    writes, write = iter(range(10)), files.write_atomically

    def killed(path, content):
        if path.name.endswith(".stale") or next(writes) < left:
            write(path, content)

    monkeypatch.setattr(files, "write_atomically", killed)
    store.folder("toy").write("a.py", TEXT + "# new\n")
    monkeypatch.undo()
    if before == "# mine\n" and left == 0:
        return  # the edit is still there, to be set aside
    capsys.readouterr()
    for text in (TEXT + "# newer\n", TEXT):
        artifact = again(store).folder("toy").write("a.py", text)
        assert not artifact.edited and artifact.path.read_text() == text
    assert not capsys.readouterr().err
    assert [p.read_text() for p in store.root.rglob("*.stale*")] == (["# mine\n"] if before == "# mine\n" else [])
    artifact.path.write_text(TEXT + "# new\n")  # a person brings back what was struck
    assert again(store).folder("toy").write("a.py", TEXT).edited


@pytest.mark.parametrize("manifest", [None, "no json", "[]", '"text"', "{"])
def test_a_lost_manifest_loses_no_edit(store, manifest):
    path = store.folder("toy").write("a.py", TEXT).path
    path.write_text("# mine\n")
    where = store.root / "toy" / store_module.MANIFEST
    where.unlink() if manifest is None else where.write_text(manifest)
    again(store).folder("toy").write("a.py", TEXT)
    assert path.read_text() == TEXT
    assert path.with_name("a.py.stale").read_text() == "# mine\n"


def test_forget_edits(store):
    kept = store.folder("toy").write("kept.py", TEXT).path
    edited = store.folder("toy").write("edited.py", TEXT).path
    edited.write_text("# mine\n")
    assert again(store).forget_edits() == [edited]
    assert kept.exists()
    assert again(store).folder("toy").write("edited.py", TEXT).path.read_text() == TEXT


def test_odd_text_round_trips(store):
    text = "# \u2028 caf\u00e9 \udce9 \r\n\tx = 1\r"
    first = store.folder("toy").write("a.py", text)
    assert again(store).folder("toy").write("a.py", text) == first


def test_many_threads_write_one_folder(store):
    folder = store.folder("toy")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: folder.child(f"entry_{n % 4}").write("a.py", TEXT), range(64)))
    assert len(list(store.root.rglob("a.py"))) == 4
    assert not [p for p in store.root.rglob(".*") if p.name.startswith(".a.py")]


def test_load_python_has_the_files_name_and_stays_out_of_sys_modules(store):
    artifact = store.folder("toy").write("bad.py", "LIMIT = 1\n\ndef f():\n    raise KeyError(HERE)\n")
    module = load_python(artifact, {"HERE": "here"})
    with pytest.raises(KeyError, match="here") as caught:
        module.f()
    frame = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert (frame.filename, frame.lineno, frame.line) == (str(artifact.path), 4, "raise KeyError(HERE)")
    assert linecache.getline(str(artifact.path), 1) == "LIMIT = 1\n"
    assert module not in sys.modules.values()


def test_a_broken_edit_names_file_and_line(store):
    artifact = store.folder("toy").write("a.py", "def f(:\n")
    with pytest.raises(SyntaxError) as caught:
        load_python(artifact)
    assert (caught.value.filename, caught.value.lineno) == (str(artifact.path), 1)


def test_use_nests_and_is_seen_by_other_threads(tmp_path):
    seen = []
    with use(tmp_path / "outer") as outer:
        with use(tmp_path / "inner") as inner:
            thread = threading.Thread(target=lambda: seen.append(current_store()))
            thread.start()
            thread.join()
        assert current_store() is outer
    assert seen == [inner]
    with use(tmp_path / "outer") as reentered:
        assert reentered is outer  # names go on counting within a run


def test_the_environment_names_the_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHGLASS_DIR", str(tmp_path / "glass"))
    assert current_store().root == tmp_path / "glass"
    assert current_store() is current_store()
    with use(tmp_path / "other") as other:
        assert current_store() is other


def test_a_relative_folder_stays_where_it_was_when_the_program_changes_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with use("glass") as store:
        monkeypatch.chdir("/")
        assert Path(store.root) == tmp_path / "glass"


@pytest.mark.complains("No space left")
def test_a_full_disk(tmp_path, monkeypatch):
    """Functions are compiled from the texts then, forward and backward, and a line in the log says why."""

    def full(path, text):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(files, "write_atomically", full)
    with tg.prepare_debug(tmp_path):
        compiled = tg.compile(lambda x: (x.sin() * 2).sum())
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for _ in range(2):
                x = torch.ones(3, requires_grad=True)
                compiled(x).backward()
                torch.testing.assert_close(x.grad, 2 * torch.ones(3).cos())
    record = tg.explain(compiled).record
    assert not record.fallbacks and not list(tmp_path.rglob("*.py"))
    assert {side.name for side in record.entries[0].graphs[0].sides if side.kernels} == {"forward", "backward"}


@pytest.mark.complains("cannot be written")
def test_a_file_in_the_folders_place(tmp_path):
    """Kernels run all the same, from the texts."""
    root = tmp_path / "glass"
    with tg.prepare_debug(root):
        tg.compile(lambda x: x * 2)(torch.ones(3))
        shutil.rmtree(root)
        root.write_text("a file")
        compiled = tg.compile(lambda x: (x * 2).sin() + 1)
        torch.testing.assert_close(compiled(torch.ones(3)), torch.ones(3).mul(2).sin() + 1)
    assert not tg.explain(compiled).record.fallbacks and root.read_text() == "a file"


@pytest.mark.parametrize("place", [".processes", "f/.processes"])
def test_a_pipe_in_a_files_place_holds_nobody_up(tmp_path, place):
    program = (
        "from pathlib import Path; from torchglass.runtime import neighbours; import sys; "
        "here, folder = neighbours.at(Path(sys.argv[1])), Path(sys.argv[1], 'f'); print(here.others(folder))"
    )
    pipe = tmp_path / place
    pipe.parent.mkdir(exist_ok=True)
    os.mkfifo(pipe)
    done = subprocess.run([sys.executable, "-c", program, tmp_path], timeout=60, capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="no /proc")
def test_a_folder_in_a_files_place_leaves_nothing_open(tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        with pytest.raises(OSError, match="is not a file"):
            files.read(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before
