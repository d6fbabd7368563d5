#!/usr/bin/env python3
"""Deformable attention of public classes and of this project's own detector, traced with random
weights and rewritten: every chain of grid_sample becomes one operator with the same results.

Exit code 77: transformers is not installed."""

import sys
import unittest
import warnings
from pathlib import Path

import torch
from rewrite_case import PLUGIN, RewriteCase
from torch import Tensor, nn

try:
    import transformers
    from transformers.models.deformable_detr.modeling_deformable_detr import (
        DeformableDetrMultiscaleDeformableAttention,
        MultiScaleDeformableAttention,
    )
    from transformers.models.grounding_dino.modeling_grounding_dino import (
        GroundingDinoMultiscaleDeformableAttention,
    )
    from transformers.models.rt_detr.modeling_rt_detr import RTDetrMultiscaleDeformableAttention
    from transformers.models.rt_detr_v2.modeling_rt_detr_v2 import (
        RTDetrV2MultiscaleDeformableAttention,
    )
except ModuleNotFoundError as error:
    if error.name != "transformers":
        raise  # a release without one of these classes
    print("skipped: transformers is not installed")
    sys.exit(77)

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "traced_models"))
import deformable_detr_module as detector  # noqa: E402

warnings.simplefilter("ignore")
transformers.logging.set_verbosity_error()
DEFORM, DEFORM_SOFTMAX = "warpfuse::ms_deform_attn", "warpfuse::ms_deform_attn_softmax"
SOFTMAX = "warpfuse::softmax"
LEVELS = [(6, 8), (3, 4), (2, 1)]
PIXELS = sum(height * width for height, width in LEVELS)
SIZE, HEADS, POINTS = 32, 4, 4


class Attention(nn.Module):
    """An attention module of transformers with positional arguments; its result, or also its
    attention weights."""

    def __init__(self, module: nn.Module, with_weights: bool = False) -> None:
        super().__init__()
        self.module, self.with_weights = module, with_weights

    def forward(
        self, queries: Tensor, pixels: Tensor, reference: Tensor, shapes: Tensor, starts: Tensor
    ) -> Tensor:
        """[B, Q, C], [B, S, C] -> [B, Q, C]."""
        output, weights = self.module(
            hidden_states=queries, encoder_hidden_states=pixels, reference_points=reference,
            spatial_shapes=shapes, spatial_shapes_list=LEVELS, level_start_index=starts,
        )  # fmt: skip
        return torch.cat([output.flatten(1), weights.flatten(1)], 1) if self.with_weights else output


class Bare(MultiScaleDeformableAttention):
    """The sampling alone."""

    def forward(self, value: Tensor, locations: Tensor, weights: Tensor) -> Tensor:
        """[B, S, H, D], [B, Q, H, L, P, 2], [B, Q, H, L, P] -> [B, Q, H * D]."""
        return super().forward(value, None, LEVELS, None, locations, weights, 64)


def public_module(name: str) -> nn.Module:
    if name == "deformable_detr":
        config = transformers.DeformableDetrConfig(d_model=SIZE, num_feature_levels=len(LEVELS))
        return DeformableDetrMultiscaleDeformableAttention(config, HEADS, POINTS)
    if name == "grounding_dino":
        config = transformers.GroundingDinoConfig(d_model=SIZE, num_feature_levels=len(LEVELS))
        return GroundingDinoMultiscaleDeformableAttention(config, HEADS, POINTS)
    if name == "rt_detr":
        config = transformers.RTDetrConfig(d_model=SIZE, num_feature_levels=len(LEVELS))
        return RTDetrMultiscaleDeformableAttention(config, HEADS, POINTS)
    config = transformers.RTDetrV2Config(
        d_model=SIZE, decoder_n_levels=len(LEVELS), decoder_n_points=POINTS,
        decoder_attention_heads=HEADS,
    )  # fmt: skip
    return RTDetrV2MultiscaleDeformableAttention(config)


def inputs(
    batch: int, queries: int, coordinates: int = 2, levels: int = len(LEVELS), pixels: int = PIXELS
) -> tuple[Tensor, ...]:
    """Arguments of Attention. Some reference points lie outside of the image."""
    reference = torch.rand(batch, queries, levels, coordinates) * 1.2 - 0.1
    shapes = torch.tensor(LEVELS)
    starts = shapes.prod(1).cumsum(0) - shapes.prod(1)
    return torch.randn(batch, queries, SIZE), torch.randn(batch, pixels, SIZE), reference, shapes, starts


