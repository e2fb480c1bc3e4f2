"""Operations that kernels refuse though fake tensors take them: they raise as in eager, read or not."""

import warnings

import pytest
import torch
from torch import nn

import torchglass as tg
from torchglass.aten import dtypes
from torchglass.aten.dtypes import refusal
from torchglass.torch_compat import new_fake_mode

REFUSED = {
    "bits of floats": lambda x: x & x,
    "complex extrema": lambda x: torch.maximum(x + 1j, x + 1j),
    "complex of bfloat16": lambda x: torch.complex(x.bfloat16(), x.bfloat16()),
    "complex positions": lambda x: torch.arange(3, dtype=torch.complex64),
    "a common divisor of floats": lambda x: torch.gcd(x, x),
    "a product of floats and integers": lambda x: x @ x.long(),
    "a product of two precisions": lambda x: x @ x.double(),
    "products in a batch": lambda x: x[None].bmm(x[None].long()),
    "a vector of integers": lambda x: x @ x.long()[0],
    "a dot product": lambda x: torch.dot(x[0], x.long()[0]),
    "an added product": lambda x: torch.addmm(x.long(), x, x),
    "a convolution": lambda x: torch.conv1d(x[None], x[None].long()),
    "a convolution that is transposed": lambda x: torch.conv_transpose1d(x[None], x[None].long()),
    "places of floats": lambda x: x.index_select(0, x[0]),
    "places to add at": lambda x: x.index_add(0, torch.tensor([0, 1]), x[:2].double()),
    "what is put": lambda x: x.index_put((torch.tensor([0, 1]),), x[:2].double()),
    "in place": lambda x: x.to(torch.int32).erfinv().bitwise_not_(),
    "added at places": lambda x: x.index_put_((torch.tensor([0, 1]),), torch.tensor(2), accumulate=True),
    "assigned at places": lambda x: x.clone().__setitem__(torch.tensor([0, 1]), x[:2].double()),
    "no remainder": lambda x: x.long() % 0,
    "no quotient": lambda x: x.long() // 0,
    "no slope": lambda x: torch.celu(x, 0.0),
    "no dimensions": lambda x: x.mvlgamma(0),
    "no probability": lambda x: torch.bernoulli(x, 2.0),
    "from more to less": lambda x: x.clone().uniform_(3, 1),
    "below nothing": lambda x: torch.randint_like(x, -3),
    "a negative threshold": lambda x: nn.functional.smooth_l1_loss(x, x, beta=-1.0),
    "in a list": lambda x: torch.block_diag(x & x, x),
    "random integers": lambda x: torch.randn(3, dtype=torch.int64),
}


def raises_alike(operation, x, read, kinds):
    """The operation raises one of these, and compiled the same, whether or not somebody reads its result."""

    def f(x):
        y = operation(x)
        return y if read else x + 1

    with pytest.raises(kinds) as eager:
        f(x)
    for backend in ("eager", "glass"):
        with pytest.raises(type(eager.value)) as ours:
            tg.compile(f, backend=backend)(x)
        assert str(ours.value) == str(eager.value)


@pytest.mark.parametrize("size", [3, 100])
@pytest.mark.parametrize("read", [True, False], ids=["read", "unread"])
@pytest.mark.parametrize("name", REFUSED)
def test_dtypes_that_kernels_refuse(name, read, size):
    dtypes._known.clear()
    x = torch.ones(size, size)
    raises_alike(REFUSED[name], x, read, (RuntimeError, NotImplementedError))


@pytest.mark.parametrize("read", [True, False], ids=["read", "unread"])
@pytest.mark.parametrize("size", [3, 100])
@pytest.mark.parametrize(
    "operation",
    [
        lambda x: x.sort(5),
        lambda x: x.argsort(-3),
        lambda x: x.sum().sort(1),
        lambda x: x.sum().cummax(1),
        lambda x: x.softmax(4),
        lambda x: x.slice_scatter(x, 5),
    ],
)
def test_dimensions_that_are_not_there(operation, size, read):
    dtypes._known.clear()
    raises_alike(operation, torch.ones(size, size), read, IndexError)


@pytest.mark.parametrize("backend", ["eager", "glass"])
def test_whole_numbers_are_divided_by_tensors(backend):
    """What is tried divides by no zero."""

    def f(x, y):
        z = x.clone()
        z %= y
        return 7 // x, x % y, x.fmod(y), torch.div(x, y, rounding_mode="floor"), 7 % y, z

    compiled = tg.compile(f, backend=backend, fullgraph=True)
    x, y = torch.arange(1, 7), torch.arange(-6, 0)
    torch.testing.assert_close(compiled(x, y), f(x, y))
    assert len(tg.explain(compiled).graphs()) == 1


OVERLAPPING = {
    "assigned": lambda x: x.__setitem__(x, 2),
    "put": lambda x: x.index_put_((x,), torch.tensor(2)),
    "a row at another's places": lambda x: x[None][0].index_fill_(0, x, 1),
    "added": lambda x: x.__setitem__(x, x[x] + 1),
}


