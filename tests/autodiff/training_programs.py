"""Random programs as training code has them, compiled and eager: values, gradients, writes, aliases, random numbers.

    python -m tests.autodiff.training_programs 0 300 [glass]     seeds 0 to 299; prints those that differ

A program is the text of a Python function, so that what differs can be read and run. Each line is tried on real tensors
while the program is written, and left out where eager refuses it.
"""

from __future__ import annotations

import linecache
import random
import re
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import torchglass as tg

NEW = """
{a} * {b} + {c} | {a} - 2 * {b} | {a} / ({b}.abs() + 1) | torch.tanh({a}) | torch.sigmoid({a} * {b}) | {a}.sin()
{a}.exp().clamp(max=5)

F.gelu({a}) | F.silu({a}) | F.relu({a}) | F.softplus({a}) | {a}.abs().sqrt() | ({a}.abs() + 1).log()
torch.where({a} > 0, {b}, {c})

torch.maximum({a}, {b}) | {a}.clamp(-1, 1) | {a}.pow(2) | {a} ** 3 | ({a}.abs() + 0.5) ** {b}.clamp(-1, 1)
torch.rsqrt({a} * {a} + 1) | torch.lerp({a}, {b}, 0.3)

{a}.sum(-1) | {a}.mean(-1, keepdim=True) | {a}.amax(-1) | {a}.max(-1).values | {a}.var(-1) | {a}.sum()
{a}.mean(0) | {a}.norm() | {a}.prod(-1) | torch.logsumexp({a}, -1)

F.softmax({a}, -1) | F.log_softmax({a}, -1) | F.layer_norm({a}, {a}.shape[-1:]) | F.normalize({a}, dim=-1)
{a}.cumsum(-1) | F.group_norm({a}.unsqueeze(0), 1)[0]

{a} @ {b} | {a} @ {b}.transpose(-1, -2) | {a}.transpose(-1, -2) @ {b} | F.linear({a}, {b})
torch.einsum('ij,kj->ik', {a}, {b}) | torch.outer({a}.flatten()[:3], {b}.flatten()[:4])

{a}.t() | {a}.transpose(0, -1) | {a}.reshape(-1) | {a}.view(-1, 2) | {a}.unsqueeze(0) | {a}[0] | {a}[..., 1:]
{a}[:, 1] | {a}[::2] | {a}.flip(0) | {a}.expand(3, *{a}.shape) | {a}.contiguous() | {a}.diagonal()
{a}.roll(1, -1) | {a}.narrow(0, 1, 2)

torch.cat([{a}, {b}]) | torch.stack([{a}, {b}], -1) | {a}.split(2)[0] | {a}.chunk(2, -1)[1] | F.pad({a}, (1, 1))
{a}.unbind(0)[1] | {a}.repeat(2, 1) | {a}.tril() | {a}.permute(1, 0)

{a}[{a}.argsort(-1)[..., 0] % {a}.shape[0]] | {a}.gather(-1, {b}.argsort(-1))
{a}.index_select(0, torch.tensor([1, 0, 1])) | {a}.sort(-1).values | {a}.topk(2).values
F.embedding(torch.tensor([0, 2, 1, 0]), {a}) | {a}.masked_fill({b} > 0, 0.5)
{a}.scatter(-1, {b}.argsort(-1), {a}) | {a}[{a}.argmax(0)]

{a}.detach() | {a}.clone() | {a}.detach() * {b} | {a}.float() | {a}.double() | {a}.argmax(-1) | {a} > {b}
({a} * 4).long() | {a}.sum() * {a}.new_ones(2) | torch.zeros_like({a}) + {b}
{a}.to(torch.float32).sin().to({b}.dtype) | {a} * 1 + 0

F.dropout({a}, 0.5) | F.dropout({a}.sin(), 0.2) * {b} | torch.rand_like({a}) * {b}
{a} + torch.randn({a}.shape[-1]) | torch.bernoulli({a}.detach().sigmoid()) * {a}

checkpoint(block, {a}, {b}, use_reentrant=False) | checkpoint(block, {a}, {b}, use_reentrant=True)
Scale.apply({a}, 3.0) | Pair.apply({a}, {b})[0] | Pair.apply({a}, {b})[1] | F.mse_loss({a}, {b})
F.smooth_l1_loss({a}, {b}) | F.cross_entropy({a}, {b}.argmax(-1) % {a}.shape[-1])

F.scaled_dot_product_attention({a}.unsqueeze(0), {b}.unsqueeze(0), {c}.unsqueeze(0))
F.conv1d({a}.unsqueeze(0), {b}.unsqueeze(-1)) | F.avg_pool1d({a}.unsqueeze(0), 2)
F.batch_norm({a}, None, None, training=True) | F.interpolate({a}[None], scale_factor=2.0)
"""

