"""report.html in a browser: the page of real compiles and of a graph of 3,000 nodes. Skipped without Chromium."""

import functools
import shutil

import pytest
import torch

import torchglass as tg
from torchglass.inspector.report import report
from torchglass.inspector.sources import Sources
from torchglass.records.compilation import EntryRecord, FunctionRecord, GraphRecord, NodeRow, SideRecord
from torchglass.records.guards import Guard
from torchglass.records.origin import Origin

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip


def toy_example(a, b):
    x = a / (torch.abs(a) + 1)
    if b.sum() < 0:
        b = b * -1
    return x * b


FIRST = toy_example.__code__.co_firstlineno


@pytest.fixture(scope="module")
def browser():
    api = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("no Chromium")
    with api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield started
        started.close()


@pytest.fixture(scope="module")
def toy_page(tmp_path_factory):
    """The toy example's report, both sides of its branch compiled and trained."""
    tg.reset()
    with tg.prepare_debug(tmp_path_factory.mktemp("glass")) as folder:
        compiled = tg.compile(toy_example)
        for sign in (1, -1):
            compiled(torch.randn(10, requires_grad=True), sign * torch.ones(10)).sum().backward()
    return folder / "toy_example" / "report.html"


@pytest.fixture
def page(browser):
    """A tab that fails the test when the page logs an error or asks the network for anything."""
    tab = browser.new_page(viewport={"width": 1500, "height": 900})
    wrong: list[str] = []
    tab.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.on("request", lambda request: wrong.append(request.url) if request.url.startswith("http") else None)
    yield tab
    assert not wrong
    tab.close()


def test_a_click_on_a_line_shows_its_nodes_loops_and_kernels_and_back(page, toy_page):
    page.goto(toy_page.as_uri())
    assert page.locator("header").inner_text().startswith("toy_example")
    line = page.locator(".ln", has_text="x = a / (torch.abs(a) + 1)")
    assert "f-kernel" in line.get_attribute("class")
    assert line.locator(".badge").all_inner_texts() == ["3 nodes", "2 kernels", "+1"]
    assert "2 recomputed: " in line.get_attribute("title") and "(forward 1, backward 1)" in line.get_attribute("title")
    line.click()
    panel = page.locator("#panel")
    assert panel.locator("h3").all_inner_texts()[1:] == ["Nodes", "Loops", "Kernels", "Guards it needed"]
    panel.locator("tr.go", has_text="truediv = a / add").first.click()
    assert page.locator("#picture .node.sel").text_content().startswith("truediv = a / add")
    assert "sel" in line.get_attribute("class")
    # from the node to a loop, from the loop to its kernel, whose lines lead back
    page.locator("#detail a.jump", has_text="truediv").first.click()
    assert page.locator("#panel pre").first.inner_text().startswith("loop truediv over [10]:")
    page.locator("#panel a.jump", has_text="kernel_0").first.click()
    assert "static void kernel_0" in page.locator("#panel pre").first.inner_text()
    page.locator("#panel p a.jump", has_text=f":{FIRST + 1}").first.click()
    assert "sel" in line.get_attribute("class")


def test_a_node_leads_to_its_line(page, toy_page):
    page.goto(toy_page.as_uri())
    page.locator("button[data-tab=graphs]").click()
    page.select_option("#graph", "1")
    page.locator("#picture .node", has_text="b * (-1)").click()
    assert page.locator(".ln.sel").get_attribute("data-line") == f"0:{FIRST + 3}"


def test_the_flow_chart_leads_to_graphs_and_breaks(page, toy_page):
    page.goto(toy_page.as_uri())
    chart = page.locator(".picture svg")
    assert chart.locator("g.go").count() == 10
    assert chart.locator("path[marker-end]").count() == 9
    chart.locator("g.go", has_text="break at").click()
    assert "a branch on the value of a tensor" in page.locator("#panel").inner_text()
    page.locator("button[data-tab=flow]").click()
    page.locator(".picture g.go", has_text="graph_0").nth(2).click()
    assert "resume_at_" in page.locator("#graph option:checked").inner_text()


def test_tables_sort_and_filter(page, toy_page):
    page.goto(toy_page.as_uri())
    page.locator("button[data-tab=guards]").click()
    rows = page.locator("#panel tbody tr")
    total = rows.count()
    page.locator("input.filter").fill("requires_grad")
    assert 0 < rows.count() < total
    page.locator("input.filter").fill("")
    page.locator("th", has_text="runs if").click()
    cells = page.locator("#panel tbody td:nth-child(2)").all_inner_texts()
    page.locator("th", has_text="runs if").click()
    assert page.locator("#panel tbody td:nth-child(2)").all_inner_texts() == cells[::-1]


def test_search_finds_lines_nodes_and_kernels(page, toy_page):
    page.goto(toy_page.as_uri())
    page.locator("#search").fill("sum_1")
    page.locator("#found div", has_text="captured sum_1 = b.sum()").click()
    assert page.locator("#picture .node.sel").text_content().startswith("sum_1")


@pytest.mark.parametrize("tab", ["loops", "kernels", "code", "breaks", "recompiles", "fusion", "memory", "time"])
def test_every_tab_shows_something(page, toy_page, tab):
    page.goto(toy_page.as_uri())
    page.locator(f"button[data-tab={tab}]").click()
    assert len(page.locator("#panel").inner_text()) > 20


def other_file(directory):
    """A line of a file of its own, which only a guard comes from."""
    path = directory / "settings.py"
    path.write_text("LEVEL = 3\n")
    return Origin(str(path), 1, "<module>")


