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
from tempfile import TemporaryDirectory

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
ROOT = Path(__file__).resolve().parents[2]
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

    def forward(self, ids: Tensor) -> Tensor:
        """[B, T] -> [B, T, 32]."""
        x = self.embedding(ids)
        q, k, v = self.qkv(x).view(x.size(0), x.size(1), 4, 24).transpose(1, 2).split(8, -1)
        weights = self.apply_mask(self, torch.matmul(q, k.transpose(2, 3))).softmax(-1)
        return torch.matmul(weights, v).transpose(1, 2).reshape(x.size(0), x.size(1), 32)


def dialect_of_transformers_4(module: OwnAttention, scores: Tensor) -> Tensor:
    scores = scores / torch.full([], 8**0.5)
    rows, keys = scores.size(-2), scores.size(-1)
    visible = module.bias[:, :, keys - rows : keys, :keys]
    return torch.where(visible, scores, torch.full([], torch.finfo(scores.dtype).min))


def dialect_of_megatron(module: OwnAttention, scores: Tensor) -> Tensor:
    hidden = module.bias[:, :, : scores.size(2), : scores.size(3)].logical_not()
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

    def test_dialect_of_transformers_4(self) -> None:
        calls = self.rewrite(OwnAttention(dialect_of_transformers_4), (ids(2, 7),))
        self.assert_routed(calls, (ATTENTION, "causal"))
        # The square root of 8 divides: no product equals that, so it stays.
        self.assertIn("no product equals", calls[0]["note"])
        self.at_lengths()

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
        self.assert_routed(calls, (ATTENTION, "additive"), (SOFTMAX, "none"))
        self.at_lengths(lambda batch, length: mask(batch, length, False))

    def test_t5(self) -> None:
        calls = self.rewrite(t5(), (ids(2, 7), ids(2, 5)), "--input", "B,T", "--input", "B,U")
        additive, causal = (ATTENTION, "additive"), (ATTENTION, "causal")
        self.assert_routed(calls, additive, additive, causal, additive, causal, additive)
        self.at_lengths(lambda batch, length: ids(batch, max(1, length // 2)))

    def test_vit(self) -> None:
        calls = self.rewrite(vit(), (torch.randn(2, 3, 32, 32),))
        self.assert_routed(calls, *[(ATTENTION, "none")] * 2)
        for batch in (1, 2, 5):
            self.assert_equal(torch.randn(batch, 3, 32, 32))

    def test_swin(self) -> None:
        calls = self.rewrite(swin(), (torch.randn(2, 3, 32, 32),))
        # The shifted windows' mask has a row per window of an image, which is not proved to fit.
        self.assert_routed(calls, *[(ATTENTION, "additive"), (SOFTMAX, "none")] * 2)
        for batch in (1, 2, 5):
            self.assert_equal(torch.randn(batch, 3, 32, 32))

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


class Command(unittest.TestCase):
    def setUp(self) -> None:
        folder = TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.model = self.folder / "model.pt"
        torch.jit.trace(nn.Softmax(-1), torch.ones(2, 3)).save(str(self.model))

    def run_rewrite(self, *arguments: object) -> tuple[int, str]:
        return self.run_host("rewrite", *arguments)

    def run_host(self, *arguments: object) -> tuple[int, str]:
        command = [HOST, *map(str, arguments), "--plugin", PLUGIN]
        result = subprocess.run(command, capture_output=True, check=False)
        return result.returncode, result.stdout.decode() + result.stderr.decode()

    def test_the_model_of_the_demo(self) -> None:
        tokenizer, path = ROOT / "traced_models" / "wikitext-small", self.folder / "gpt2.pt"
        trace = [sys.executable, "-B", ROOT / "scripts" / "trace_gpt2.py", tokenizer, "cpu", path]
        subprocess.run(trace, check=True)
        routed = "4 of 4 softmax calls routed to the plugin"
        for command in (
            ("verify", "--rewrite", path, path, "--input", "B,T:int64:0..4096", "--batch", "1,3", "--lengths", "1,256,257"),
            ("generate", "--rewrite", "-m", path, "--tokenizer", tokenizer, "-p", "The river", "-n", 3),
        ):  # fmt: skip
            code, text = self.run_host(*command, "--device", "cpu")
            self.assertEqual(code, 0, text)
            self.assertIn(routed, text)
            self.assertIn("both raise in 2 of 6" if command[0] == "verify" else "plugin: 12 of 12 softmax calls", text)

    def test_codes(self) -> None:
        out = self.folder / "out.pt"
        code, text = self.run_rewrite(self.model, out, "--require", 2)
        self.assertEqual(code, 1, text)
        self.assertFalse(out.exists())
        self.assertEqual(self.run_rewrite(self.model, self.model, "--force")[0], 2)
        code, text = self.run_rewrite(self.model, "--dry-run")
        self.assertEqual(code, 0, text)
        self.assertIn("1 of 1 softmax calls routed", text)
        self.assertEqual(self.run_rewrite(self.model, out)[0], 0)
        code, text = self.run_rewrite(self.model, out)
        self.assertEqual(code, 2, text)
        self.assertIn("--force", text)
        code, text = self.run_rewrite(out, "--dry-run")
        self.assertIn("0 of 0 softmax calls routed to the plugin, 1 were there", text)
        no_model = self.folder / "text.pt"
        no_model.write_text("text")
        self.assertEqual(self.run_rewrite(no_model, "--dry-run")[0], 3)
        self.assertEqual(self.run_rewrite(self.model, self.folder / "no" / "out.pt")[0], 6)

    def test_an_operator_of_no_library(self) -> None:
        library = torch.library.Library("warpfuse_test_unknown", "DEF")
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: 2 * x, "CompositeExplicitAutograd")
        module = torch.jit.trace(torch.ops.warpfuse_test_unknown.twice, torch.ones(2))
        path = self.folder / "unknown.pt"
        module.save(str(path))
        code, text = self.run_rewrite(path, "--dry-run")
        self.assertEqual(code, 4, text)
        self.assertIn("warpfuse_test_unknown::twice", text)


if __name__ == "__main__":
    unittest.main()