WRITE = """
{a}.mul_({b}) | {a}.add_(0.5) | {a}[0] = {b}[0] | {a}[:, 1:3] = 0.5 | {a}[..., 1].mul_({b}[..., 0])
{a}.copy_({b}) | {a}.clamp_(-1, 1) | {a}.t().add_({b}) | {a}.relu_() | {a}.masked_fill_({a} > 0.5, 0.25)

{a}.zero_() | {a}.view(-1)[::2].mul_(2) | {a}.index_add_(0, torch.tensor([0, 1]), {b}[:2]) | {a} += {b}
{a}.sub_({b}.detach()) | {a}[{a} > 0.7] = 0.1 | {a}.tanh_() | {a}.diagonal().mul_(0.5)
{a}.scatter_add_(-1, {b}.argsort(-1), {b}) | {a}.fill_(0.3) | {a}[1:].copy_({a}[:-1].clone()) | {a}.exp_()
{a}.sigmoid_() | {a}.detach().mul_(2) | {a}.uniform_() | {a}.addcmul_({b}, {b})
"""

BLOCK = """
with torch.no_grad(): | with torch.enable_grad(): | with torch.set_grad_enabled(False): | with torch.no_grad():
"""


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, by: float) -> torch.Tensor:
        ctx.by = by
        ctx.save_for_backward(x)
        return x * by

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return grad * ctx.by * x.cos(), None


class Pair(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor) -> Any:
        ctx.save_for_backward(x, y)
        top = x > y
        ctx.mark_non_differentiable(top)
        return x + y, x * y, top

    @staticmethod
    def backward(ctx: Any, first: torch.Tensor, second: torch.Tensor, _: Any) -> Any:
        x, y = ctx.saved_tensors
        left = first + second * y if ctx.needs_input_grad[0] else None
        return left, (first + second * x if ctx.needs_input_grad[1] else None)


