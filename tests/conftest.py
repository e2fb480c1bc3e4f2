"""No test may pass because Python did in silence what the compiled code could not."""

from __future__ import annotations

import pytest
from tests.complaints import complaints

from torchglass.process import fallbacks


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
