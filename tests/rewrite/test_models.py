#!/usr/bin/env python3
"""Models of public classes, traced with random weights and rewritten by `warpfuse rewrite`: what became
of each softmax, and whether the results are those of the trace at other lengths and batches.

Needs WARPFUSE_HOST and WARPFUSE_PLUGIN. Exit code 77: transformers is not installed."""

import math
import subprocess
import sys
import unittest
import warnings
from pathlib import Path

import torch
from rewrite_case import HOST, PLUGIN, RewriteCase
from torch import Tensor, nn

try:
    import transformers
except ImportError:
    print("skipped: transformers is not installed")
    sys.exit(77)

warnings.simplefilter("ignore")
transformers.logging.set_verbosity_error()
ATTENTION, SOFTMAX = "warpfuse::scaled_masked_softmax", "warpfuse::softmax"
VOCABULARY = 96


class OneResult(nn.Module):
    """A model of transformers with positional arguments and one tensor as its result."""

    def __init__(self, model: nn.Module, names: tuple[str, ...], result: str) -> None:
        super().__init__()
        self.model, self.names, self.result = model, names, result

    def forward(self, *arguments: Tensor) -> Tensor:
        """One field of the model's result."""
        return getattr(self.model(**dict(zip(self.names, arguments, strict=True))), self.result)


class OwnAttention(nn.Module):
    """A layer of attention whose mask is applied by `apply`, behind an embedding."""

    def __init__(self, apply: object) -> None:
        super().__init__()
        self.embedding, self.qkv = nn.Embedding(VOCABULARY, 32), nn.Linear(32, 96)
        self.register_buffer("bias", torch.ones(64, 64, dtype=torch.bool).tril()[None, None])
        self.apply_mask = apply

    def forward(self, ids: Tensor, *padding: Tensor) -> Tensor:
        """[B, T] -> [B, T, 32]; padding [B, T] is 0 where a key is one."""
        x = self.embedding(ids)
        q, k, v = self.qkv(x).view(x.size(0), x.size(1), 4, 24).transpose(1, 2).split(8, -1)
        weights = self.apply_mask(self, torch.matmul(q, k.transpose(2, 3)), *padding).softmax(-1)
        return torch.matmul(weights, v).transpose(1, 2).reshape(x.size(0), x.size(1), 32)


class ShiftedWindows(nn.Module):
    """Attention of windows of 4 x 4 that are shifted by 2, as Swin of transformers 4 has it: its mask is
    made by the call, or kept."""

    def __init__(self, keep: bool) -> None:
        super().__init__()
        self.qkv, self.table = nn.Linear(16, 48), nn.Parameter(torch.randn(49, 2))
        self.register_buffer("index", torch.randint(0, 49, (16, 16)))
        self.register_buffer("kept", self.mask(8, 8) if keep else None)

    def windows(self, x: Tensor) -> Tensor:
        """[B, H, W, C] -> [B * windows, 16, C]."""
        x = x.view(x.size(0), x.size(1) // 4, 4, x.size(2) // 4, 4, x.size(3))
        return x.transpose(2, 3).reshape(-1, 16, x.size(-1))

    def mask(self, height: int, width: int) -> Tensor:
        """[windows, 16, 16] of 0 and -100."""
        regions = torch.zeros(1, height, width, 1, dtype=torch.float32)
        for i, rows in enumerate((slice(0, -4), slice(-4, -2), slice(-2, None))):
            for j, columns in enumerate((slice(0, -4), slice(-4, -2), slice(-2, None))):
                regions[:, rows, columns, :] = 3 * i + j
        regions = self.windows(regions).view(-1, 16)
        mask = regions.unsqueeze(1) - regions.unsqueeze(2)
        return mask.masked_fill(mask != 0, -100.0).masked_fill(mask == 0, 0.0)

    def forward(self, x: Tensor) -> Tensor:
        """[B, H, W, 16] -> [B * windows, 16, 16]."""
        mask = self.mask(x.size(1), x.size(2)) if self.kept is None else self.kept
        x = self.windows(torch.roll(x, (-2, -2), (1, 2)))
        q, k, v = self.qkv(x).reshape(x.size(0), 16, 3, 2, 8).permute(2, 0, 3, 1, 4)
        scores = torch.matmul(q * 8**-0.5, k.transpose(2, 3))
        scores = scores + self.table[self.index.view(-1)].view(16, 16, 2).permute(2, 0, 1).unsqueeze(0)
        windows = mask.size(0)
        scores = scores.view(x.size(0) // windows, windows, 2, 16, 16) + mask.unsqueeze(1).unsqueeze(0)
        weights = scores.view(-1, 2, 16, 16).softmax(-1)
        return torch.matmul(weights, v).transpose(1, 2).reshape(-1, 16, 16)


def dialect_of_transformers_4(module: OwnAttention, scores: Tensor, *padding: Tensor) -> Tensor:
    scores, lowest = scores / torch.full([], 8**0.5), torch.finfo(scores.dtype).min
    rows, keys = scores.size(-2), scores.size(-1)
    visible = module.bias[:, :, keys - rows : keys, :keys]
    scores = torch.where(visible, scores, torch.full([], lowest))
    for mask in padding:
        scores = scores + (1.0 - mask[:, None, None, :].to(scores.dtype)) * lowest
    return scores


def dialect_of_megatron(module: OwnAttention, scores: Tensor, *padding: Tensor) -> Tensor:
    hidden = module.bias[:, :, : scores.size(2), : scores.size(3)].logical_not()
    for mask in padding:
        hidden = hidden | (mask[:, None, None, :] < 0.5)
    return (scores * 0.125).masked_fill(hidden, -10000.0)


def ids(batch: int, length: int) -> Tensor:
    return torch.randint(0, VOCABULARY, (batch, length))


def mask(batch: int, length: int, left: bool) -> Tensor:
    """Row i has i places of padding; the last row has nothing else, if it is on the left."""
    result = torch.ones(batch, length, dtype=torch.long)
    for row in range(1, batch):
        size = min(length if left and row == batch - 1 else row, length)
        result[row, slice(0, size) if left else slice(length - size, length)] = 0
    return result


def gpt2(*names: str, attention: str = "eager") -> nn.Module:
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=64, n_embd=32, n_layer=2, n_head=4, use_cache=False
    )
    config._attn_implementation = attention
    return OneResult(transformers.GPT2LMHeadModel(config), names, "logits")


def bert() -> nn.Module:
    config = transformers.BertConfig(
        vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, max_position_embeddings=64, attn_implementation="eager",
    )  # fmt: skip
    return OneResult(
        transformers.BertModel(config), ("input_ids", "attention_mask"), "last_hidden_state"
    )


def t5() -> nn.Module:
    config = transformers.T5Config(
        vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4,
        use_cache=False, attn_implementation="eager",
    )  # fmt: skip
    model = transformers.T5ForConditionalGeneration(config)
    return OneResult(model, ("input_ids", "decoder_input_ids"), "logits")


def vit() -> nn.Module:
    config = transformers.ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        image_size=32, patch_size=8, attn_implementation="eager",
    )  # fmt: skip
    return OneResult(transformers.ViTModel(config), ("pixel_values",), "last_hidden_state")


