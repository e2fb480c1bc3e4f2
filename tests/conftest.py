"""No test may pass because Python did in silence what the compiled code could not."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.complaints import complaints

from torchglass.process import fallbacks

os.environ["TORCHGLASS_CACHE"] = "off"  # what a test says of a compile is said of one; tests/cache turn it on

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/golden with what tests print now")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """``golden(text, "c")``: the text is that of tests/golden/<module>/<test>.c, as somebody has reviewed it."""
    module = request.module.__name__.rpartition(".")[2].removeprefix("test_")
    name = request.node.name.removeprefix("test_").translate(str.maketrans("[ ", "-_", "]"))

    def check(text: str, kind: str) -> None:
        path = GOLDEN / module / f"{name}.{kind}"
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"{path} is not there; write it with pytest --update-golden, and review it"
        assert text == path.read_text(), f"{path} differs; review the change, then pytest --update-golden"

    return check


@pytest.fixture(autouse=True)
def nothing_runs_eagerly_unnoticed(request):
    """Fail where torchglass logs a warning, unless ``@pytest.mark.complains("what it says")`` expects it."""
    fallbacks.forget()  # what one test has heard, the next is to hear too
    with complaints() as texts:
        yield
    expected = [text for marker in request.node.iter_markers("complains") for text in marker.args]
    unexpected = [text for text in texts if not any(part in text for part in expected)]
    if unexpected:
        pytest.fail("\n".join(unexpected))
