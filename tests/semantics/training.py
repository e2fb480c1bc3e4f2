"""More for generated programs: indexing, views, autograd, transforms, modules with hooks, steps of training."""

from __future__ import annotations

from .writer import expression, statement

INDICES = ["[0, 2]", "torch.tensor([0, 1])", "..., None", "0:2", "-1:", "None, :", "[True, False, True]"]
FACTS = ["numel()", "ndim", "shape[-1]", "size(0)", "stride()[0]", "storage_offset()"]
SWITCHES = ["train()", "eval()", "zero_grad()", "requires_grad_(False)", "requires_grad_(True)"]
DTYPES = ["half()", "bool()", "long()", "to(torch.int32)", "bfloat16()"]


@expression("tensor", 3)
def _tensor(w):
    one = lambda: w.expr("tensor")
    return w.pick([
        lambda: f"Square.apply({one()})",
        lambda: f"Square.apply({one()}, {w.expr('int')})",
        lambda: "net(batch)",
        lambda: f"net({one()}.reshape(-1, 3))",
        lambda: f"net[{w.pick(['0', '-2', ':2'])}]({one()})",
        lambda: f"torch.func.grad(lambda v: (v * v).sum())({one()})",
        lambda: f"torch.vmap(lambda v: v * {w.expr('int')} + 1)({one()})",
        lambda: f"torch.func.jvp(torch.sin, ({one()},), ({one()},))[1]",
        lambda: f"{one()}[{w.pick(INDICES)}]",
        lambda: f"{one()}[{one()} > 0]",
        lambda: f"torch.zeros(3).index_add(0, torch.tensor([0, 2, 0]), {one()})",
        lambda: "weight.gather(0, torch.tensor([1, 0]))",
        lambda: f"weight.scatter(0, torch.tensor([1, 0]), {w.pick(['5.0', w.expr('int')])})",
        lambda: f"{one()}.{w.pick(DTYPES)}",
        lambda: f"({one()} {w.pick(['//', '%', '**'])} {w.pick(['2', '3', w.expr('int')])})",
        lambda: f"({one()} {w.pick(['>', '<=', '=='])} {w.pick([one(), w.expr('int')])})",
        lambda: f"torch.{w.pick(['maximum', 'minimum', 'atan2', 'fmod'])}({one()}, {one()})",
        lambda: f"torch.{w.pick(['softmax', 'cumprod', 'logsumexp', 'std', 'mean'])}({one()}.float(), 0)",
        lambda: f"F.pad({one()}, (1, {w.pick(['1', '0', w.expr('int')])}))",
        lambda: f"F.{w.pick(['mse_loss', 'l1_loss', 'smooth_l1_loss'])}({one()}, {one()})",
        lambda: f"F.linear({one()}, torch.ones(2, 3), torch.zeros(2))",
        lambda: f"F.embedding({one()}.long().clamp(0, 2), torch.eye(3))",
        lambda: f"torch.linspace(0, {w.expr('int')}, 3)",
        lambda: f"torch.broadcast_to({one()}, (2, 3))",
        lambda: f"{one()}.repeat({w.pick(['2', '2, 1'])})",
        lambda: f"{one()}.requires_grad_({w.pick(['', 'False'])})",
        lambda: f"torch.tensor({one()}.sum().item())",
        lambda: f"torch.autograd.grad(({one()} * layer.weight).sum(), layer.weight)[0]",
        lambda: f"torch.utils.checkpoint.checkpoint(torch.sin, {one()}, use_reentrant=False)",
        lambda: f"max({one()}, {one()}, key=lambda t: t.numel())",
        lambda: "layer.weight.grad.clone()",
    ])()  # fmt: skip


@expression("int", 1)
def _int(w):
    return w.pick([
        lambda: f"{w.expr('tensor')}.{w.pick(FACTS)}",
        lambda: f"len(list(net.{w.pick(['parameters()', 'children()', 'named_buffers()'])}))",
        lambda: f"round(float({w.expr('tensor')}.sum()))",
        lambda: f"{w.expr('tensor')}.argmax().item()",
        lambda: f"int(({w.expr('tensor')} > 0).sum())",
    ])()  # fmt: skip


@statement(2)
def _write_tensor(w):
    one = lambda: w.expr("tensor")
    name = w.fresh("z")
    for text in w.pick([
        lambda: [f"{name} = {w.leaf('tensor')}[1:]", f"{name} {w.pick(['+=', '*='])} 2"],
        lambda: [f"{name} = {w.leaf('tensor')}.view(-1)", f"{name}[0] = {w.expr('int')}"],
        lambda: [f"{name} = {w.leaf('tensor')}.detach()", f"{name}.mul_({w.expr('int')})"],
        lambda: [f"{name} = {w.leaf('tensor')}.unbind()", f"{name}[0].add_(1)"],
        lambda: [f"{w.leaf('tensor')}[{one()} > 0] = {w.expr('int')}"],
        lambda: [f"{w.leaf('tensor')}[{w.pick(INDICES)}] = {one()}"],
        lambda: [f"{w.leaf('tensor')}.data = {one()}.detach()"],
        lambda: [f"{w.leaf('tensor')}.data.add_({w.expr('int')})"],
        lambda: [f"{w.leaf('tensor')}.fill_({w.pick(['1', w.expr('int')])})"],
        lambda: [f"{w.leaf('tensor')}.index_fill_(0, torch.tensor([0]), {w.expr('int')})"],
        lambda: [f"{w.leaf('tensor')}.t_()"],
        lambda: [f"batch[{w.expr('int')}] += {one()}"],
    ])():  # fmt: skip
        w.line(text)


@statement(2)
def _train(w):
    for text in w.pick([
        lambda: ["optimizer.zero_grad()", f"(net(batch) * {w.expr('tensor')}).sum().backward()", "optimizer.step()"],
        lambda: [f"layer({w.expr('tensor')}).sum().backward()"],
        lambda: [f"({w.expr('tensor')} * layer.weight).sum().backward()", "log.append(layer.weight.grad)"],
        lambda: [f"layer.weight.grad = {w.pick(['None', w.expr('tensor')])}"],
        lambda: ["with torch.no_grad():", f"    layer.weight.mul_({w.expr('int')})"],
        lambda: ["with torch.no_grad():", f"    layer.weight.copy_({w.expr('tensor')})"],
        lambda: [f"layer.weight.requires_grad_({w.expr('bool')})"],
        lambda: [f"net.{w.pick(SWITCHES)}"],
        lambda: [f"net[{w.pick(['1', '3'])}] = torch.nn.{w.pick(['Tanh', 'Identity'])}()"],
        lambda: ["handle = layer.register_forward_hook(double_output)", f"log.append(layer({w.expr('tensor')}))",
                 "handle.remove()"],
        lambda: ["layer.weight = torch.nn.Parameter(layer.weight.detach() * 2)"],
        lambda: ["optimizer.param_groups[0]['lr'] *= 0.5"],
        lambda: ["layer.load_state_dict({k: v * 2 for k, v in layer.state_dict().items()})"],
        lambda: [f"torch.nn.utils.clip_grad_norm_(net.parameters(), {w.pick(['1.0', w.expr('int')])})"],
        lambda: [f"torch.manual_seed({w.expr('int')})"],
    ])():  # fmt: skip
        w.line(text)
