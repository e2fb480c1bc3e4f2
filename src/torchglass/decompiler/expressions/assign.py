"""How stores become assignments: plain, chained, unpacking, augmented, tuple swaps, imports, definitions.

A STORE takes the top of the stack.  What the value is, and what else lies on the stack, says which statement it was:
``a = b = f()`` leaves a copy of the value, ``a, b = b, a`` leaves another value, ``a += 1`` stores an Inplace.
"""

from __future__ import annotations

import ast
from typing import Any

from ..errors import DecompileError
from .definitions import definition
from .trees import STORE, assign_to, load
from .values import Chained, Function, Import, Imported, Inplace, Item, Unpacking, UnpackItem, is_marker, is_silent


def store(machine: Any, target: Any) -> None:
    value = machine.pop()
    if machine.scope.is_generic:
        _store_generic(machine, value, target)
        return
    take = _TAKEN_BY.get(type(value))
    if take is not None:
        take(machine, value, target)
        return
    stack = machine.stack
    if is_marker(value, "subject"):
        machine.emit(ast.Assign([target], value, lineno=0))
        return
    inner = value.value if isinstance(value, Chained) else value
    if isinstance(inner, Function):
        inner = machine.as_expr(inner)
    targets = value.targets + [target] if isinstance(value, Chained) else [target]
    if stack and (stack[-1] is inner or stack[-1] is value) and not isinstance(inner, Item):
        stack[-1] = Chained(inner, targets)
        stack[-1].when = getattr(inner, "when", 0)
        return
    if not _grouped(machine, targets, inner):
        assign(machine, targets, inner)


def _grouped(machine: Any, targets: list[Any], value: Any) -> bool:
    """Whether the store is one of several that make one statement: the last of them closes it."""
    if isinstance(value, Item) or (not machine.group and _clean(machine)):
        return False
    machine.group.append((targets, value))
    if _clean(machine):
        close_group(machine)
    return True


def _store_generic(machine: Any, value: Any, target: Any) -> None:
    """Inside ``<generic parameters of …>`` stores only keep type parameters for the definition's own use."""
    if isinstance(target, ast.Name) and target.id == ".type_params" and isinstance(value, ast.Tuple):
        machine.scope.type_parameters = [p.node for p in value.elts]  # type: ignore[attr-defined]


def _clean(machine: Any) -> bool:
    """Whether the stack holds no value that a later store of the same statement will take."""
    if not machine.stack:
        return True
    top = machine.stack[-1]
    return is_silent(top) or (isinstance(top, ast.Name) and top.id in machine.scope.constants)


def close_group(machine: Any) -> None:
    """``a, b = x, y``: the values were pushed in source order, the targets stored in theirs."""
    group, machine.group = machine.group, []
    if len(group) == 1:
        assign(machine, group[0][0], group[0][1])
        return
    if any(len(targets) != 1 or isinstance(value, (Inplace, Item)) for targets, value in group):
        raise DecompileError("several values stored at once in an unknown way")
    ordered = sorted(group, key=lambda pair: getattr(pair[1], "when", 0))
    targets = [t[0] for t, _ in ordered]
    values = [machine.as_expr(v) for _, v in ordered]
    machine.emit(ast.Assign([ast.Tuple(targets, STORE)], ast.Tuple(values, ast.Load()), lineno=0))


def assign(machine: Any, targets: list[Any], value: Any) -> None:
    if isinstance(value, Inplace):
        _augmented(machine, targets, value)
        return
    if len(targets) == 1 and isinstance(targets[0], ast.Name):
        defined = definition(machine.scope, targets[0].id, value)
        if defined is not None:
            machine.emit(defined)
            return
    machine.emit(ast.Assign(targets, value, lineno=0))


def _augmented(machine: Any, targets: list[Any], value: Inplace) -> None:
    target = targets[0]
    left = value.left
    if len(targets) == 1 and _same_place(target, left):
        machine.emit(ast.AugAssign(target, value.op, value.right))
        return
    if not isinstance(left, ast.Name):
        raise DecompileError("an in-place operation stored somewhere else")
    # a tool or a continuation has put the old value elsewhere
    name = machine.scope.temporary()
    machine.emit(assign_to(name, left))
    machine.emit(ast.AugAssign(ast.Name(name, STORE), value.op, value.right))
    machine.emit(ast.Assign(targets, load(name), lineno=0))


