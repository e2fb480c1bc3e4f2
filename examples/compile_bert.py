"""Compile a BERT for inference and for training, and see what happened.

    make demo
    python examples/compile_bert.py --layers 12

Four layers, hidden size 256, four heads, 4 x 128 tokens, random weights; nothing is downloaded.
"""

import argparse
import logging
import statistics
import time
from functools import partial

import torch
import transformers
from rich.console import Console
from rich.table import Table

import torchglass as tg
from torchglass.inspector.explain import Explanation


def build(layers: int) -> tuple[torch.nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=1000,
        hidden_size=256,
        num_hidden_layers=layers,
        num_attention_heads=4,
        intermediate_size=1024,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return transformers.BertModel(config), torch.randint(0, 1000, (4, 128))


def infer(model: torch.nn.Module, ids: torch.Tensor) -> list[torch.Tensor]:
    with torch.no_grad():
        return [model(ids).last_hidden_state]


def train(model: torch.nn.Module, ids: torch.Tensor) -> list[torch.Tensor]:
    """One step: the output and every parameter's gradient."""
    model.zero_grad(set_to_none=True)
    output = model(ids).last_hidden_state
    (output * torch.linspace(-1, 1, output.numel()).view_as(output)).sum().backward()
    return [output.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]


def milliseconds(calls: list, rounds: int = 15) -> list[float]:
    """Medians, the calls taking turns."""
    taken = [[] for _ in calls]
    for _ in range(rounds):
        for call, rows in zip(calls, taken):
            begin = time.perf_counter()
            call()
            rows.append(time.perf_counter() - begin)
    return [statistics.median(rows) * 1e3 for rows in taken]


def largest_difference(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> float:
    """Of the outputs relative to the largest output, or of the gradients relative to the largest gradient.

    Not tensor by tensor: some gradients are zero but for rounding (those of the keys' biases).
    """
    groups = ((ours[:1], theirs[:1]), (ours[1:], theirs[1:]))
    return max(
        max(float((a - b).abs().max()) for a, b in zip(mine, others, strict=True))
        / max(float(b.abs().max()) for b in others)
        for mine, others in groups
        if others
    )


class Progress(logging.Handler):
    """Shows what the compiler logs as one moving line; nothing where there is no terminal."""

    def __init__(self, status) -> None:
        super().__init__(logging.INFO)
        self.status = status

    def emit(self, record: logging.LogRecord) -> None:
        self.status.update(f"compiling: {record.getMessage()}")


def first_call(console: Console, name: str, call) -> tuple[list[torch.Tensor], float]:
    """Call for the first time, with a progress line; the outcome and the seconds."""
    log = logging.getLogger("torchglass")
    level = log.level
    with console.status(f"compiling {name}") as status:
        handler = Progress(status)
        log.addHandler(handler)
        log.setLevel(logging.INFO)
        begin = time.perf_counter()
        outcome = call()
        seconds = time.perf_counter() - begin
        log.removeHandler(handler)
        log.setLevel(level)
    return outcome, seconds


def measure(name: str, step, layers: int, console: Console) -> tuple[dict[str, str], Explanation]:
    """One column of the table, and the report on what was compiled."""
    model, ids = build(layers)
    model.train(name == "training")
    expected = step(model, ids)
    compiled = tg.compile(model)
    eager_call, our_call = partial(step, model, ids), partial(step, compiled, ids)
    outcome, cold = first_call(console, name, our_call)
    eager, ours = milliseconds([eager_call, our_call])
    report = tg.explain(compiled)
    cells = {
        "eager": f"{eager:.1f} ms",
        "compiled": f"{ours:.1f} ms",
        "times faster": f"{eager / ours:.2f}",
        "graphs": str(len(report.graphs())),
        "graph breaks": str(len(report.breaks())),
        "kernels": str(len(report.kernels())),
        "largest difference": f"{largest_difference(outcome, expected):.1e}",
        "first call": f"{cold:.2f} s",
    }
    return cells, report


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=4)
    chosen = parser.parse_args(arguments)
    console = Console()
    columns = {}
    reports = {}
    for name, step in (("inference", infer), ("training", train)):
        columns[name], reports[name] = measure(name, step, chosen.layers, console)
    stages = list(dict.fromkeys(stage for report in reports.values() for stage in report.seconds_by_stage()))
    table = Table(title=f"BERT, {chosen.layers} layers, {torch.get_num_threads()} threads")
    for heading in ("", *columns):
        table.add_column(heading, justify="right" if heading else "left")
    for row in columns["training"]:
        table.add_row(row, *(cells[row] for cells in columns.values()))
    table.add_section()
    for stage in stages:
        seconds = [report.seconds_by_stage().get(stage) for report in reports.values()]
        table.add_row(f"of that, {stage}", *("" if s is None else f"{s:.2f} s" for s in seconds))
    console.print(table)
    for name, report in reports.items():
        console.print(f"the files that ran for {name}: ", end="")
        found = next((entry.keeping.path for entry in report.record.entries if entry.keeping.found), None)
        console.print(str(report.record.folder or found), soft_wrap=True, highlight=False)


if __name__ == "__main__":
    main()
