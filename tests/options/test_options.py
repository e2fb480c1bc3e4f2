"""Arguments of tg.compile: what is taken, and what a wrong name is told."""

import copy

import pytest
import torch

from torchglass.backends import registry
from torchglass.options import INDUCTOR_OPTIONS, MODES, OPTIONS, CompileOptions


def test_defaults():
    options = CompileOptions.make()
    assert (options.backend, options.mode) == ("glass", "default")
    assert (options.dynamic, options.fullgraph) == (None, False)
    assert options.get("cache_limit") == 64
    assert CompileOptions.make(backend=None, mode=None) == options


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_is_taken(mode):
    assert CompileOptions.make(mode=mode).mode == mode


@pytest.mark.parametrize("name", OPTIONS)
def test_every_default_is_valid_when_given(name):
    value = OPTIONS[name].default
    assert CompileOptions.make(options={name: value}).get(name) == value


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            {"backend": "glas"},
            ["unknown backend 'glas'", "did you mean 'glass'?", "'aot_eager'", "'inductor'"],
        ),
        ({"mode": "max_autotune"}, ["unknown mode 'max_autotune'", "did you mean 'max-autotune'", *MODES]),
        ({"options": {"memory_buget": 0.5}}, ["unknown option 'memory_buget'", "'memory_budget'?", *OPTIONS]),
        ({"options": {"epilogue_fusion": True}}, ["'epilogue_fusion'", "torch.compile", *OPTIONS]),
        ({"options": {"passes": {"nonsense": False}}}, ["options['passes']", "unknown pass 'nonsense'"]),
    ],
)
def test_an_unknown_name_lists_the_valid_ones(arguments, words):
    with pytest.raises(ValueError) as caught:
        CompileOptions.make(**arguments)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"backend": 3}, "backend"),
        ({"mode": 3}, "mode"),
        ({"dynamic": "yes"}, "dynamic"),
        ({"fullgraph": None}, "fullgraph"),
        ({"options": ["freezing"]}, "options"),
        ({"options": {"freezing": 1}}, "freezing"),
        ({"options": {"memory_budget": 1.5}}, "memory_budget"),
        ({"options": {"memory_budget": True}}, "memory_budget"),
        ({"options": {"cache_limit": 0}}, "cache_limit"),
        ({"options": {"threads": -1}}, "threads"),
        ({"options": {"passes": ["cse"]}}, "passes"),
    ],
)
def test_a_value_of_the_wrong_kind_names_the_argument(arguments, word):
    with pytest.raises(TypeError, match=word):
        CompileOptions.make(**arguments)


def test_no_inductor_name_hides_one_of_ours():
    assert not set(INDUCTOR_OPTIONS) & set(OPTIONS)


def test_options_hash_copy_and_stay_apart_from_the_callers_dict():
    given = {"threads": 2}
    options = CompileOptions.make(options=given)
    given["threads"] = 5
    assert options.get("threads") == 2
    assert copy.deepcopy(options) is options
    assert isinstance(hash(options), int)
    with pytest.raises(AttributeError):
        options.mode = "default"


def graph() -> torch.fx.GraphModule:
    return torch.fx.symbolic_trace(lambda x: (x.sin() + 1,))


def test_a_callable_backend_gets_the_graph_the_inputs_and_only_the_wishes_given():
    seen = []

    def backend(gm, inputs, **wishes):
        seen.append((gm, list(inputs), wishes))
        return gm.forward

    gm, x = graph(), torch.ones(3)
    for options in (
        CompileOptions.make(backend),
        CompileOptions.make(backend, mode="own", options={"level": 3}),
    ):
        run = registry.resolve(backend).foreign(gm, [x], options)
        assert torch.equal(run(x)[0], x.sin() + 1)
    assert [s[2] for s in seen] == [{}, {"mode": "own", "options": {"level": 3}}]
    assert seen[0][0] is gm


def test_a_callable_backend_that_returns_nothing_is_told():
    with pytest.raises(TypeError, match="must return a callable"):
        registry.resolve(lambda gm, inputs: None).foreign(graph(), [], CompileOptions.make())


def test_torch_compiles_names_are_taken_and_run():
    assert registry.resolve("torchglass").name == "glass"
    backend = registry.resolve("aot_ts")
    assert backend.foreign is not None
    run = registry.resolve("eager_noexcept").foreign(graph(), [], CompileOptions.make("eager_noexcept"))
    assert torch.equal(run(torch.ones(3))[0], torch.ones(3).sin() + 1)


def test_names_start_with_our_own():
    assert registry.names()[:3] == ["eager", "aot_eager", "glass"]
    assert len(set(registry.names())) == len(registry.names())