def _same_place(target: Any, left: Any) -> bool:
    if isinstance(target, ast.Name):
        return isinstance(left, ast.Name) and left.id == target.id
    if isinstance(target, ast.Attribute):
        return isinstance(left, ast.Attribute) and left.value is target.value and left.attr == target.attr
    if isinstance(target, ast.Subscript):
        return isinstance(left, ast.Subscript) and left.value is target.value and _same_slice(left.slice, target.slice)
    return False


def _same_slice(a: Any, b: Any) -> bool:
    if a is b:
        return True
    return isinstance(a, ast.Slice) and isinstance(b, ast.Slice) and a.lower is b.lower and a.upper is b.upper


# -- unpacking ------------------------------------------------------------------------------------------------------
def unpack(machine: Any, count: int, star: int | None) -> None:
    value = machine.pop()
    stack = machine.stack
    shared = bool(stack) and stack[-1] is value and not isinstance(value, (UnpackItem, Item))
    owner = Unpacking(value, count, star, shared)
    if count == 0:
        _complete(machine, owner)
        return
    for index in range(count - 1, -1, -1):
        item = UnpackItem(owner, index)
        item.when = getattr(value, "when", 0)  # type: ignore[attr-defined]
        stack.append(item)


def fill(machine: Any, item: UnpackItem, target: Any) -> None:
    owner = item.owner
    if owner.targets[item.index] is not None:
        raise DecompileError("an unpacked value stored twice")
    if owner.star == item.index and target is not None:
        target = ast.Starred(target, STORE)
    owner.targets[item.index] = target
    owner.filled += 1
    if owner.filled == len(owner.targets):
        _complete(machine, owner)


def drop_item(machine: Any, item: UnpackItem) -> None:
    """An unpacked value thrown away: the compiler found the same name stored again right after."""
    owner = item.owner
    owner.dropped.append(item.index)
    fill(machine, item, ast.Name("_", STORE))


def _complete(machine: Any, owner: Unpacking) -> None:
    for index in owner.dropped:
        later = [t for t in owner.targets[index + 1 :] if isinstance(t, ast.Name)]
        name = later[0] if later else ast.Name("_", STORE)
        owner.targets[index] = ast.Starred(name, STORE) if owner.star == index else name
    target = ast.Tuple(owner.targets, STORE)
    value = owner.value
    if isinstance(value, UnpackItem):
        fill(machine, value, target)
        return
    if isinstance(value, Chained):
        targets, inner = value.targets + [target], value.value
    else:
        targets, inner = [target], value
    stack = machine.stack
    if owner.shared and stack and stack[-1] is inner:
        stack[-1] = Chained(inner, targets)
        return
    if not _grouped(machine, targets, inner):
        machine.emit(ast.Assign(targets, inner, lineno=0))


# -- imports --------------------------------------------------------------------------------------------------------
def _import(machine: Any, value: Import, target: Any) -> None:
    if not isinstance(target, ast.Name):
        raise DecompileError("an import stored to something other than a name")
    top = value.module.split(".")[0]
    alias = ast.alias(value.module, None if target.id == top else target.id)
    machine.emit(ast.Import([alias]))


def _import_from(machine: Any, value: Imported, target: Any) -> None:
    owner = value.owner
    if not isinstance(target, ast.Name):
        raise DecompileError("an import stored to something other than a name")
    if owner.names is None:  # import a.b as c
        machine.emit(ast.Import([ast.alias(owner.module, target.id)]))
        owner.aliases.append(ast.alias(owner.module, target.id))
        return
    owner.aliases.append(ast.alias(value.name, None if target.id == value.name else target.id))


def drop_import(machine: Any, value: Import) -> None:
    """POP_TOP after ``from m import …``: the statement is complete."""
    if value.names is None:
        if not value.aliases and not any(isinstance(v, Imported) and v.owner is value for v in machine.stack):
            raise DecompileError("an import that is never stored")
        return
    machine.emit(ast.ImportFrom(value.module or None, value.aliases, value.level))


_TAKEN_BY: dict[type, Any] = {UnpackItem: fill, Imported: _import_from, Import: _import}
