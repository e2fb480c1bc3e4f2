"""What src/ may import: none of PyTorch's own compiler, and its private names in one file only."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "torchglass"
FILES = sorted(SOURCE.rglob("*.py"))

FORBIDDEN = (
    "torch._dynamo",
    "torch._inductor",
    "torch._functorch.aot_autograd",
    "torch._functorch.partitioners",
)
"""PyTorch's compiler, which this package replaces."""

ADAPTERS: tuple[str, ...] = ("inspector/torch_compile/",)
"""Files that may look at what torch.compile left behind."""

COMPATIBILITY = "torch_compat/"
"""The one package that may use private names."""

PRIVATE_MODULES = ("torch.fx.experimental", "torch.utils._", "torch.utils.weak", "torch.functorch")
"""Modules that PyTorch promises nothing about, though their names have no underscore of their own."""

DYNAMIC_IMPORTS = ("importlib.import_module", "import_module", "__import__")


def relative(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything a module imports, whole: ``from a import b`` is ``a.b``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and _chain(node.func) in DYNAMIC_IMPORTS and node.args:
            name = getattr(node.args[0], "value", None)
            if isinstance(name, str):
                yield node.lineno, name


def used(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and dotted name of every attribute chain that starts at a module of torch, aliases resolved."""
    aliases = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                aliases[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                aliases[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (chain := _chain(node)):
            head, *rest = chain.split(".")
            if aliases.get(head, "").split(".")[0] == "torch":
                yield node.lineno, ".".join([aliases[head], *rest])


def _chain(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (base := _chain(node.value)):
        return f"{base}.{node.attr}"
    return None


def is_private(name: str) -> bool:
    """Whether a dotted name of torch has a private part or lies in a module without promises."""
    if name.split(".")[0] != "torch":
        return False
    parts = name.split(".")[1:]
    if any(p.startswith("_") and not (p.startswith("__") and p.endswith("__")) for p in parts):
        # torch.ops.aten._softmax and such are operators, named by their schema, and not Python names.
        return parts[0] != "ops"
    return any(name.startswith(module) for module in PRIVATE_MODULES)


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_nothing_of_pytorchs_compiler_is_imported(path):
    if relative(path).startswith(ADAPTERS):
        pytest.skip("an adapter for torch.compile's artifacts")
    tree = tree_of(path)
    found = [
        f"{relative(path)}:{line}: {name}"
        for line, name in {*imported(tree), *used(tree)}
        if any(name == module or name.startswith(module + ".") for module in FORBIDDEN)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_private_names_of_torch_appear_in_torch_compat_alone(path):
    if relative(path).startswith((COMPATIBILITY, *ADAPTERS)):
        pytest.skip("the file made for them")
    tree = tree_of(path)
    found = sorted(
        {f"{relative(path)}:{line}: {name}" for line, name in {*imported(tree), *used(tree)} if is_private(name)}
    )
    assert not found, "\n".join(found)


def test_the_check_itself_sees_what_it_should():
    tree = ast.parse(
        "import torch\n"
        "import torch.utils._pytree as pytree\n"
        "from torch._dynamo import reset\n"
        "from torch.fx.experimental.proxy_tensor import make_fx\n"
        "import importlib\n"
        "pytree.tree_map\n"
        "torch._C._nn.gelu\n"
        "importlib.import_module('torch._inductor')\n"
        "torch.ops.aten._softmax\n"
        "torch.__version__\n"
        "torch.nn.functional.gelu\n"
    )
    names = {name for _, name in {*imported(tree), *used(tree)} if is_private(name)}
    assert {
        "torch.utils._pytree",
        "torch.utils._pytree.tree_map",
        "torch._dynamo.reset",
        "torch.fx.experimental.proxy_tensor.make_fx",
        "torch._C._nn.gelu",
        "torch._inductor",
    } <= names
    assert not names & {"torch.ops.aten._softmax", "torch.__version__", "torch.nn.functional.gelu"}


def test_compiling_loads_nothing_of_pytorchs_compiler():
    """What the source does not name could still come in by another door; so look at a process that has
    compiled.
    """
    compile_something = (
        "import torchglass as tg\n"
        "f = tg.compile(lambda x: (x.sin() * 2).sum())\n"
        "x = torch.ones(8, requires_grad=True)\n"
        "f(x).backward()\n"
    )
    assert forbidden_after(compile_something) == forbidden_after("")


def forbidden_after(program: str) -> str:
    """The modules of PyTorch's compiler that a fresh process has loaded after running ``program``."""
    look = f"print(sorted(m for m in sys.modules if m.startswith({FORBIDDEN!r})))"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys, torch\n{program}\n{look}"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "order", ["hfg", pytest.param("fgfh", marks=pytest.mark.slow), pytest.param("gfh", marks=pytest.mark.slow)]
)
def test_torch_compile_works_after_us_and_we_after_it(order):
    """While we compile, a stand-in keeps torch._dynamo unloaded; it must leave nothing behind."""
    program = """
import sys, torch, torchglass as tg
f = tg.compile(lambda x: torch.nn.functional.gelu(x).sum())
g = torch.compile(lambda x: torch.nn.functional.gelu(x).sum() + 1, backend="aot_eager")
def backend(gm, inputs):
    import torch._dynamo.config
    assert torch._dynamo.config.cache_size_limit > 0 and torch._dynamo.reset
    return torch.compile(gm, backend="aot_eager")
h = tg.compile(lambda x: torch.nn.functional.gelu(x).sum() + 2, backend=backend)
for name in ORDER:
    x = torch.ones(8, requires_grad=True)
    {"f": f, "g": g, "h": h}[name](x).backward()
    assert x.grad is not None
assert type(sys.modules["torch._dynamo"]) is type(sys), type(sys.modules["torch._dynamo"])
assert torch._dynamo is sys.modules["torch._dynamo"]
"""
    code = program.replace("ORDER", repr(order))
    done = subprocess.run([sys.executable, "-W", "error::UserWarning", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
