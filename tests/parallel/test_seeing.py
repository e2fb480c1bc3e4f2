"""explain, README.md and the folder's files say where a backward is cut, and for which bucket."""

import json
import re
from pathlib import Path

from tests.parallel import models
from tests.parallel.training import data, parallel

import torchglass as tg

WIDTH = 28  # another than in other tests, whose kernels would lie in this one's folder, which goes with it


def told(rank, folder):
    tg.reset()
    with tg.prepare_debug(Path(folder) / str(rank)):
        model = tg.compile(models.Layers(width=WIDTH))
        ddp = parallel(model)
        for step in range(4):
            ddp(data(rank, step, 8, WIDTH)).sum().backward()
        explanation = tg.explain(model)
        return str(explanation), explanation.to_dict()["entries"][0]["graphs"][0]["segments"], explanation.to_html()


def test_segments_and_their_buckets(ranks, tmp_path):
    for rank, (text, segments, page) in enumerate(ranks(told, str(tmp_path))):
        assert "Segments of the backward" in text and "bucket 1 of DistributedDataParallel" in text
        assert "ready after" in text and "of later segments" in text
        assert [row["bucket"] for row in segments] == [0, 1]
        numbers = sum(p.numel() for p in models.Layers(width=WIDTH).parameters())
        assert sum(row["bytes"] for row in segments) == 4 * numbers
        times = [time for row in segments for time in (row["begin"], row["ready"])]
        assert times == sorted(times) and times[0] == 0 < times[1]
        assert segments[0]["behind"] > segments[1]["behind"] == 0
        (shown,) = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])["graphs"]
        assert [row[0] for row in shown["segments"]] == [row["side"] for row in segments]
        (whole,) = (tmp_path / str(rank)).rglob("backward_2.py")
        lines = [line.strip() for line in whole.read_text().splitlines() if "# --- segment" in line]
        assert [line[:24] for line in lines] == ["# --- segment 0, up to b", "# --- segment 1, up to b"]
        assert "bucket 0 of DistributedDataParallel (6.3 KB: " in lines[0]
        segment = whole.with_name("backward_2_segment_1.py").read_text()
        assert "up to bucket 1" in segment.splitlines()[0]
        assert "backward_2_segment_0 runs up to bucket 0" in next((tmp_path / str(rank)).rglob("README.md")).read_text()