def test_files_without_operations_are_folded_below_the_others(page, tmp_path):
    here = Origin(__file__, FIRST + 1, "toy_example")
    graph = GraphRecord(
        "graph_0", [SideRecord("captured", nodes=(NodeRow("x", "call_function", "x = abs(a)", (), "", 20, here),))]
    )
    level = other_file(tmp_path)
    entry = EntryRecord(0, (Guard(None, "level", 3, "was read", level),), "", "", (graph,))
    path = tmp_path / "report.html"
    path.write_text(report(FunctionRecord("toy_example", level, entries=[entry])))
    page.goto(path.as_uri())
    assert page.locator("#source h2").text_content().startswith("test_report.py 1 line at work")
    folded = page.locator("#source details")
    assert "settings.py" in folded.locator("summary").text_content() and folded.get_attribute("open") is None
    page.locator("#tabs button", has_text="Guards").click()
    page.locator("#panel a.jump", has_text="settings.py:1").click()
    selected = page.locator("#source .ln.sel")
    assert selected.is_visible() and "LEVEL = 3" in selected.text_content()


def test_three_thousand_nodes(page, tmp_path):
    source = tmp_path / "big.py"
    source.write_text("def big(x):\n" + "    x = x + 1\n" * 3000)
    line = lambda n: Origin(str(source), n, "big")
    rows = [NodeRow("x", "placeholder", "x", (), "float32[8]", 0)]
    for n in range(1, 3000):
        rows.append(
            NodeRow(f"add_{n}", "call_function", f"add_{n} = x + 1", (rows[-1].name,), "float32[8]", n, line(n + 1))
        )
    graph = GraphRecord("graph_0", [SideRecord("captured", nodes=tuple(rows))], node_count=3000)
    record = FunctionRecord("big", line(1), tmp_path, [EntryRecord(0, graphs=(graph,))])
    path = tmp_path / "report.html"
    path.write_text(report(record))
    page.goto(path.as_uri())
    page.locator("button[data-tab=graphs]").click()
    assert page.locator("#picture .node").count() == 3000
    page.locator("#search").fill("add_2990")
    page.locator("#found div", has_text="add_2990").first.click()
    assert page.locator(".ln.sel").get_attribute("data-line") == "0:2991"
    assert page.locator("#picture .node.sel").is_visible()


def test_nothing_in_the_record_can_end_the_script():
    entry = EntryRecord(0, transformed_text="</script><script>alert(1)</script><!--")
    text = report(FunctionRecord("</title><b>", entries=[entry]))
    assert text.count("</script>") == 2 and "<!--" not in text
    assert "<b>" not in text.partition("</head>")[0]


def test_the_shown_source_is_the_functions_that_took_part(tmp_path):
    path = tmp_path / "m.py"
    path.write_text(
        "import torch\n\ndef other():\n    pass\n\n@decorated\ndef f(\n    x,\n):\n    y = x\n\n    return y\n\nz = 1\n"
    )
    sources = Sources()
    assert sources.key(Origin(str(path), 10, "f")) == "0:10"
    assert [number for number, _ in sources.pieces()[0]["lines"]] == list(range(6, 13))
    assert sources.key(Origin("<unknown>", 0, "")) == ""


@pytest.fixture(scope="module")
def two_sizes_page(tmp_path_factory):
    """A decorated function called with two sizes: two entries of one graph each, no break."""

    def passes_on(function):
        @functools.wraps(function)
        def outer(*args):
            return function(*args)

        return outer

    @passes_on
    def scaled(x):
        return (x.sin() * 2).softmax(-1)

    tg.reset()
    with tg.prepare_debug(tmp_path_factory.mktemp("glass")) as folder:
        compiled = tg.compile(scaled)
        for size in (4, 6):
            compiled(torch.randn(3, size, requires_grad=True)).sum().backward()
    return folder / "two_sizes_page.scaled" / "report.html", scaled.__wrapped__.__code__.co_firstlineno


def test_counts_are_of_the_entry_that_is_chosen(page, two_sizes_page):
    page.goto(two_sizes_page[0].as_uri())
    badge = page.locator(".ln", has_text="x.sin() * 2").locator(".badge").first
    assert page.locator("#entry").input_value() == "0" and badge.inner_text() == "3 nodes"
    page.select_option("#entry", "-1")
    assert badge.inner_text() == "6 nodes"


def test_the_header_names_the_functions_file_and_not_its_decorators(page, two_sizes_page):
    page.goto(two_sizes_page[0].as_uri())
    assert f"test_report.py:{two_sizes_page[1]} " in page.locator("#summary").inner_text()


def test_columns_that_never_change_are_said_once_and_empty_tabs_are_grey(page, two_sizes_page):
    page.goto(two_sizes_page[0].as_uri())
    assert "empty" in page.locator("[data-tab=breaks]").get_attribute("class")
    page.click("[data-tab=fusion]")
    assert "graph" not in page.locator("#Tfusion th").all_inner_texts()
    assert "scaled entry 0, graph_0" in page.locator("#Tfusion .said").inner_text()


@pytest.mark.parametrize("size", [(1440, 900), (1920, 1200)])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_runs_off_the_right_edge(browser, two_sizes_page, size, scheme):
    tab = browser.new_page(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
    tab.goto(two_sizes_page[0].as_uri())
    assert (tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(244, 245, 247)") is (
        scheme == "light"
    )
    for name in ("guards", "fusion", "memory", "kernels", "recompiles"):
        tab.click(f"[data-tab={name}]")
        assert tab.evaluate("(p => p.scrollWidth <= p.clientWidth)(document.getElementById('panel'))"), name
    tab.close()
