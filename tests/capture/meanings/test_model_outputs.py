"""What transformers builds its models from: outputs, configurations, decorators, in one graph."""

import pytest
import torch

import torchglass as tg

from ..compared import same

transformers = pytest.importorskip("transformers")


@pytest.fixture(autouse=True)
def clean(tmp_path):
    tg.reset()
    with tg.prepare_debug(tmp_path):
        yield


def test_an_output_is_a_dictionary_an_object_and_a_tuple():
    from transformers.modeling_outputs import BaseModelOutputWithPooling

    def f(x):
        output = BaseModelOutputWithPooling(last_hidden_state=x + 1, pooler_output=None)
        output["attentions"] = (x, x * 2)
        output.hidden_states = (x,)
        items = [(k, len(output)) for k in output]
        return output, output[0] * 2, output["last_hidden_state"], output.to_tuple(), items, "pooler_output" in output

    compiled = tg.compile(f, backend="eager", fullgraph=True)
    for _ in range(2):
        mine, theirs = compiled(torch.ones(2)), f(torch.ones(2))
        assert type(mine[0]) is type(theirs[0])
        same(list(mine[0].items()), list(theirs[0].items()))
        same(mine[1:], theirs[1:])
    assert len(tg.explain(compiled).entries) == 1


def test_a_configuration_is_read_through_its_properties():
    config = transformers.GPT2Config(n_embd=8, n_layer=2, output_attentions=True, attn_implementation="eager")

    def f(x):
        width = config.hidden_size * getattr(config, "no such thing", 2)
        return x * width, config.use_return_dict, config.num_hidden_layers, config.to_dict()["n_embd"]

    compiled = tg.compile(f, backend="eager")
    for _ in range(2):
        same(compiled(torch.ones(2)), f(torch.ones(2)))
    config.n_embd = 16
    same(compiled(torch.ones(2)), f(torch.ones(2)))


def test_decorated_forwards():
    from transformers.activations import ACT2FN
    from transformers.modeling_outputs import BaseModelOutput
    from transformers.utils import can_return_tuple

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.config = transformers.GPT2Config()
            self.act = ACT2FN["gelu_new"]

        @can_return_tuple
        def forward(self, x, return_dict=None):
            return BaseModelOutput(last_hidden_state=self.act(x))

    model = Model()
    compiled = tg.compile(model, backend="eager", fullgraph=True)
    same(compiled(torch.ones(2)).last_hidden_state, model.act(torch.ones(2)))
    (found,) = compiled(torch.ones(2), return_dict=False)
    same(found, model.act(torch.ones(2)))
