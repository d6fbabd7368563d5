#!/usr/bin/env python3
"""The exporter's GPT-2 against transformers' own, eager and traced, in every variant."""

import io
import unittest
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from test_support import OPERATORS, main, require_plugin, transformers  # first: it may skip the whole file

# isort: split
from attention import VARIANTS
from errors import ModelError
from gpt2 import GPT2
from gpt2_config import GPT2Config
from state_dict import load_weights, read_weights
from torch import Tensor
from tracing import deserialize, foreign_operators, new_cache, serialize, trace_gpt2

CONFIGS = {
    "odd sizes": {"vocab_size": 131, "n_positions": 33, "n_embd": 35, "n_layer": 3, "n_head": 5},
    "scores divided by the layer": {
        "scale_attn_by_inverse_layer_idx": True,
        "activation_function": "relu",
        "n_inner": 50,
    },
    "unscaled, untied, exact gelu": {
        "scale_attn_weights": False,
        "tie_word_embeddings": False,
        "activation_function": "gelu",
        "layer_norm_epsilon": 1e-3,
    },
    "silu, heads of one": {"activation_function": "silu", "n_embd": 7, "n_head": 7},
    "tanh, one layer": {"activation_function": "tanh", "n_layer": 1, "n_head": 1},
}
SMALL = {"vocab_size": 67, "n_positions": 24, "n_embd": 24, "n_layer": 2, "n_head": 3}
_FORBIDDEN = "aten::arange aten::zeros aten::ones aten::full aten::tensor aten::to Device".split()
SHAPES = [(1, 1), (1, 24), (3, 7), (2, 13)]  # (B, T)


def random_reference(**options: object) -> transformers.GPT2LMHeadModel:
    """transformers' GPT-2, with weights large enough for attention to be far from uniform."""
    torch.manual_seed(7)
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    config = transformers.GPT2Config(**SMALL | ends | options, attn_implementation="eager")
    model = transformers.GPT2LMHeadModel(config).eval().requires_grad_(False)
    for name, parameter in model.named_parameters():
        parameter.add_(torch.randn_like(parameter) * (0.5 if "wte" in name else 0.2))
    return model


def ours(reference: transformers.GPT2LMHeadModel, variant: str) -> GPT2:
    """The exporter's module with the reference's weights."""
    model = GPT2(GPT2Config.from_dict(reference.config.to_dict()), variant)
    load_weights(model, reference.state_dict(), "reference")
    return model.eval().requires_grad_(False)


def prompt(model: GPT2, batch: int, length: int) -> tuple[Tensor, Tensor]:
    """Random ids and positions 0..length-1, both i64[batch, length]."""
    return (
        torch.randint(model.config.vocab_size, (batch, length)),
        torch.arange(length).expand(batch, length),
    )


class EqualsTransformers(unittest.TestCase):
    """Every method of every variant, against logits of GPT2LMHeadModel in float32."""

    def check(
        self, module: torch.nn.Module, reference: transformers.GPT2LMHeadModel, model: GPT2
    ) -> None:
        for batch, length in SHAPES:
            ids, pos = prompt(model, batch, length)
            expected = reference(ids).logits  # [B,T,V]
            got = module(ids, pos, new_cache(model, batch, length, length))
            self.close(got, expected, f"forward B={batch} T={length}")

            last = torch.arange(batch) % length
            cache = new_cache(model, batch, model.config.context, model.config.context)
            got = module.prefill(ids, pos, last, cache)
            self.close(got, expected[torch.arange(batch), last], f"prefill B={batch} T={length}")

            cache = new_cache(model, batch, length, model.config.context)  # a narrowed view
            for t in range(length):
                got = module.decode(ids[:, t : t + 1], pos[:, t : t + 1], cache)
                self.close(got, expected[:, t], f"decode B={batch} step {t} of {length}")
                if "next" in model.methods():
                    tokens = module.next(ids[:, t : t + 1], pos[:, t : t + 1], cache)
                    self.assertTrue(torch.equal(tokens, got.argmax(-1)), f"next B={batch} step {t}")

    def close(self, got: Tensor, expected: Tensor, what: str) -> None:
        self.assertEqual(got.shape, expected.shape, what)
        self.assertGreater(expected.std().item(), 0.5, "logits too small for the test to tell")
        self.assertLess((got - expected).abs().max().item(), 1e-4, what)

    def test_eager(self) -> None:
        require_plugin()
        for name, options in CONFIGS.items():
            reference = random_reference(**options)
            for variant in VARIANTS:
                with self.subTest(config=name, variant=variant):
                    model = ours(reference, variant)
                    self.check(model, reference, model)

    def test_traced(self) -> None:
        require_plugin()
        reference = random_reference(**CONFIGS["odd sizes"])
        for variant in VARIANTS:
            with self.subTest(variant=variant):
                model = ours(reference, variant)
                loaded = deserialize(serialize(trace_gpt2(model)))
                self.check(loaded, reference, model)
                frozen = torch.jit.freeze(  # as a host may do
                    loaded, preserved_attrs=list(model.methods())
                )
                self.check(frozen, reference, model)