def block(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.dropout(torch.tanh(a * b), 0.3) + a.sin()


NAMES = {"torch": torch, "F": F, "checkpoint": checkpoint, "Scale": Scale, "Pair": Pair, "block": block}


def choices(text: str) -> list[list[str]]:
    """Families of alternatives, a blank line between them; all families are as likely."""
    return [[part.strip() for part in re.split(r"[|\n]", family)] for family in text.strip().split("\n\n")]


FAMILIES, WRITES, BLOCKS = choices(NEW), choices(WRITE), choices(BLOCK)[0]


class Program:
    """A program by its seed: ``text``, ``function``, ``inputs()``, and which outputs the loss is made of."""

    def __init__(self, seed: int, length: int = 14) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.kinds = [self.rng.choice(INPUTS) for _ in range(self.rng.randint(1, 3))]
        self.names = [f"x{k}" for k in range(len(flattened(self.inputs())))]
        self.lines: list[str] = []
        self._write(length)
        head = f"def program({', '.join(self.names)}):\n"
        self.text = head + "".join(f"    {line}\n" for line in self.lines)
        self.function = self._made()

    def inputs(self) -> list[list[torch.Tensor]]:
        """Fresh inputs: for each group the leaf first, then what is handed in."""
        generator = torch.Generator().manual_seed(self.seed)
        return [kind(generator) for kind in self.kinds]

    def _write(self, length: int) -> None:
        given = flattened(self.inputs())
        values: dict[str, Any] = dict(zip(self.names, given))
        torch.manual_seed(1)
        number, indent, inside = 0, "", 0
        while len(self.lines) < length:
            tensors = [name for name, value in values.items() if value.is_floating_point()]
            picks = {letter: self.rng.choice(tensors[-self.rng.choice((6, 6, 100)) :]) for letter in "abc"}
            if not inside and self.rng.random() < 0.08:
                indent, inside = "    ", self.rng.randint(1, 3)
                manager = self.rng.choice(BLOCKS)
            if self.rng.random() < 0.25:
                line, name = self.rng.choice(self.rng.choice(WRITES)).format(**picks), ""
            else:
                name = f"v{number}"
                line = f"{name} = {self.rng.choice(self.rng.choice(FAMILIES)).format(**picks)}"
            try:
                with torch.set_grad_enabled(not inside or "enable_grad" in manager):
                    if not name and _unsure(line, values, picks):
                        continue
                    exec(line, NAMES, values)
            except (RuntimeError, IndexError, ValueError, TypeError):
                continue
            if name and not _fine(values[name]):
                del values[name]
                continue
            number += bool(name)
            if inside and indent and not (self.lines and self.lines[-1].startswith("    ")):
                self.lines.append(manager)
            self.lines.append(indent + line)
            inside -= bool(inside)
            indent = indent if inside else ""
        outputs = self.rng.sample(list(values), min(len(values), self.rng.randint(1, 5)))
        self.lines.append(f"return ({', '.join(outputs)},)")
        self.used = [self.rng.random() < 0.7 for _ in outputs]
        self.readers = [self.rng.choice(READERS) for _ in outputs]

    def _made(self) -> Callable[..., Any]:
        name = f"<training program {self.seed}>"
        linecache.cache[name] = (len(self.text), None, self.text.splitlines(True), name)
        scope = dict(NAMES)
        exec(compile(self.text, name, "exec"), scope)
        return scope["program"]


def _unsure(line: str, values: dict[str, Any], picks: dict[str, str]) -> bool:
    """Writes that read the memory they write to: eager leaves the result undefined."""
    if "{a}" in line or "clone()" in line:
        return False
    a, b = values[picks["a"]], values[picks["b"]]
    return f"{picks['b']}" in line.replace(picks["a"], "", 1) and _memory(a) == _memory(b)


def _memory(value: torch.Tensor) -> int:
    return value.untyped_storage().data_ptr()


def _fine(value: Any) -> bool:
    if not isinstance(value, torch.Tensor) or value.numel() > 2000 or not value.numel() or value.dim() > 4:
        return False
    try:
        return not value.is_floating_point() or bool(value.isfinite().all() and value.abs().max() < 100)
    except RuntimeError:  # a view that autograd no longer lets anyone read
        return False


def flattened(groups: list[list[torch.Tensor]]) -> list[torch.Tensor]:
    return [value for group in groups for value in group[1:]]


READERS = (
    lambda t: t, lambda t: t, lambda t: t.exp(), lambda t: t.reshape(-1)[:3], lambda t: t.flip(0) if t.dim() else t,
    lambda t: t.transpose(0, -1) if t.dim() else t, lambda t: t.sum().expand(3),
)  # fmt: skip
"""How the loss reads an output, so that gradients arrive in several layouts."""

INPUTS: list[Callable[[torch.Generator], list[torch.Tensor]]] = []


def kind(make: Callable[[torch.Generator], list[torch.Tensor]]) -> Callable[[torch.Generator], list[torch.Tensor]]:
    INPUTS.append(make)
    return make


def _leaf(generator: torch.Generator, *shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(shape, generator=generator, dtype=dtype).requires_grad_()


@kind
def leaf(generator: torch.Generator) -> list[torch.Tensor]:
    x = _leaf(generator, 4, 6)
    return [x, x]


@kind
def square(generator: torch.Generator) -> list[torch.Tensor]:
    x = _leaf(generator, 4, 4)
    return [x, x * 1]


@kind
def computed(generator: torch.Generator) -> list[torch.Tensor]:
    x = _leaf(generator, 4, 6)
    return [x, x * 1.0]


@kind
def buffer(generator: torch.Generator) -> list[torch.Tensor]:
    x = _leaf(generator, 4, 6).detach()
    return [x, x]


@kind
def single(generator: torch.Generator) -> list[torch.Tensor]:
    x = _leaf(generator, 6, dtype=torch.float32)
    return [x, x]


@kind
def transposed(generator: torch.Generator) -> list[torch.Tensor]:
    x = _leaf(generator, 6, 4)
    return [x, x.t()]


@kind
def overlapping(generator: torch.Generator) -> list[torch.Tensor]:
    x = _leaf(generator, 6, 6).detach()
    return [x, x[:4], x[2:]]


@kind
def overlapping_with_gradients(generator: torch.Generator) -> list[torch.Tensor]:
    x = _leaf(generator, 6, 6)
    y = x * 1
    return [x, y[:4], y[2:]]


@kind
def twice(generator: torch.Generator) -> list[torch.Tensor]:
    x = _leaf(generator, 4, 6)
    y = x * 1
    return [x, y, y]


# --- comparing --------------------------------------------------------------------------------------------------------
def outcome(call: Callable[..., Any], program: Program) -> dict[str, Any]:
    """All that a user can see of a call and its backward."""
    torch.manual_seed(3)
    groups = program.inputs()
    given = flattened(groups)
    outputs = call(*given)
    seen: dict[str, Any] = {}
    terms = []
    for k, (out, used, reader) in enumerate(zip(outputs, program.used, program.readers)):
        seen[f"output {k}"] = out.detach().clone()
        seen[f"facts {k}"] = (out.requires_grad, out.dtype, strides(out), out.storage_offset())
        if used and out.requires_grad:
            terms.append((reader(out) * torch.linspace(0.5, 1.5, reader(out).numel()).view(reader(out).shape)).sum())
    everything = [*given, *outputs]
    memory = [_memory(value) for value in everything]
    seen["memory"] = [memory.index(m) for m in memory]
    seen["objects"] = [next(k for k, other in enumerate(everything) if other is value) for value in everything]
    seen["random state"] = torch.get_rng_state()
    for k, value in enumerate(given):
        seen[f"input {k} afterwards"] = value.detach().clone()
        seen[f"input {k} requires grad"] = value.requires_grad
    if terms:
        sum(terms).backward(retain_graph=True)
        sum(terms).backward()
    for k, group in enumerate(groups):
        seen[f"gradient {k}"] = group[0].grad
    return seen


def strides(value: torch.Tensor) -> tuple[int, ...]:
    return tuple(s for s, d in zip(value.stride(), value.shape) if d != 1)


REFUSED = (
    "modified by an inplace operation",  # eager too could not differentiate one of the outputs; the loss uses others
    "has been modified inplace",
)
"""Programs that may run eagerly as a whole, which the log says."""


def difference(program: Program, backend: str) -> str:
    """How the compiled program differs from eager, or ''. None where eager refuses to differentiate."""
    try:
        want = outcome(program.function, program)
    except RuntimeError:
        return ""
    tg.reset()
    compiled = tg.compile(program.function, backend=backend)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Using a target size")
        return _of_two_calls(want, compiled, program)


def _of_two_calls(want: dict[str, Any], compiled: Any, program: Program) -> str:
    for call in ("first", "second"):
        try:
            got = outcome(compiled, program)
        except Exception as error:
            return f"{call} call raises {type(error).__name__}: {error}"[:600]
        for name, value in want.items():
            text = _differs(value, got[name])
            if text:
                return f"{call} call, {name}: {text}"
    return ""


def _differs(want: Any, got: Any) -> str:
    if not isinstance(want, torch.Tensor) or not isinstance(got, torch.Tensor):
        return "" if want is got or want == got else f"{got} instead of {want}"
    bounds = {"rtol": 1e-4, "atol": 1e-4}
    if not want.is_floating_point():
        bounds = {"rtol": 0, "atol": 0}
    try:
        torch.testing.assert_close(got, want, equal_nan=True, **bounds)
    except AssertionError as error:
        return str(error).replace("\n", " ")[:300]
    return ""


def main() -> None:
    from tests.complaints import complaints

    warnings.simplefilter("ignore")
    first, last = int(sys.argv[1]), int(sys.argv[2])
    backends = sys.argv[3:] or ["aot_eager", "glass"]
    for seed in range(first, last):
        program = Program(seed)
        for backend in backends:
            with complaints() as texts:
                found = difference(program, backend)
            if found or texts:
                print(f"--- seed {seed} {backend}: {found} {' '.join(texts)}\n{program.text}", flush=True)
    print("done", first, last)


if __name__ == "__main__":
    main()
