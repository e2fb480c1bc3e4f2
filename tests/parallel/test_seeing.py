"""explain, README.md and the folder's files say where a backward is cut, and for which bucket."""

from pathlib import Path

from tests.parallel import models
from tests.parallel.training import data, parallel

import torchglass as tg


def told(rank, folder):
    tg.reset()
    with tg.prepare_debug(Path(folder) / str(rank)):
        model = tg.compile(models.Layers())
        ddp = parallel(model)
        for step in range(3):
            ddp(data(rank, step)).sum().backward()
        return str(tg.explain(model))


def test_segments_and_their_buckets(ranks, tmp_path):
    for rank, text in enumerate(ranks(told, str(tmp_path))):
        assert "Segments of the backward" in text and "bucket 1 of DistributedDataParallel" in text
        (whole,) = (tmp_path / str(rank)).rglob("backward_2.py")
        lines = [line.strip() for line in whole.read_text().splitlines() if "# --- segment" in line]
        assert [line[:24] for line in lines] == ["# --- segment 0, up to b", "# --- segment 1, up to b"]
        assert "bucket 0 of DistributedDataParallel (8.2 KB: " in lines[0]
        segment = whole.with_name("backward_2_segment_1.py").read_text()
        assert "up to bucket 1" in segment.splitlines()[0]
        assert "backward_2_segment_0 runs up to bucket 0" in next((tmp_path / str(rank)).rglob("README.md")).read_text()
