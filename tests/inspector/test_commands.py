"""``python -m torchglass run``, ``report``, ``diff``, ``bench``."""

import os
import subprocess
import sys

import pytest

from torchglass.__main__ import main

PROGRAM = """
import torch, torchglass as tg

class Scale:
    by = 3.0

def scaled(x, n=2, *, scale=Scale):
    x = x * scale.by
    tg.graph_break()
    print("break")
    return x * n

if __name__ == "__main__":
    import sys
    print(tg.compile(scaled)(torch.ones(int(sys.argv[1]))))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What ``run`` leaves of a program."""
    path = tmp_path_factory.mktemp("commands")
    (path / "program.py").write_text(PROGRAM)
    run = [sys.executable, "-m", "torchglass", "run", "--dir", str(path / "glass"), str(path / "program.py"), "3"]
    done = subprocess.run(run, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "break\ntensor([6., 6., 6.])\n"
    assert "torchglass: scaled: 2 entries, 2 graphs, 1 graph break" in done.stderr
    return path / "glass"


def test_what_run_left_runs_in_another_process(folder):
    use = "import torch, full_code; print(full_code.scaled(torch.ones(3)))"
    done = subprocess.run([sys.executable, "-c", use], capture_output=True, text=True, cwd=folder / "scaled")
    assert done.stdout == "break\ntensor([6., 6., 6.])\n", done.stderr


def test_report(folder, capsys):
    assert main(["report", str(folder)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("scaled: 2 entries, 2 graphs, 1 graph break, 2 kernels, compiled in")
    assert "graph break at program.py:9" in said
    assert main(["report", str(folder.parent / "nowhere")]) == 1


def test_diff(folder, tmp_path, capsys):
    program = folder.parent / "program.py"
    (tmp_path / "program.py").write_text(program.read_text().replace("return x * n", "return x * n + 1"))
    command = [sys.executable, "-m", "torchglass", "run", "--dir", str(tmp_path / "glass")]
    run = [*command, str(tmp_path / "program.py"), "3"]
    subprocess.run(run, check=True, capture_output=True)
    assert main(["diff", str(folder), str(folder)]) == 0
    assert capsys.readouterr().out == "scaled: the same\n"
    assert main(["diff", "--text", str(folder), str(tmp_path / "glass")]) == 1
    said = capsys.readouterr().out
    assert "operations: 6 -> 7" in said
    assert "graph_0/captured.py: " in said and "+    add = mul + 1" in said
    assert main(["diff", str(folder), str(tmp_path)]) == 1
    assert main(["diff", str(folder), str(tmp_path / "nowhere")]) == 2


@pytest.mark.slow
@pytest.mark.parametrize("explains", [False, True])
def test_bench(folder, explains, capfd):
    program = folder.parent / "program.py"
    if explains:
        text = program.read_text() + "    tg.explain(tg.compile(scaled))\n"
        program = program.with_name("explaining.py")
        program.write_text(text)
    assert main(["bench", "--repeats", "1", str(program), "3"]) == 0
    said = capfd.readouterr().out
    assert "eager" in said and "torchglass" in said and "compiling" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "required: SUBCOMMAND"),
        (("frobnicate",), "invalid choice: 'frobnicate'"),
        (("run",), "required: script"),
        (("run", "/no/such/script.py"), "no such file: /no/such/script.py"),
        (("run", "--runs", "code", __file__), "invalid choice: 'code'"),
        (("report", "/no/such/folder"), "/no/such/folder has no artifacts"),
        (("diff", "/no/such/folder"), "required: after"),
        (("diff", "/no/such/folder", "/no/other"), "/no/such/folder has no artifacts"),
        (("bench", "/no/such/script.py"), "no such file: /no/such/script.py"),
        (("bench", "--repeats", "0", __file__), "'0' is no number of runs"),
        (("decompile", "no_such_module:f"), "cannot import 'no_such_module'"),
        (("decompile", "json:nothing"), "no 'nothing' in json"),
    ],
)
def test_wrong_arguments_are_said(arguments, said, capsys):
    try:
        status = main(list(arguments))
    except SystemExit as end:  # argparse's own way
        status = end.code
    assert status in (1, 2) and said in capsys.readouterr().err


def test_folders_that_vanish_meanwhile_are_left_out(tmp_path, capsys, monkeypatch):
    (tmp_path / "gone").mkdir()
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/full_code.py").touch()
    scandir = os.scandir

    def vanishing(path):
        if os.path.basename(path) == "gone":
            raise FileNotFoundError(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", vanishing)
    assert main(["report", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("kept: ")
