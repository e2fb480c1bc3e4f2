"""Without TORCHGLASS_CACHE entries are kept in the user's cache folder, if files say all that they rely on."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .processes import Outcome, run, same

HEAD = "import os, sys, types, torch, torchglass as tg\n"
PROGRAM = (
    HEAD
    + """
def f(x):
    return x.sin() * 2
def main():
    return tg.compile(f, options=OPTIONS)(torch.ones(3))
"""
)
PLAIN = PROGRAM.replace("OPTIONS", "None")


def unasked(text: str, cache: Path, file: Path | None, switch: str | None = None, loaded: bool = True) -> Outcome:
    """A program that nobody has said anything to, whose user's cache folder is ``cache``. ``loaded``: its file was
    there before the process began, as it is for those that pytest has not forked.
    """

    def before() -> None:
        from torchglass.cache import modules

        del os.environ["TORCHGLASS_CACHE"]
        if switch is not None:
            os.environ["TORCHGLASS_CACHE"] = switch
        os.environ["XDG_CACHE_HOME"] = str(cache)
        if loaded:
            modules._BEGAN = time.time() + 1

    return run(text, None, before=before, file=file)


def kept(cache: Path) -> list[Path]:
    return list(cache.glob("torchglass/entries/*/[0-9]*"))


def test_nothing_is_asked_and_the_second_process_compiles_nothing(tmp_path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        PLAIN + "import logging\nlogging.basicConfig(level=20, stream=sys.stdout)\nprint(main().tolist())\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "TORCHGLASS_CACHE"}
    environment["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    said = [
        subprocess.run([sys.executable, program], env=environment, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert " is compiled" in said[0] and " was kept in " in said[1] and " is compiled" not in said[1]
    assert said[0].splitlines()[-1] == said[1].splitlines()[-1]
    assert (tmp_path / "cache/torchglass/entries").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("switch", ["", "0", "off", "OFF"])
def test_switched_off(tmp_path, switch: str) -> None:
    for _ in range(2):
        assert unasked(PLAIN, tmp_path / "cache", tmp_path / "program.py", switch=switch).compiled
    assert not (tmp_path / "cache/torchglass/entries").exists()


def test_switched_off_for_a_function(tmp_path) -> None:
    text = PROGRAM.replace("OPTIONS", '{"cache": False}')
    for _ in range(2):
        assert unasked(text, tmp_path / "cache", tmp_path / "program.py").compiled
        assert run(text, tmp_path / "asked").compiled
    assert not kept(tmp_path / "cache") and not list((tmp_path / "asked").glob("*/*"))


def test_the_same_file_elsewhere_is_found(tmp_path) -> None:
    """ai-dynamo#10695: what a file says counts, not where it lies, or the same pod misses."""
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    first = unasked(PLAIN, tmp_path / "cache", tmp_path / "one/program.py")
    second = unasked(PLAIN, tmp_path / "cache", tmp_path / "two/another.py")
    assert first.compiled and second.found and not second.compiled and same(first.result, second.result)


NO_FILE = {
    "a prompt": ("<stdin>", "def f(x):\n    return x + 1\n"),
    "an argument": ("<string>", "def f(x):\n    return x + 1\n"),
    "a notebook's cell": ("/tmp/ipykernel_1/2.py", "def f(x):\n    return x + 1\n"),
}


@pytest.mark.parametrize("name", NO_FILE)
def test_code_that_lies_in_no_file(tmp_path, name: str) -> None:
    """Where a person has not asked: what else runs of such a module nobody can compare."""
    place, text = NO_FILE[name]
    program = HEAD + f"exec(compile({text!r}, {place!r}, 'exec'))\n"
    program += "def main():\n    return tg.compile(f)(torch.ones(3))\n"
    for _ in range(2):
        outcome = unasked(program, tmp_path / "cache", tmp_path / "program.py")
        assert outcome.compiled and any("its code lies in no file" in line for line in outcome.said)
    assert not kept(tmp_path / "cache")
    assert run(program, tmp_path / "asked").compiled and run(program, tmp_path / "asked").found


