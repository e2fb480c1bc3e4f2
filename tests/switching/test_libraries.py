"""docs/switching.md's table of libraries: each as its users write it, under ``tg.install()``."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import torchglass as tg

pytestmark = pytest.mark.filterwarnings("ignore")  # what the libraries say


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    with tg.installed():
        yield


def entries(compiled: Any) -> int:
    """How many entries it has, none of which leaves the graph."""
    explanation = tg.explain(compiled).to_dict()
    assert not any(entry["breaks"] for entry in explanation["entries"])
    return len(explanation["entries"])


def test_transformers_generate() -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.LlamaConfig(**sizes, num_key_value_heads=2, vocab_size=64, max_position_embeddings=64)
    model = transformers.LlamaForCausalLM(config).eval()
    ids = torch.randint(0, 64, (1, 5))
    asked = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0, "cache_implementation": "static"}
    expected = model.generate(ids, **asked, disable_compile=True)
    how = transformers.CompileConfig()
    how._compile_all_devices = True
    assert torch.equal(model.generate(ids, compile_config=how, **asked), expected)
    assert entries(model._compiled_call) == 1


def test_transformers_trainer(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    transformers = pytest.importorskip("transformers")
    # with a GPU it sets flags that PyTorch's own test modules, which other tests import, freeze
    known = torch.backends.flags_frozen.__globals__
    monkeypatch.setitem(known, "__allow_nonbracketed_mutation_flag", True)
    pytest.importorskip("accelerate")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    model = transformers.BertForSequenceClassification(transformers.BertConfig(**sizes, vocab_size=32))
    data = [{"input_ids": torch.randint(0, 32, (6,)), "labels": torch.tensor(i % 2)} for i in range(8)]
    wanted = {"max_steps": 2, "per_device_train_batch_size": 4, "report_to": [], "use_cpu": True, "save_strategy": "no"}
    arguments = transformers.TrainingArguments(output_dir=str(tmp_path), torch_compile=True, **wanted)
    trainer = transformers.Trainer(model, arguments, train_dataset=data)
    assert trainer.train().training_loss > 0 and entries(trainer.model_wrapped) >= 1


def test_accelerate() -> None:
    accelerate = pytest.importorskip("accelerate")
    from accelerate.utils.other import is_compiled_module

    accelerator = accelerate.Accelerator(cpu=True, dynamo_backend="inductor")
    model = nn.Linear(4, 4)
    prepared = accelerator.prepare(model)
    accelerator.backward(prepared(torch.ones(2, 4)).sum())
    assert model.weight.grad is not None and entries(prepared) == 1
    assert not is_compiled_module(prepared) and isinstance(accelerator.unwrap_model(prepared), nn.Linear)


def test_lightning_trainer() -> None:
    lightning = pytest.importorskip("lightning")

    class Model(lightning.LightningModule):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 1)

        def forward(self, a: torch.Tensor) -> torch.Tensor:
            return self.linear(a)

        def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
            return self(batch).sum()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.01)

    model = Model()
    before = model.linear.weight.detach().clone()
    compiled = torch.compile(model)
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    trainer = lightning.Trainer(accelerator="cpu", max_steps=3, **quiet)
    trainer.fit(compiled, torch.utils.data.DataLoader(torch.randn(8, 4), batch_size=4))
    assert isinstance(compiled, Model) and entries(compiled) == 1
    assert not torch.equal(model.linear.weight, before)


def test_lightning_fabric() -> None:
    fabric = pytest.importorskip("lightning.fabric").Fabric(accelerator="cpu", devices=1)
    model = torch.compile(nn.Linear(4, 4))
    wrapped, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), 0.1))
    fabric.backward(wrapped(torch.ones(2, 4)).sum())
    optimizer.step()
    assert entries(model) == 1


def test_diffusers_compile_repeated_blocks() -> None:
    diffusers = pytest.importorskip("diffusers")
    from diffusers.utils.torch_utils import is_compiled_module

    sizes = {"num_attention_heads": 2, "attention_head_dim": 8, "in_channels": 4, "out_channels": 8, "num_layers": 2}
    model = diffusers.DiTTransformer2DModel(**sizes, sample_size=8, patch_size=2, num_embeds_ada_norm=10).eval()
    given = {"timestep": torch.tensor([1]), "class_labels": torch.tensor([1])}
    noise = torch.randn(1, 4, 8, 8)
    with torch.no_grad():
        expected = model(noise, **given).sample
        model._repeated_blocks = ["BasicTransformerBlock"]
        model.compile_repeated_blocks(fullgraph=True)
        torch.testing.assert_close(model(noise, **given).sample, expected, rtol=1e-4, atol=1e-4)
    block = model.transformer_blocks[0]
    assert not is_compiled_module(block) and entries(block._compiled_call_impl) == 1


def test_timm() -> None:
    timm = pytest.importorskip("timm")
    model = timm.create_model("vit_tiny_patch16_224", num_classes=3, img_size=32, depth=1).eval()
    compiled = torch.compile(model, backend="inductor")
    image = torch.randn(1, 3, 32, 32)
    torch.testing.assert_close(compiled(image), model(image), rtol=1e-4, atol=1e-4)
    assert entries(compiled) == 1