def scattered(module: nn.Module) -> nn.Module:
    """Points all over the image, and weights that differ: a fresh module's are all alike."""
    for name, parameter in module.named_parameters():
        nn.init.normal_(parameter, std=2.0 if "sampling_offsets" in name else 0.5)
    return module


class PublicClasses(RewriteCase):
    def assert_all_equal(self, **options: object) -> None:
        for batch, queries in ((1, 1), (1, 40), (3, 7)):
            with self.subTest(batch=batch, queries=queries):
                self.assert_equal(*inputs(batch, queries, **options))
        for pixels in (PIXELS - 1, PIXELS + 1):  # errors
            self.assert_equal(*inputs(2, 5, pixels=pixels, **options))
        queries, memory, reference, *levels = inputs(2, 5, **options)
        self.assert_equal(queries, memory[:1], reference, *levels)
        self.assert_equal(queries, memory, reference[:, :4], *levels)

    def test_attention_modules(self) -> None:
        for name in ("deformable_detr", "grounding_dino", "rt_detr", "rt_detr_v2"):
            for coordinates in (2, 4) if name != "rt_detr_v2" else (4,):
                # RT-DETR v2 has the points of all levels in one dimension.
                options = {"coordinates": coordinates, "levels": 1 if name == "rt_detr_v2" else 3}
                with self.subTest(name, coordinates=coordinates):
                    model = Attention(scattered(public_module(name)))
                    calls = self.rewrite(model, inputs(2, 5, **options), "--require", "1")
                    self.assert_routed(calls, (DEFORM_SOFTMAX, "none"))
                    self.assertTrue(calls[0]["module"].startswith("module"), calls)
                    self.assertIn(f"modeling_{name}.py:", calls[0]["source"])
                    self.assertEqual(calls[0]["form"], "softmax, 3 grid_sample, mul, sum")
                    graph = str(self.rewritten.inlined_graph)
                    for gone in ("grid_sampler", "softmax(", "split_with_sizes"):
                        self.assertNotIn(f"aten::{gone}", graph)
                    self.assert_all_equal(**options)

    def test_attention_weights_as_a_result(self) -> None:
        model = Attention(scattered(public_module("deformable_detr")), with_weights=True)
        calls = self.rewrite(model, inputs(2, 5))
        self.assert_routed(calls, (SOFTMAX, "none"), (DEFORM, "none"))
        self.assertEqual((self.report["softmax_calls"], self.report["grid_sample_chains"]), (1, 1))
        self.assert_all_equal()

    def test_sampling_alone(self) -> None:
        def example(batch: int, queries: int) -> tuple[Tensor, ...]:
            points = (batch, queries, HEADS, len(LEVELS), POINTS)
            value = torch.randn(batch, PIXELS, HEADS, 8)
            return value, torch.rand(*points, 2), torch.randn(points)

        options = ("B,S,H,D:float32", "B,Q,H,3,4,2:float32", "B,Q,H,3,4:float32")
        arguments = [word for text in options for word in ("--input", text)]
        self.assert_routed(self.rewrite(Bare(), example(2, 5), *arguments), (DEFORM, "none"))
        for batch, queries in ((1, 1), (3, 7)):
            self.assert_equal(*example(batch, queries))

    def test_frozen(self) -> None:
        model = Attention(scattered(public_module("deformable_detr")))
        self.rewrite(model, inputs(2, 5))
        example = inputs(3, 7)
        frozen = torch.jit.freeze(self.rewritten.eval())
        torch.testing.assert_close(frozen(*example), self.traced(*example), rtol=1e-4, atol=1e-5)