@pytest.mark.parametrize("name", OVERLAPPING)
def test_writing_to_what_says_where(name):
    def f(x):
        OVERLAPPING[name](x)
        return x

    with pytest.raises(RuntimeError, match="unsupported operation"):
        f(torch.zeros(4, dtype=torch.long))
    for backend in ("eager", "glass"):
        with pytest.raises(RuntimeError, match="unsupported operation"):
            tg.compile(f, backend=backend)(torch.zeros(4, dtype=torch.long))


def test_writing_elsewhere_than_what_says_where():
    def f(x):
        x[0, x[1]] = 2
        x[x > 1] = 1
        return x

    x = lambda: torch.tensor([[0, 1, 3], [0, 0, 1]])
    assert torch.equal(tg.compile(f, fullgraph=True)(x()), f(x()))


SIZES = {
    "added at places": lambda x: x.index_add(0, torch.tensor([0, 2, 0]), torch.eye(3)),
    "put at places": lambda x: x.index_put((torch.tensor([0, 1]),), torch.ones(3)),
    "places in a matrix": lambda x: x.index_select(0, torch.zeros(2, 2, dtype=torch.long)),
    "a dimension too many": lambda x: x.softmax(1),
    "a slice of another size": lambda x: torch.slice_scatter(x, torch.ones(2)),
    "boundaries in a matrix": lambda x: torch.bucketize(x, torch.ones(2, 2)),
    "places in a list": lambda x: x[0:2][[0, 2]],
    "running statistics": lambda x: torch.batch_norm(x.view(1, 3), None, None, x[:2], x[:2], False, 0.1, 1e-5, False),
}


@pytest.mark.parametrize("read", [True, False], ids=["read", "unread"])
@pytest.mark.parametrize("name", SIZES)
def test_sizes_that_kernels_refuse(name, read):
    x = torch.ones(3)
    raises_alike(SIZES[name], x, read, (RuntimeError, IndexError))


@pytest.mark.parametrize("mask", [torch.tensor([True, False, True]), torch.tensor([1, 0, 1], dtype=torch.uint8)])
@pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")
def test_how_many_places_a_mask_says_is_data(mask):
    def f(x):
        return x.index_put((mask,), torch.ones(2), accumulate=True)

    compiled = tg.compile(f)
    assert torch.equal(compiled(torch.ones(3)), f(torch.ones(3)))
    assert len(tg.explain(compiled).graphs()) == 1


def test_places_that_are_not_there_though_nobody_reads():
    def f(x, places):
        y = torch.tensor(3.0).scatter(0, places, 5.0)
        x.gather(0, places)
        return y.dim()

    for places in (torch.tensor([0, 0]), torch.tensor([1, 0])):
        with pytest.raises(RuntimeError) as eager:
            f(torch.ones(1), places + 1)
        with pytest.raises(RuntimeError) as ours:
            tg.compile(f, backend="eager")(torch.ones(1), places + 1)
        assert str(ours.value) == str(eager.value)


def test_a_graph_that_fails_draws_no_numbers():
    own = torch.Generator()

    def f(x, y, n):
        noise = torch.randn(3) + torch.randn(3, generator=own)
        x += noise
        return x[n], y[n] + noise[:1]

    def outcome(call, n):
        torch.manual_seed(0)
        own.manual_seed(1)
        x = torch.zeros(3)
        try:
            given = call(x, torch.ones(3), torch.tensor([n]))
        except IndexError as error:
            given = str(error)
        return given, x, torch.rand(2), torch.rand(2, generator=own)

    compiled = tg.compile(f)
    for n in (4, 5, 1):
        (given, *rest), (expected, *others) = outcome(compiled, n), outcome(f, n)
        assert (
            given == expected if isinstance(expected, str) else torch.equal(torch.stack(given), torch.stack(expected))
        )
        torch.testing.assert_close(rest, others)


@pytest.mark.complains("which ran eagerly instead, did not")
@pytest.mark.parametrize("dynamic", [None, True])
def test_what_was_written_before_it_failed(dynamic):
    """The entry has run before; the program's own ``try`` is around."""

    def f(x, places):
        x.add_(1)
        try:
            y = x[places]
        except IndexError:
            y = x[:1] * 10
        x.mul_(3)
        return y

    compiled = tg.compile(f, dynamic=dynamic)
    for size, place in ((4, 0), (4, 4), (6, 6), (6, 1), (5, 5)):
        x, y = torch.arange(float(size)), torch.arange(float(size))
        places = torch.tensor([place])
        torch.testing.assert_close(compiled(x, places), f(y, places))
        assert torch.equal(x, y)


def test_what_the_program_catches():
    def f(x, done):
        done.append(1)
        try:
            x & x
        except NotImplementedError as error:
            return x * 2, str(error)
        return x

    x, done = torch.ones(3), []
    assert tg.compile(f)(x, done)[1] == f(x, done)[1] and done == [1, 1]