def swin() -> nn.Module:
    config = transformers.SwinConfig(
        image_size=32, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4,
        attn_implementation="eager",
    )  # fmt: skip
    return OneResult(transformers.SwinModel(config), ("pixel_values",), "last_hidden_state")


class Models(RewriteCase):
    def at_lengths(self, *more: object) -> None:
        for batch in (1, 3):
            for length in (1, 2, 7, 40, 64):
                tensors = [each(batch, length) for each in more]
                with self.subTest(batch=batch, length=length):
                    self.assert_equal(ids(batch, length), *tensors)

    def test_gpt2(self) -> None:
        calls = self.rewrite(gpt2("input_ids"), (ids(2, 7),), "--require", "2")
        self.assert_routed(calls, *[(ATTENTION, "causal")] * 2)
        self.assertEqual(calls[1]["module"], "model.transformer.1.attn")
        self.assertIn("modeling_gpt2.py:", calls[1]["source"])
        graph = str(self.rewritten.inlined_graph)
        for gone in ("cumsum", "diff", "where"):  # the mask's construction
            self.assertNotIn(f"aten::{gone}", graph)
        self.at_lengths()
        self.assert_equal(ids(1, 65))  # longer than the positions: an error
        frozen = torch.jit.freeze(self.rewritten.eval())
        tokens = ids(2, 9)
        torch.testing.assert_close(frozen(tokens), self.traced(tokens), rtol=1e-4, atol=1e-5)

    def test_gpt2_with_padding(self) -> None:
        model = gpt2("input_ids", "attention_mask")
        calls = self.rewrite(model, (ids(2, 7), mask(2, 7, True)))
        self.assert_routed(calls, *[(ATTENTION, "additive")] * 2)
        self.at_lengths(lambda batch, length: mask(batch, length, True))
        self.assert_equal(ids(2, 4), mask(2, 6, True))  # a mask of another length

    def test_gpt2_with_sdpa(self) -> None:
        calls = self.rewrite(gpt2("input_ids", attention="sdpa"), (ids(2, 7),))
        self.assertEqual(calls, [])
        self.assertEqual(self.report["sdpa_calls"], 2)
        model = gpt2("input_ids", "attention_mask", attention="sdpa")  # an additive mask
        self.assertEqual(self.rewrite(model, (ids(2, 7), mask(2, 7, True))), [])
        self.assertEqual(self.report["sdpa_calls"], 2)
        command = [HOST, "rewrite", self.folder / "before.pt", "--dry-run", "--plugin", PLUGIN]
        result = subprocess.run([*command, "--require", "1"], capture_output=True, check=False)
        self.assertEqual(result.stdout.decode(), "0 of 2: exported with SDPA, nothing to gain\n")
        self.assertEqual(result.returncode, 1)

    def test_dialect_of_transformers_4(self) -> None:
        calls = self.rewrite(OwnAttention(dialect_of_transformers_4), (ids(2, 7),))
        self.assert_routed(calls, (ATTENTION, "causal"))
        # The square root of 8 divides: no product equals that, so it stays.
        self.assertIn("no product equals", calls[0]["note"])
        self.at_lengths()

    def test_kept_file_of_transformers_4(self) -> None:
        calls = self.rewrite_file(Path(__file__).with_name("transformers_4.pt"), "--require", "2")
        self.assert_routed(calls, *[(ATTENTION, "causal")] * 2)
        self.assertEqual({call["form"] for call in calls}, {"div, where, softmax"})
        self.assertNotIn("aten::where", str(self.rewritten.inlined_graph))
        self.at_lengths()
        self.assert_equal(ids(1, 65))  # longer than the positions: an error

    def with_left_padding(self, apply: object) -> list[dict]:
        example = (ids(2, 7), mask(2, 7, True))
        calls = self.rewrite(OwnAttention(apply), example, "--input", "B,T", "--input", "B,T")
        self.at_lengths(lambda batch, length: mask(batch, length, True))
        return calls

    def test_left_padding_of_transformers_4(self) -> None:
        calls = self.with_left_padding(dialect_of_transformers_4)
        # The causal fill stays, beside which keys of padding count in rows that see nothing else.
        self.assert_routed(calls, (ATTENTION, "additive"))
        self.assertIn("a finite fill hides", calls[0]["note"])

    def test_left_padding_of_megatron(self) -> None:
        self.assert_routed(self.with_left_padding(dialect_of_megatron), (ATTENTION, "boolean, filled"))

    def test_megatron(self) -> None:
        calls = self.rewrite(OwnAttention(dialect_of_megatron), (ids(2, 7),))
        self.assert_routed(calls, (ATTENTION, "boolean, filled"))
        self.at_lengths()

    def test_bert(self) -> None:
        example = (ids(2, 7), mask(2, 7, False))
        calls = self.rewrite(bert(), example, "--input", "B,T", "--input", "B,T")
        self.assert_routed(calls, *[(ATTENTION, "additive")] * 2)
        self.at_lengths(lambda batch, length: mask(batch, length, False))
        calls = self.rewrite(bert(), example)
        self.assert_routed(calls, *[(ATTENTION, "additive")] * 2)
        for left in (False, True):
            self.at_lengths(lambda batch, length, left=left: mask(batch, length, left))

    def test_t5(self) -> None:
        calls = self.rewrite(t5(), (ids(2, 7), ids(2, 5)), "--input", "B,T", "--input", "B,U")
        additive, both = (ATTENTION, "additive"), (ATTENTION, "causal + additive")
        self.assert_routed(calls, additive, additive, both, additive, both, additive)
        self.at_lengths(lambda batch, length: ids(batch, max(1, length // 2)))
        calls = self.rewrite(t5(), (ids(2, 7), ids(2, 5)))
        self.assert_routed(calls, *[additive] * 6)
        self.at_lengths(lambda batch, length: ids(batch, max(1, length // 2)))

    def test_vit(self) -> None:
        calls = self.rewrite(vit(), (torch.randn(2, 3, 32, 32),))
        self.assert_routed(calls, *[(ATTENTION, "none")] * 2)
        for batch in (1, 2, 5):
            self.assert_equal(torch.randn(batch, 3, 32, 32))

    def test_swin(self) -> None:
        calls = self.rewrite(swin(), (torch.randn(2, 3, 32, 32),))
        self.assert_routed(calls, *[(ATTENTION, "additive")] * 4)
        for batch in (1, 2, 5):
            self.assert_equal(torch.randn(batch, 3, 32, 32))

    def test_shifted_windows_of_transformers_4(self) -> None:
        for keep in (False, True):
            calls = self.rewrite(ShiftedWindows(keep), (torch.randn(2, 8, 8, 16),))
            self.assert_routed(calls, (ATTENTION, "additive"))
            self.assertEqual(calls[0]["form"], "add, view, add, view, softmax")
            self.assertEqual(calls[0]["note"], "")
            for batch in (1, 2, 5):
                self.assert_equal(torch.randn(batch, 8, 8, 16))
            self.assert_equal(torch.randn(2, 16, 8, 16))  # more windows

    def test_a_gpt2_that_was_half_precision(self) -> None:
        calls = self.rewrite(gpt2("input_ids").to(torch.bfloat16), (ids(2, 7),))
        self.assert_routed(calls, *[(ATTENTION, "causal")] * 2)
        tokens = ids(2, 9)
        expected, got = self.traced(tokens), self.rewritten(tokens)
        self.assertEqual(got.dtype, expected.dtype)
        self.assertLess((got - expected).abs().max() / expected.abs().max(), 2e-2)

    def test_perplexity(self) -> None:
        self.rewrite(gpt2("input_ids"), (ids(2, 7),))
        tokens = ids(4, 64)
        losses = [
            nn.functional.cross_entropy(module(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
            for module in (self.traced, self.rewritten)
        ]
        self.assertLess(abs(math.exp(losses[1] - losses[0]) - 1), 1e-4)


if __name__ == "__main__":
    unittest.main()