class WholeModel(nn.Module):
    """A detector of transformers, from images to its last hidden state."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        """[B, 3, H, W] -> [B, Q, C]."""
        return self.model(pixel_values=images).last_hidden_state


class WholeModels(RewriteCase):
    """The sizes of the levels follow from the image's, which --input gives."""

    sizes = {"embedding_size": 16, "hidden_sizes": [16, 24, 32, 48], "depths": [1, 1, 1, 1]}
    backbone = sizes | {"layer_type": "basic", "out_features": ["stage2", "stage3", "stage4"]}
    layers = {
        "d_model": SIZE, "encoder_ffn_dim": SIZE, "decoder_ffn_dim": SIZE, "decoder_layers": 2,
        "encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS, "num_queries": 9,
        "attn_implementation": "eager",
    }  # fmt: skip

    def assert_chains(self, model: nn.Module, count: int) -> None:
        images = torch.randn(2, 3, 64, 96)
        calls = self.rewrite(WholeModel(model), (images,), "--input", "B,3,64,96")
        after = [call["after"] for call in calls]
        self.assertEqual(after.count(DEFORM_SOFTMAX), count, calls)
        self.assertNotIn(None, after)
        for batch in (1, 3):
            self.assert_equal(torch.randn(batch, 3, 64, 96))
        # Unknown sizes of levels: what remains is left with its reason.
        calls = self.rewrite(WholeModel(model), (images,), "--input", "B,3,H,W")
        chains = [call for call in calls if call["before"] == "aten::grid_sampler"]
        self.assertEqual(len(chains), count)
        for chain in chains:
            self.assertIsNone(chain["after"])
            self.assertIn("levels of constant sizes", chain["note"])
        self.assert_equal(torch.randn(1, 3, 96, 64))

    def test_deformable_detr(self) -> None:
        config = transformers.DeformableDetrConfig(
            backbone_config=transformers.ResNetConfig(**self.backbone), encoder_layers=2,
            num_feature_levels=4, use_timm_backbone=False, use_pretrained_backbone=False,
            **self.layers,
        )  # fmt: skip
        self.assert_chains(scattered(transformers.DeformableDetrModel(config)), 4)

    def test_rt_detr(self) -> None:
        config = transformers.RTDetrConfig(
            backbone_config=transformers.RTDetrResNetConfig(**self.backbone),
            encoder_hidden_dim=SIZE, encoder_in_channels=[24, 32, 48],
            decoder_in_channels=[SIZE] * 3, **self.layers,
        )  # fmt: skip
        self.assert_chains(scattered(transformers.RTDetrModel(config)), 2)


class Detector(RewriteCase):
    """traced_models/deformable_detr_module.py."""

    def test_every_layer(self) -> None:
        torch.ops.load_library(PLUGIN)
        baseline, fused = detector.Module("baseline"), detector.Module("fused")
        fused.load_state_dict(baseline.state_dict())
        features = torch.randn(2, detector.PIXELS, detector.CHANNELS)
        calls = self.rewrite(baseline, (features,), "--input", "N,S,C", "--require", "4")
        self.assert_routed(calls, *[(DEFORM_SOFTMAX, "none")] * 2 * detector.LAYERS)
        expected = torch.jit.trace(fused.eval(), (features,), check_trace=False)
        # Beside the number of the value's pixels, which is checked.
        self.assertEqual(self.operators(self.rewritten), self.operators(expected))
        for batch in (1, 2, 5):
            features = torch.randn(batch, detector.PIXELS, detector.CHANNELS)
            self.assert_equal(features)
            with torch.no_grad():
                torch.testing.assert_close(self.rewritten(features), fused(features), rtol=1e-4, atol=1e-5)
        self.assert_equal(torch.randn(2, 1, detector.CHANNELS))

    def operators(self, module: torch.jit.ScriptModule) -> set[str]:
        kinds = [node.kind() for node in module.inlined_graph.nodes()]
        self.assertEqual(kinds.count(DEFORM_SOFTMAX), 2 * detector.LAYERS)
        return set(kinds) - {"aten::to"}

    def test_half_precision(self) -> None:
        for dtype in (torch.float16, torch.bfloat16):
            with self.subTest(dtype):
                baseline = detector.Module("baseline").to(dtype)
                features = torch.randn(2, detector.PIXELS, detector.CHANNELS, dtype=dtype)
                calls = self.rewrite(baseline, (features,), "--input", "N,S,C")
                self.assert_routed(calls, *[(DEFORM_SOFTMAX, "none")] * 2 * detector.LAYERS)
                # The value is not widened: only offsets and logits are, and constants.
                self.assertEqual(str(self.rewritten.inlined_graph).count("aten::to("), 10)
                scale = self.traced(features).abs().max().item()
                self.assert_equal(features, rtol=0, atol=scale * (1e-2 if dtype == torch.float16 else 1e-1))


if __name__ == "__main__":
    unittest.main()
