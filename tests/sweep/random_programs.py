"""Random programs that compute with sizes, and calls of them at changing sizes; the same for each seed.

    program(7).text      def f(x0, x1, n):
                             v1 = x0.unfold(1, 2, 1)
                             v2 = F.pad(x1, (0, -x1.shape[-1] % 4))
                             if math.ceil(v1.shape[0] / 3) > 2: ...
                             return (v2, v1.shape[1] // 2)

Statements are filled in from the templates below and kept where they run at the program's first sizes; at others they
may raise. In templates ``{x}`` and ``{y}`` are tensors, ``{d}`` a dimension of ``x``, ``{e}`` a whole number
computed of sizes, ``{i}`` a size, ``{k}`` a small number, ``{c}`` a condition and ``{1|2}`` one of those.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F

Point = tuple[int, int, int]
"""The sizes ``a`` and ``b`` of arguments, and ``n``, a number that is an argument."""

SHAPES: tuple[tuple[str | int, ...], ...] = (
    ("a", "b"), ("a", "b", 4), ("a",), ("b",), ("b", "a"), ("a", "a"), ("b", 4), ("a", "b", "b"), (1, "b"), ("a", 1),
    ("a", 3, "b"),
)  # fmt: skip
LAYOUTS = ("contiguous", "contiguous", "contiguous", "transposed", "strided")
FIRST: tuple[Point, ...] = ((4, 6, 3), (5, 6, 3), (5, 7, 2))
LATER: tuple[Point, ...] = (
    (8, 8, 4), (1, 5, 1), (3, 1, 2), (0, 4, 2), (2, 0, 1), (6, 12, 5), (2, 2, 2), (1, 1, 1), (9, 3, 0), (7, 10, 6),
    (12, 4, 1),
)  # fmt: skip

NUMBERS = (
    "({e} // {k})", "({e} % {k})", "math.ceil({e} / {k})", "(({e} + {k} - 1) // {k} * {k})", "max({e}, {e})",
    "min({e}, {e})", "({e} + {e})", "({e} - {e})", "({e} * {k})", "int({e} / {k})", "({e} + 1)", "({e} - 1)",
    "abs({e} - {k})", "(-{e} % {k})", "round({e} / {k})", "int({e} ** 0.5)", "({i} if {c} else {k})",
    "math.floor({e} / {k})", "({e} // max({e}, 1))", "divmod({e}, {k})[{0|1}]", "(1 << ({e} % 4))", "int({e} * 0.5)",
    "({e} >> 1)", "({e} << 1)", "({e} & 3)", "({e} & -4)", "sum([{e}, {e}])", "sum({x}.shape)", "math.prod({x}.shape)",
    "({e} ** 2)", "math.floor({e} * 0.75)", "math.ceil({e} * 1.5)", "max({e}, {e}, {e})", "math.isqrt(abs({e}))",
    "(({e}).bit_length())", "({c}) * {k}", "pow({e}, 2)", "math.trunc({e} / {k})", "int(math.log2({e} + 1))",
    "(2 if 1 < {i} <= {e} else 3)", "math.gcd({i}, {k})",
)  # fmt: skip

ANY = (
    "{x} + {y}", "{x} * {y}", "torch.where({x} > {y}, {x}, {y})", "torch.tanh({x})", "{x} * {e}", "{x} / {e}",
    "{x} + {e} ** 0.5", "{x} / math.sqrt({e} + 1)", "{x}.sum()", "{x}.relu()", "{x} ** 2", "torch.arange({e})",
    "torch.arange({e}, {e})", "torch.arange(0, {e}, 2)", "torch.linspace(0, 1, {e})", "torch.zeros({e}, {e})",
    "torch.ones({e}, dtype=torch.float64)", "torch.full(({e},), {e})", "torch.eye({e})",
    "torch.arange({e}).unsqueeze(1) < torch.arange({e})", "{x}.double() + 1", "{x}.masked_fill({x} > 0, {e})",
    "torch.maximum({x}, {y})", "({x} > 0)", "{x}.float()", "{x}.clamp(max={e})", "torch.tensor({e})",
    "torch.tensor([{e}, {e}])", "torch.arange({e}).flip(0)", "{x}.mean()", "{x}.expand_as({y})", "{x}.view_as({y})",
    "{x}.new_ones({y}.shape)", "torch.zeros_like({x})", "{x}.reshape({y}.shape)", "{x}.expand({y}.shape)",
    "{x}.broadcast_to({y}.shape)", "torch.triu_indices({e}, {e})", "{x}.sum_to_size({y}.shape)",
    "torch.meshgrid(torch.arange({e}), torch.arange({e}), indexing='ij')[1]", "{x} * ({c})",
    "torch.arange({e}) / {e}", "sum([{x}, {y}])", "{x} * ({e} / {k})", "{x} + {e} / max({e}, 1)",
)  # fmt: skip
VECTORS = (
    "{x}.reshape(-1)", "{x}.flatten()", "{x}[:{e}]", "{x}[{e}:]", "{x}[..., :{e}]", "{x}[::2]", "{x}[-{i}:]",
    "{x}[{e}]", "{x}.narrow({d}, {e}, {e})", "{x}.reshape({e}, -1)", "{x}.reshape(-1, {e})", "{x}.view(-1, {e})",
    "{x}.unflatten({d}, ({2|3}, -1))", "{x}.unflatten({d}, (-1, {e}))", "{x}.unfold({d}, {2|1}, {1|2})",
    "{x}.unfold({d}, {e}, {1|2})", "F.pad({x}, ({e}, {e}))", "F.pad({x}, (0, -{x}.shape[-1] % 4))",
    "F.pad({x}, ({0|1|-1}, {0|2|-1}), value={0|1.5})", "{x}.repeat_interleave(2, dim={d})",
    "{x}.repeat_interleave({e}, dim={d})", "{x}.flip({d})", "{x}.roll({e}, {d})", "{x}.sum({d})",
    "{x}.mean({d}, keepdim=True)", "{x}.amax({d})", "{x}.softmax({d})", "{x}.cumsum({d})", "{x}.std({d})",
    "{x}.logsumexp({d})", "{x}.unsqueeze({d})", "{x}.squeeze({d})", "{x}.squeeze()", "torch.chunk({x}, 2, {d})[0]",
    "{x}.split({e}, {d})[-1]", "{x}.split({e}, {d})[0]", "torch.tensor_split({x}, 3, {d})[1]",
    "torch.tensor_split({x}, {e}, {d})[1]", "torch.cat([{x}, {y}], {d})", "torch.cat([{x}, {x}[:{e}]], 0)",
    "torch.stack([{x}, {x}], {d})", "{x}.argmax({d})", "{x}.sort({d})[0]", "{x}.topk(min({e}, {x}.shape[-1]))[0]",
    "{x}.index_select({d}, torch.arange({e}))", "{x}[torch.arange({e}) % max({x}.shape[0], 1)]", "{x}.diff(dim={d})",
    "{x}.unbind({d})[0]", "{x}.unbind({d})[-1]", "{x}.select({d}, {e})", "{x} * torch.arange({x}.shape[-1])",
    "{x} + torch.linspace(0, 1, {x}.shape[-1])", "{x} * (torch.arange({x}.shape[-1]) < {e})",
    "torch.cumsum({x}, {d})[..., -1]", "{x}.new_zeros({e}, {x}.shape[0]) + {e}", "{x}.expand({e}, *{x}.shape)",
    "{x}.reshape({x}.shape[0] // 2, 2, -1)", "{x}.reshape(*{x}.shape[:-1], -1, 2)", "{x}.reshape({x}.shape[::-1])",
    "{x}.repeat(*[2] * {x}.dim())", "{x}.repeat({e}, *[1] * {x}.dim())", "{x}.view({x}.shape[0], -1)",
    "{x}.movedim(0, -1)", "{x}.max({d})[0]", "{x}.prod({d})", "{x}[{x} > 0]", "{x}[{x}.flatten() > 0.3]",
    "{x}.nonzero()", "{x}[{x} > 0].sum()", "torch.where({x} > 0)[0]", "{x}.masked_select({x} < 0.5)",
    "{x}.tensor_split([{e}, {e}], {d})[1]", "{x}.as_strided(({e},), (1,))",
    "{x}.gather({d}, torch.zeros_like({x}, dtype=torch.long))", "torch.split({x}, [{i}, {x}.shape[0] - {i}])[0]",
    "{x}.view(*{x}.shape, 1)", "{x}.view({x}.shape[:-1] + ({x}.shape[-1] // 2, 2))",
    "{x}.contiguous().view({e}, {e})", "F.interpolate({x}.reshape(1, 1, -1), size={e})",
    "F.avg_pool1d({x}.reshape(1, 1, -1), {2|3})", "F.max_pool1d({x}.reshape(1, 1, -1), 2, ceil_mode=True)",
    "F.normalize({x}, dim={d})", "F.layer_norm({x}, {x}.shape[-1:])", "{x}.norm(dim={d})",
    "F.one_hot({x}.argsort({d}), {e} + {x}.shape[{d}])", "torch.outer({x}.flatten()[:5], {y}.flatten()[:{e}])",
    "{x}.take_along_dim({x}.argsort(0), 0)", "{x}.logcumsumexp({d})", "{x}.any({d})", "{x}.count_nonzero({d})",
)  # fmt: skip
MATRICES = (
    "{x}.tril()", "{x}.transpose(0, 1)", "{x}.mT", "{x} @ {x}.mT", "{x}.flatten(0, 1)", "{x}.flatten({0|1}, -1)",
    "{x}[:, {e}]", "{x}[:, :{e}]", "{x}[:, {e}:]", "{x}.sum((0, -1))", "{x}.transpose(0, -1).reshape(-1)",
    "{x}.transpose(0, -1).contiguous()", "{x}.diagonal()", "{x} @ {y}",
    "torch.einsum('i...j,i...k->i...jk', {x}, {x})", "{x} + {x}.transpose(0, 1)", "{x}.tril({e})",
    "F.pad({x}, (1, 1, {e}, 0))", "{x}[:, None] * {y}", "{x}.sum(0) + {x}.sum(1)",
    "F.conv1d({x}.reshape(1, 1, -1), torch.ones(1, 1, 2, dtype=torch.float64), padding=1)",
    "F.scaled_dot_product_attention({x}, {x}, {x})", "{x}[{x}.shape[0] // 2, {e}:]", "{x}.bmm({x}.mT)",
    "{x}.mm({x}.T)", "{x}.masked_fill(torch.ones_like({x}, dtype=torch.bool).triu(1), -1e9)",
)  # fmt: skip
WRITES = (
    "{v}[:{e}] += 1", "{v}[{e}:].mul_(2)", "{v}.view(-1)[:{e}].zero_()", "{v}[0] = {e}", "{v}[..., {e}] = 1",
    "{v}[::2] = {v}[1::2]", "{v}.add_({y})", "{v}[{v} > 0] = {e}", "{v}.copy_({y})", "{v}[:, :{e}] = 0.5",
    "{v}.t().mul_({e})", "{v}.fill_({e})", "{v}.narrow(0, {e}, 1).add_(1)", "{v}[torch.arange({e})] = 2",
    "{v}.index_add_(0, torch.arange({v}.shape[0]), {y})", "{v}.masked_fill_({v} > 0, {e})", "{v}.diagonal().zero_()",
    "{v}.unsqueeze_(0)", "{v}.transpose_(0, 1)", "{v}.squeeze_()", "{v}.flatten()[0] = 3", "{v}.neg_()",
)  # fmt: skip
STATEMENTS: tuple[tuple[float, tuple[str, ...]], ...] = (
    (0.08, ("{new} = {e}",)),
    (0.08, ("if {c}:", "    {v} = {expr}", "else:", "    {v} = {expr}")),
    (0.04, ("{v} = {x}", "for j in range(min({e}, 3)):", "    {v} = {v} * {j|0.5|(j + 1)} + {j|1}")),
    (0.02, ("{v} = torch.stack([{x}.sum() * j for j in range(min({e}, 3) + 1)])",)),
    (0.01, ("{v} = {x}", "while {v}.shape[0] > {2|4}:", "    {v} = {v}[::2]")),
    (0.01, ("assert {c}",)),
    (0.14, ("{v} = {x}{|.clone()|.clone()}", "{write}")),
    (0.62, ("{v} = {expr}",)),
)
"""How often each form of a statement comes: ``{v}`` is the tensor, ``{new}`` the number that it makes."""

MOST_ELEMENTS, MOST_DIMS, MOST_NUMBER = 3000, 5, 3000
TRIES = 60


@dataclass(frozen=True)
class Program:
    """``text`` defines ``f``, which takes tensors of ``shapes`` and a number."""

    text: str
    shapes: tuple[tuple[str | int, ...], ...]
    layouts: tuple[str, ...]
    points: tuple[Point, ...]

    def compiled(self, file: str) -> Any:
        """The function."""
        names = dict(NAMES)
        exec(compile(self.text, file, "exec"), names)
        return names["f"]

    def arguments(self, point: Point, seed: int) -> list[torch.Tensor]:
        """The tensors at some sizes."""
        generator = torch.Generator().manual_seed(seed)
        sizes = {"a": point[0], "b": point[1]}
        numbers = [[one if isinstance(one, int) else sizes[one] for one in shape] for shape in self.shapes]
        return [_tensor(shape, layout, generator) for shape, layout in zip(numbers, self.layouts)]

    def __str__(self) -> str:
        given = ", ".join(f"x{n}: {shape} {layout}" for n, (shape, layout) in enumerate(zip(self.shapes, self.layouts)))
        return f"# {given}; a, b, n: {self.points}\n{self.text}"


NAMES: dict[str, Any] = {"torch": torch, "F": F, "math": math}


def _tensor(shape: Sequence[int], layout: str, generator: torch.Generator) -> torch.Tensor:
    normal = lambda sizes: torch.randn(sizes, generator=generator, dtype=torch.float64)
    if layout == "transposed":
        return normal(shape[::-1]).permute(*range(len(shape) - 1, -1, -1))
    if layout == "strided":
        return normal([size * 2 for size in shape])[tuple(slice(0, size) for size in shape)]
    return normal(list(shape))


def program(seed: int, calls: int) -> Program:
    """The program of a seed, and the sizes of so many calls of it."""
    chance = random.Random(seed)
    shapes = tuple(chance.choice(SHAPES) for _ in range(chance.choice([1, 1, 2, 2, 3])))
    layouts = tuple(chance.choice(LAYOUTS) for _ in shapes)
    first = FIRST[: chance.randint(1, min(len(FIRST), calls))]
    points = (*first, *chance.sample(LATER, calls - len(first)))
    begun = Program("", shapes, layouts, points)
    names = [f"x{n}" for n in range(len(shapes))]
    known: dict[str, Any] = {**NAMES, **dict(zip(names, begun.arguments(points[0], 0))), "n": points[0][2]}
    return Program(_Writer(chance, known, names).text(), shapes, layouts, points)


@dataclass
class _Writer:
    """Writes one program: what its names are at the first sizes is ``known``."""

    chance: random.Random
    known: dict[str, Any]
    tensors: list[str]
    numbers: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def text(self) -> str:
        given = len(self.tensors)
        head = f"def f({', '.join(self.tensors)}, n):"
        wanted = self.chance.choice([2, 3, 4, 5, 6, 8])
        for tried in range(TRIES):
            wanted -= self._statement(f"v{tried}")
            if not wanted:
                break
        outputs = self.tensors[given:][-self.chance.choice([1, 2, 3]) :] or self.tensors[:1]
        more = self.chance.choice(["", self._number(), f"{outputs[-1]}.shape", self._number()])
        self.lines.append(f"return ({', '.join(outputs)}, {more})")
        return "\n    ".join([head, *self.lines]) + "\n"

    def _statement(self, new: str) -> bool:
        """Write one more, if what was made up runs."""
        weights, forms = zip(*STATEMENTS)
        form = self.chance.choices(forms, weights)[0]
        template, fixed = "\n".join(form), {"v": new, "new": new, "x": self._tensor()}
        text = self._filled(template, fixed)
        trial = {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in self.known.items()}
        try:
            exec(text, trial)
            if not _is_small(trial.get(new, 0)):
                return False
        except Exception:
            return False
        self.known = {k: v for k, v in trial.items() if k != "j"}
        self.lines += text.split("\n")
        if "{new}" in template:
            self.numbers.append(new)
        elif "{v}" in template:
            self.tensors.append(new)
        return True

    def _filled(self, template: str, fixed: dict[str, str], depth: int = 0) -> str:
        """A template with each place filled in; ``x`` and ``k`` are the same everywhere in it."""
        fixed = {"k": self.chance.choice("234"), **fixed}

        def place(found: re.Match[str]) -> str:
            what = found[1]
            if what in fixed:
                return fixed[what]
            if "|" in what:
                return self.chance.choice(what.split("|"))
            return self._place(what, fixed, depth)

        return re.sub(r"\{([^{}]*)\}", place, template)

    def _place(self, what: str, fixed: dict[str, str], depth: int) -> str:
        if what == "e":
            return self._number(depth)
        if what == "i":
            return self._size()
        if what == "c":
            relation = self.chance.choice([">", "<", "==", ">=", "!=", "<="])
            return f"{self._number(1)} {relation} {self.chance.choice([self._number(1), '2', '4', '1', '0'])}"
        if what == "d":
            dims = max(self.known[fixed["x"]].dim(), 1)
            return str(self.chance.randrange(-dims, dims))
        if what == "expr":
            return self._expression()
        if what == "write":
            return self._filled(self.chance.choice(WRITES), {"v": fixed["v"]})
        return self._tensor()

    def _tensor(self) -> str:
        return self.chance.choice(self.tensors[-5:] if self.chance.random() < 0.7 else self.tensors)

    def _expression(self) -> str:
        x = self._tensor()
        templates = (ANY, ANY + VECTORS, ANY + VECTORS + MATRICES)[min(self.known[x].dim(), 2)]
        return self._filled(self.chance.choice(templates), {"x": x})

    def _number(self, depth: int = 0) -> str:
        if depth > 2 or self.chance.random() < 0.4:
            return self._size()
        return self._filled(self.chance.choice(NUMBERS), {}, depth + 1)

    def _size(self) -> str:
        x, draw = self._tensor(), self.chance.random()
        dims = self.known[x].dim()
        if self.numbers and draw < 0.35:
            return self.chance.choice(self.numbers)
        if draw < 0.75 and dims:
            return f"{x}.shape[{self.chance.randrange(-dims, dims)}]"
        if draw < 0.8 and dims:
            return f"len({x})"
        return f"{x}.numel()" if draw < 0.85 else "n"


def _is_small(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.numel() <= MOST_ELEMENTS and value.dim() <= MOST_DIMS
    return type(value) is int and abs(value) <= MOST_NUMBER