def test_a_class_of_a_module_without_a_file(tmp_path) -> None:
    made = "class K:\n    def __call__(self, x):\n        return x + 1\n"
    program = HEAD + f"made = sys.modules['made'] = types.ModuleType('made')\nexec({made!r}, vars(made))\n"
    program += "k = made.K()\ndef f(x):\n    return k(x)\ndef main():\n    return tg.compile(f)(torch.ones(3))\n"
    for _ in range(2):
        outcome = unasked(program, tmp_path / "cache", tmp_path / "program.py")
        assert outcome.compiled and any("the module made" in line for line in outcome.said)


def test_a_file_that_was_written_after_the_process_began(tmp_path) -> None:
    """It may say something else than what runs."""
    for _ in range(2):
        outcome = unasked(PLAIN, tmp_path / "cache", tmp_path / "program.py", loaded=False)
        assert outcome.compiled and any("was written after this process began" in line for line in outcome.said)


RUNS_AS_IT_IS = {
    "a metaclass": """
class Meta(type):
    def __call__(cls, *args):
        made = super().__call__(*args)
        made.k = NUMBER
        return made
class K(metaclass=Meta):
    pass
def f(x):
    return x * K().k
""",
    "a module's __getattr__": """
def __getattr__(name):
    return NUMBER
def f(x):
    return x * sys.modules[__name__].k
""",
    "a function whose answer is held constant": """
from torch.compiler import assume_constant_result
@assume_constant_result
def h():
    return torch.tensor([float(NUMBER)])
def f(x):
    return x * h()
""",
}


@pytest.mark.parametrize("name", RUNS_AS_IT_IS)
def test_code_that_runs_as_it_is_has_changed(tmp_path, name: str) -> None:
    text = HEAD + RUNS_AS_IT_IS[name] + "def main():\n    return tg.compile(f)(torch.ones(3))\n"
    for number in (2, 3, 2):
        outcome = unasked(text.replace("NUMBER", str(number)), tmp_path / "cache", tmp_path / "program.py")
        assert outcome.result.tolist() == [number] * 3


def test_a_constant_that_is_read_from_elsewhere(tmp_path) -> None:
    """The program's file is the same, and its answer another one."""
    text = HEAD + RUNS_AS_IT_IS["a function whose answer is held constant"].replace(
        "NUMBER", "os.environ['WARM_NUMBER']"
    )
    text += f"{'def main():'}\n    os.environ['WARM_NUMBER'] = open({str(tmp_path / 'number')!r}).read()\n"
    text += "    return tg.compile(f)(torch.ones(3))\n"
    for number in ("2", "3"):
        (tmp_path / "number").write_text(number)
        outcome = unasked(text, tmp_path / "cache", tmp_path / "program.py")
        assert outcome.result.tolist() == [float(number)] * 3


@pytest.mark.parametrize("which", ["itself", "a parent"])
def test_a_folder_of_others_is_left_alone_without_a_word(tmp_path, which: str) -> None:
    place = tmp_path / "cache/torchglass/entries"
    place.mkdir(parents=True)
    (place if which == "itself" else tmp_path / "cache").chmod(0o777)
    for _ in range(2):
        outcome = unasked(PLAIN, tmp_path / "cache", tmp_path / "program.py")
        assert outcome.compiled and any("keeps no entries in" in line for line in outcome.said)
    assert not kept(tmp_path / "cache")


def test_a_cache_that_cannot_be_made(tmp_path) -> None:
    (tmp_path / "cache").write_text("")
    assert unasked(PLAIN, tmp_path / "cache", tmp_path / "program.py").compiled


def test_the_users_folder_does_not_grow_for_ever(tmp_path) -> None:
    """What nobody has used for a month goes when something is added."""
    assert unasked(PLAIN, tmp_path / "cache", tmp_path / "program.py").compiled
    (old,) = kept(tmp_path / "cache")
    os.utime(old, (1e9, 1e9))
    os.utime(tmp_path / "cache/torchglass/entries/.pruned", (1e9, 1e9))
    other = PLAIN.replace("x.sin() * 2", "x.cos() * 3")
    assert unasked(other, tmp_path / "cache", tmp_path / "program.py").compiled
    (left,) = kept(tmp_path / "cache")
    assert left != old
