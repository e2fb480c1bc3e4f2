"""Image models of timm and torchvision with random weights, compiled and compared with eager.

    python -m tests.sweep.image_models --jobs 2 [--only timm:resnet18 tv:swin_t] [--backend eager] [--training]
        [--changing [--dynamic]] --json F

Code of many authors in many styles: hooks of their own, scripted activations, attention on grids and in windows, blocks
that draw random numbers, batch norms that change buffers. Each model runs in a forked process of its own.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from functools import partial
from typing import Any

from .architectures import arguments, sweep
from .changing import changing
from .compared import Row, compared, stepper
from .inputs import USUAL, Extent
from .report import finish

LARGEST = 128  # pixels on a side, where a model takes any size
TIMM = """
    resnet18 resnext26ts seresnet18 efficientnet_b0 mobilenetv3_small_050 mobilenetv2_035 regnetx_002 densenet121 vgg11
    convnext_atto convnextv2_atto vit_tiny_patch16_224 deit_tiny_patch16_224 swin_tiny_patch4_window7_224 cait_xxs24_224
    swinv2_tiny_window8_256 beit_base_patch16_224 pit_ti_224 levit_128s mixer_s32_224 resmlp_12_224 gmlp_ti16_224
    coat_lite_tiny crossvit_tiny_240 convit_tiny xcit_nano_12_p16_224 poolformer_s12 edgenext_xx_small mobilevit_xxs
    mobilevitv2_050 maxvit_pico_rw_256 coatnet_nano_rw_224 volo_d1_224 twins_svt_small pvt_v2_b0 nest_tiny
    tnt_s_patch16_224 visformer_tiny efficientformer_l1 fastvit_t8 repvgg_a0 hrnet_w18_small inception_v3 dla34
    ese_vovnet19b_dw cspresnet50 darknet21 ghostnet_050 hardcorenas_a tinynet_e rexnet_100 res2net50_14w_8s resnest14d
    sknet18 selecsls42 xception41 nfnet_l0 eca_nfnet_l0 lcnet_035 focalnet_tiny_srf hiera_tiny_224 repvit_m0_9
    eva02_tiny_patch14_224 inception_next_atto starnet_s1 mambaout_femto davit_tiny gcvit_xxtiny tiny_vit_5m_224
    efficientvit_b0 efficientvit_m0 vit_relpos_small_patch16_224 flexivit_small sequencer2d_s ghostnetv2_100
    caformer_s18 haloregnetz_b lambda_resnet26t botnet26t_256
"""
TORCHVISION = """
    resnet18 alexnet vgg11 squeezenet1_0 densenet121 inception_v3 googlenet shufflenet_v2_x0_5 mobilenet_v2
    mobilenet_v3_small resnext50_32x4d mnasnet0_5 efficientnet_b0 efficientnet_v2_s regnet_y_400mf vit_b_16
    convnext_tiny swin_t swin_v2_t maxvit_t
"""
NAMES = [*(f"timm:{n}" for n in TIMM.split()), *(f"tv:{n}" for n in TORCHVISION.split())]


def build(name: str) -> tuple[Any, Any]:
    """The model, and how to make a batch of images for it."""
    import torch

    torch.manual_seed(0)
    library, _, model_name = name.partition(":")
    if library == "timm":
        import timm

        model = timm.create_model(model_name, pretrained=False, num_classes=10)
        settings = model.pretrained_cfg
        size = settings["input_size"][-1]
        size = size if settings.get("fixed_input_size") else min(size, LARGEST)
    else:
        import torchvision

        model = torchvision.models.get_model(model_name, weights=None)
        size = {"inception_v3": 299, "vit_b_16": 224, "maxvit_t": 224}.get(model_name, LARGEST)

    def images(extent: Extent) -> list[Any]:
        pixels = size * extent.halves // 2
        return [torch.randn(extent.batch, 3, pixels, pixels)]

    return model, images


def check(name: str, chosen: Namespace) -> Row:
    import torch

    torch.set_num_threads(1)
    row: Row = {"name": name}
    try:
        model, images = build(name)
        step = stepper(model.train(chosen.training), images(USUAL), chosen.training)
        expected = step(model)
    except Exception as error:
        return {**row, "result": "skipped", "why": f"{type(error).__name__}: {error}"[:300]}
    return (
        changing(row, model, images, chosen)
        if chosen.changing
        else compared(row, model, step, expected, chosen.backend)
    )


def main() -> int:
    chosen = arguments().parse_args()
    for library in ("timm", "torchvision"):  # before the fork, once for all
        __import__(library)
    names = [n for n in chosen.only or NAMES[:: chosen.every] if n not in chosen.but]
    rows = sweep(names, partial(check, chosen=chosen), chosen.jobs, chosen.timeout)
    return finish(rows, chosen, "image_models")


if __name__ == "__main__":
    sys.exit(main())