class Caches(unittest.TestCase):
    """What the traced file promises about slots after a query's position."""

    def test_stale_slots_count_for_nothing(self) -> None:
        require_plugin()
        reference = random_reference()
        for variant in VARIANTS:
            with self.subTest(variant=variant):
                model = ours(reference, variant)
                loaded = deserialize(serialize(trace_gpt2(model)))
                ids, pos = prompt(model, 2, 6)
                clean = new_cache(model, 2, 20, 24)
                stale = new_cache(model, 2, 20, 24).normal_(std=1e3)
                outputs = []
                for cache in (clean, stale):
                    loaded.prefill(ids, pos, torch.tensor([5, 5]), cache)
                    outputs.append(loaded.decode(ids[:, :1], pos[:, -1:] + 1, cache))
                self.assertTrue(torch.equal(*outputs))

    def test_only_the_slots_of_the_positions_are_written(self) -> None:
        model = ours(random_reference(), "baseline")
        loaded = deserialize(serialize(trace_gpt2(model)))
        ids, pos = prompt(model, 1, 3)
        cache = new_cache(model, 1, 9, 24)
        loaded(ids, pos + 4, cache)
        written = cache.abs().sum((2, 3, 5)) > 0  # [L,2,S]
        expected = torch.zeros(9, dtype=torch.bool)
        expected[4:7] = True
        self.assertTrue(torch.equal(written, expected.expand_as(written)))


class TracedFile(unittest.TestCase):
    """What is in model.pt."""

    def test_operators_and_size(self) -> None:
        require_plugin()
        reference = random_reference(vocab_size=5000, n_embd=96, n_head=4)
        parameters = sum(p.numel() * 4 for p in reference.parameters())  # a tied head counts once
        for variant in VARIANTS:
            with self.subTest(variant=variant):
                model = ours(reference, variant)
                data = serialize(trace_gpt2(model))
                self.assertLess(abs(len(data) - parameters), 200_000)
                operators = foreign_operators(deserialize(data), model.methods())
                self.assertEqual(operators, OPERATORS.get(variant, []))

    def test_no_tensor_is_created_and_no_device_named(self) -> None:
        require_plugin()
        for variant in VARIANTS:
            model = ours(random_reference(), variant)
            traced = trace_gpt2(model)
            for method in model.methods():
                graph = str(getattr(traced, method).inlined_graph)
                for word in _FORBIDDEN:
                    self.assertNotIn(word, graph, f"{variant} {method}")


class StateDicts(unittest.TestCase):
    """Weights in the forms that checkpoints come in."""

    def setUp(self) -> None:
        self.reference = random_reference()
        self.tensors = self.reference.state_dict()
        self.tensors.pop("lm_head.weight")  # tied
        self.folder = Path(self.enterContext(TemporaryDirectory()))

    def check(self, tensors: dict[str, Tensor]) -> None:
        model = GPT2(GPT2Config.from_dict(self.reference.config.to_dict()), "baseline")
        load_weights(model, tensors, "checkpoint")
        width, heads = SMALL["n_embd"], SMALL["n_head"]
        for name, parameter in model.named_parameters():
            expected = self.reference.get_parameter(name)
            if name.endswith("wte.weight"):
                self.assertEqual(parameter.shape, (128, width))
                self.assertFalse(parameter[67:].any())
                parameter = parameter[:67]
            if "c_attn" in name:
                got = parameter.reshape(-1, heads, 3, width // heads)
                for kind in range(3):  # query, key, value
                    part = expected.reshape(-1, 3, width)[:, kind].reshape(-1, heads, width // heads)
                    self.assertTrue(torch.equal(got[:, :, kind], part), name)
            else:
                self.assertTrue(torch.equal(parameter, expected), name)

    def test_safetensors_whole_and_in_shards(self) -> None:
        for size in ("1GB", "20KB"):
            folder = self.folder / size
            self.reference.save_pretrained(folder, max_shard_size=size)
            self.assertEqual((folder / "model.safetensors").exists(), size == "1GB")
            self.check(read_weights(folder))

    def test_old_checkpoint(self) -> None:
        """No prefix, the causal mask among the buffers, in a .bin file."""
        old = {name.removeprefix("transformer."): value for name, value in self.tensors.items()}
        for layer in range(SMALL["n_layer"]):
            old[f"h.{layer}.attn.bias"] = torch.ones(1, 1, 24, 24).tril()
            old[f"h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
        torch.save(old, self.folder / "pytorch_model.bin")
        self.check(read_weights(self.folder))

    def test_half_precision_weights(self) -> None:
        self.reference.half().float()
        self.check({name: value.half() for name, value in self.reference.state_dict().items()})

    def test_what_does_not_fit_is_refused(self) -> None:
        wte, ln = "transformer.wte.weight", "transformer.ln_f.bias"
        for change, message in (
            ({ln: None}, "missing tensor transformer.ln_f.bias"),
            ({"transformer.h.9.extra": torch.ones(1)}, "unexpected tensor transformer.h.9.extra"),
            ({wte: torch.ones(3, 24)}, r"expected shape \[67, 24\], got \[3, 24\]"),
            ({"lm_head.weight": torch.ones(67, 24)}, "differs from wte.weight"),
        ):
            tensors = {n: t for n, t in (self.tensors | change).items() if t is not None}
            with self.subTest(message=message), self.assertRaisesRegex(ModelError, message):
                self.check(tensors)

    def test_damaged_files_are_one_line(self) -> None:
        buffer = io.BytesIO()
        torch.save(self.tensors, buffer)
        for name in ("model.safetensors", "pytorch_model.bin"):
            folder = Path(self.enterContext(TemporaryDirectory()))
            (folder / name).write_bytes(buffer.getvalue()[: len(buffer.getvalue()) // 2])
            with self.subTest(name=name), self.assertRaises(ModelError) as caught:
                read_weights(folder)
            self.assertNotIn("\n", str(caught.exception))


if __name__ == "__main__":
    main()
