"""Transformers' architectures from tiny random configurations: right always, whole nearly always."""

import json
import subprocess
import sys

import pytest

pytest.importorskip("transformers")

from .report import counts, markdown

# One of each kind: encoder, decoder, encoder-decoder, mixture of experts, state space, vision, audio, both.
SAMPLE = ["deberta-v2", "gemma3_text", "t5", "mixtral", "mamba", "wav2vec2", "swin", "clip"]
LEAST_WHOLE = 239  # what torch.compile 2.13 captures whole of the 247 it was measured on


def swept(tmp_path, *arguments: str, module: str = "tests.sweep.architectures") -> list[dict]:
    """The sweep in a process of its own, since it forks."""
    file = tmp_path / "rows.json"
    command = [sys.executable, "-W", "ignore", "-m", module, *arguments, "--json", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert file.exists(), done.stderr[-2000:]
    rows = json.loads(file.read_text())
    print(markdown(rows, " ".join(command)))
    return rows


@pytest.mark.parametrize(
    "training", [pytest.param([], marks=pytest.mark.slow), ["--training"]], ids=["inference", "training"]
)
def test_a_sample_is_captured_whole(tmp_path, training):
    names = SAMPLE[::2] if training else SAMPLE[1::2]
    rows = swept(tmp_path, "--only", *names, *training)
    assert [(r["name"], r["result"]) for r in rows] == [(n, "whole") for n in sorted(names)]


@pytest.mark.slow
@pytest.mark.parametrize("training", [[], ["--training"]], ids=["inference", "training"])
def test_every_architecture(tmp_path, training):
    rows = swept(tmp_path, "--jobs", "2", "--timeout", "300", *training)
    bad = [(r["name"], r["why"]) for r in rows if r["result"] in ("wrong", "crashed")]
    assert not bad
    assert counts(rows)["whole"] >= LEAST_WHOLE


@pytest.mark.slow
@pytest.mark.parametrize("training", [[], ["--training"]], ids=["inference", "training"])
def test_every_tenth_with_generated_code(tmp_path, training):
    rows = swept(tmp_path, "--jobs", "2", "--timeout", "600", "--backend", "glass", "--every", "10", *training)
    assert not [(r["name"], r["why"]) for r in rows if r["result"] in ("wrong", "crashed")]


@pytest.mark.slow
@pytest.mark.parametrize("training", [[], ["--training"]], ids=["inference", "training"])
def test_image_models(tmp_path, training):
    pytest.importorskip("timm")
    arguments = ["--jobs", "2", "--timeout", "600", "--every", "2" if training else "1", *training]
    rows = swept(tmp_path, *arguments, module="tests.sweep.image_models")
    assert not [(r["name"], r["why"]) for r in rows if r["result"] in ("wrong", "crashed")]
    found = counts(rows)
    assert found["whole"] >= 0.95 * (len(rows) - found.get("skipped", 0))