def test_no_kernel_is_tried_with_made_up_places():
    """LAPACK ends the process at pivots that are none."""

    def f(factors, pivots, x):
        return torch.linalg.ldl_solve(factors, pivots, x)

    with torch.no_grad():
        factors, pivots = torch.linalg.ldl_factor(torch.eye(3, dtype=torch.float64))
    x = torch.ones(3, 1, dtype=torch.float64)
    assert torch.equal(tg.compile(f)(factors, pivots, x), f(factors, pivots, x))


def test_each_kernel_is_tried_once():
    mode, calls = new_fake_mode(), []
    with mode:
        x = torch.ones(3, dtype=torch.int16)

    class Counted:
        namespace, is_view, tags, _schema = "aten", False, (), torch.ops.aten.add.Tensor._schema

        def __call__(self, *args):
            calls.append(args)

    operator = Counted()
    for other in (x, x[:2], 2, 3, 2.0):
        assert refusal(operator, (x, other), {}, x) is None
    assert len(calls) == 3  # a tensor, an integer, a float


# --- memory that is read and written at once -------------------------------------------------------------------------
def shifted(y):
    y[1:] *= y[:-1]


def of_one_element(y):
    y[1:] *= y[1]


def shifted_columns(y):
    z = y.view(2, 3)
    z[:, 1:] *= z[:, :-1]


def spread(y):
    z = y.view(2, 3)
    z[:] = z.t()[:2, :1].expand(2, 3)


def parts_of_complex_numbers(y):
    z = torch.view_as_complex(y.view(3, 2))
    y.view(3, 2)[:, 0].mul_(z[1].real)


@pytest.mark.parametrize("write", [shifted, of_one_element, shifted_columns, spread, parts_of_complex_numbers])
def test_writes_to_what_is_read(write):
    def f(x):
        y = x + 1
        write(y)
        return y

    x = torch.arange(6.0)
    try:
        expected = f(x)
    except RuntimeError as error:
        with pytest.raises(RuntimeError) as ours:
            tg.compile(f)(x)
        assert str(ours.value) == str(error)
    else:
        assert torch.equal(tg.compile(f)(x), expected)


def test_writes_beside_what_is_read_stay_whole():
    def f(x):
        y = (x + 1).view(3, 4)
        y[:, ::2] += y[:, 1::2]
        y[:, 1:3].mul_(y[:, 1:3])
        z = torch.view_as_complex(y.view(3, 2, 2))
        z.real.mul_(z.imag)
        return y

    x = torch.arange(12.0)
    torch.testing.assert_close(tg.compile(f, fullgraph=True)(x), f(x))


@pytest.mark.parametrize("module", [nn.LSTM(64, 48), nn.GRU(64, 48), nn.RNN(64, 48)], ids=lambda m: type(m).__name__)
def test_no_kernel_that_believes_its_sizes_is_tried_with_others(module):
    """oneDNN's recurrent layer writes as far as its hidden size says, over tensors that are smaller."""
    x = torch.randn(56, 14, 64)
    with torch.no_grad():
        torch.testing.assert_close(tg.compile(module)(x), module(x))


@pytest.mark.parametrize("kernel, padding, dilation", [(5, 0, 1), (3, 1, 2), ((1, 7), 0, 1)])
def test_no_convolution_is_tried_with_sizes_of_another(kernel, padding, dilation):
    conv = nn.Conv2d(8, 8, kernel, padding=padding, dilation=dilation, dtype=torch.bfloat16)
    x = torch.randn(2, 8, 32, 32, dtype=torch.bfloat16)
    with torch.no_grad():
        torch.testing.assert_close(tg.compile(conv, backend="eager")(x), conv(x))


def test_a_view_that_autograd_lets_nobody_read():
    """One of several views of a tensor that was written to: the loop gets it and does not look at it."""
    weight = torch.ones(2, requires_grad=True)

    def f(x):
        rounds = 0
        for view in x:
            del view
            x[1:].add_(weight)
            tg.graph_break()
            rounds += 1
        return rounds

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tg.compile(f, backend="eager")(torch.ones(3)) == 3


@pytest.mark.filterwarnings("ignore:Sparse CSR")
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "glass"])
@pytest.mark.parametrize("make", [torch.Tensor.to_sparse, torch.Tensor.to_sparse_csr])
def test_sparse_tensors_made_inside(backend, make):
    def f(x):
        y = x.sin()
        return make(y) @ y + 1

    compiled, x = tg.compile(f, backend=backend), torch.eye(3) - 0.5
    torch.testing.assert_close(compiled(x), f(x))
    assert tg.explain(compiled).graphs  # of what comes before
    with pytest.raises(tg.GraphBreakError, match="sparse"):
        tg.compile(f, backend=backend, fullgraph=True)(x)


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "glass"])
def test_quantized_tensors_made_inside(backend):
    """Fake tensors give them float32."""

    def program(x):
        quantized = torch.quantize_per_tensor(x, 0.1, 10, torch.quint8)
        return quantized.dequantize(), quantized.int_repr(), x + 1

    x = torch.randn(5)
    for expected, found in zip(program(x), tg.compile(program, backend=backend)(x)):
        assert found.dtype is expected.dtype and torch.equal(found, expected)
