"""Small bundles made on the spot, for tests of the host program that must not depend on a trained model.

    WARPFUSE_PLUGIN=... python toy_bundles.py FOLDER

writes those that tests share (cli_bundles.py) to a folder, which they then need not do each.
"""

import hashlib
import json
import math
import os
import pathlib
import shutil
import sys
import warnings

import torch

from toys import CONTEXT, CYCLE, END_OF_TEXT, HEAD_DIM, HEADS, LAYERS, VOCAB, WIDTH


class Attention(torch.nn.Module):
    """`routed`: the softmax is the plugin's operator; otherwise it is ATen's, behind scale and mask."""

    def __init__(self, layer, routed):
        super().__init__()
        self.layer, self.routed, self.scale = layer, routed, 1 / math.sqrt(HEAD_DIM)
        self.qkv = torch.nn.Linear(WIDTH, 3 * WIDTH)
        self.register_buffer("slots", torch.arange(CONTEXT))

    def forward(self, x, pos, cache):
        batch, length = pos.shape
        q, k, v = (
            part.view(batch, length, HEADS, HEAD_DIM).transpose(1, 2) for part in self.qkv(x).split(WIDTH, dim=-1)
        )
        index = pos[:, None, :, None].expand(-1, HEADS, -1, HEAD_DIM)
        keys = cache[self.layer, 0].scatter_(2, index, k)  # [B, H, S, D]
        values = cache[self.layer, 1].scatter_(2, index, v)
        scores = q @ keys.transpose(-1, -2)  # [B, H, T, S]
        if self.routed:
            weights = torch.ops.warpfuse.scaled_masked_softmax(
                scores, self.scale, None, "none", pos, None, 0, None
            )
        else:
            visible = self.slots[: scores.size(-1)] <= pos[:, None, :, None]
            weights = torch.softmax((scores * self.scale).masked_fill(~visible, -1e30), -1)
        return (weights @ values).transpose(1, 2).reshape(batch, length, WIDTH)


class ToyLanguageModel(torch.nn.Module):
    """Random weights; `routed` says for each layer whether its softmax goes to the plugin."""

    def __init__(self, routed):
        super().__init__()
        torch.manual_seed(1)
        self.tokens = torch.nn.Embedding(VOCAB, WIDTH)
        self.positions = torch.nn.Embedding(CONTEXT, WIDTH)
        self.layers = torch.nn.ModuleList(Attention(i, r) for i, r in enumerate(routed))
        self.head = torch.nn.Linear(WIDTH, VOCAB)

    def forward(self, ids, pos, cache):
        x = self.tokens(ids) + self.positions(pos)
        for layer in self.layers:
            x = x + layer(x, pos, cache)
        return self.head(x)

    def prefill(self, ids, pos, last, cache):
        logits = self.forward(ids, pos, cache)
        return logits.gather(1, last[:, None, None].expand(-1, -1, VOCAB)).squeeze(1)

    def decode(self, ids, pos, cache):
        return self.forward(ids, pos, cache).squeeze(1)


class CycleModel(torch.nn.Module):
    """Says tokens one after the other, over and over; none may occur twice, and `undefined` gives NaN."""

    def __init__(self, text, undefined=None):
        super().__init__()
        table = torch.zeros(VOCAB, VOCAB)
        table[:, text[0]] = 1
        for byte, following in zip(text, text[1:] + text[:1]):
            table[byte] = 0
            table[byte, following] = 1
        if undefined is not None:
            table[undefined] = math.nan
        self.register_buffer("table", table)

    def forward(self, ids, pos, cache):
        return self.table[ids]

    def prefill(self, ids, pos, last, cache):
        return self.table[ids.gather(1, last[:, None])].squeeze(1)

    def decode(self, ids, pos, cache):
        return self.table[ids].squeeze(1)


def new_cache(slots, batch=1):
    """Keys and values, all zero."""
    return torch.zeros(LAYERS, 2, batch, HEADS, slots, HEAD_DIM)


def expected_nll(bundle, ids, window, stride):
    """The sum in double of -log p by ATen, one window at a time; a token that was scored stays scored."""
    sizes = json.loads((bundle / "bundle.json").read_text())
    model = torch.jit.load(str(bundle / "model.pt"))
    scored = {}
    for begin in range(0, len(ids), stride):
        inputs = torch.tensor([ids[begin : begin + window]])
        cache = torch.zeros(sizes["layers"], 2, 1, sizes["heads"], inputs.shape[1], sizes["head_dim"])
        with torch.no_grad():
            logits = model.forward(inputs, torch.arange(inputs.shape[1])[None], cache)
        log_probs = logits[0].double().log_softmax(-1)
        for i, target in enumerate(ids[begin + 1 : begin + 1 + window]):
            scored.setdefault(begin + 1 + i, -log_probs[i, target].item())
    assert len(scored) == len(ids) - 1
    return sum(scored.values())


def _example_inputs():
    ids, pos = torch.zeros(2, 5, dtype=torch.long), torch.arange(5).expand(2, -1)
    cache = new_cache(64, batch=2)
    return {
        "prefill": (ids, pos, torch.tensor([4, 2]), cache),
        "decode": (ids[:, :1], pos[:, :1], cache),
        "forward": (ids, pos, cache),
    }


def _write(folder, traced, description):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    traced.save(str(folder / "model.pt"))
    digest = hashlib.sha256((folder / "model.pt").read_bytes()).hexdigest()
    common = {"format": 2, "dtype": "float32", "schema_version": 1, "torch": torch.__version__}
    (folder / "bundle.json").write_text(json.dumps(common | description | {"sha256": {"model.pt": digest}}))
    return folder


def _write_tokenizer(folder):
    """One token a byte, and <|endoftext|>; no merges."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    written = {byte: chr(byte) for byte in printable}
    written |= {byte: chr(256 + i) for i, byte in enumerate(b for b in range(256) if b not in written)}
    vocabulary = {written[byte]: byte for byte in range(256)} | {"<|endoftext|>": END_OF_TEXT}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "merges.txt").write_text("#version: 0.2\n")


def write_language_model(folder, model, variant, operators):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is deprecated
        traced = torch.jit.trace_module(model.eval(), _example_inputs(), check_trace=False)
    sizes = {"context": CONTEXT, "layers": LAYERS, "heads": HEADS, "head_dim": HEAD_DIM, "vocab_size": VOCAB}
    kind = {"kind": "causal_lm", "model": "toy", "variant": variant, "operators": operators}
    folder = _write(folder, traced, kind | sizes | {"softmax_calls_per_step": LAYERS})
    _write_tokenizer(folder)
    return folder


def write_toy(folder, variant, routed):
    operators = ["warpfuse::scaled_masked_softmax"] if any(routed) else []
    return write_language_model(folder, ToyLanguageModel(routed), variant, operators)


def write_cycle(folder, text, undefined=None):
    return write_language_model(folder, CycleModel(text, undefined), "baseline", [])


def write_perturbed(folder, routed):
    """As write_toy, with one weight of the last layer changed."""
    model = ToyLanguageModel(routed)
    with torch.no_grad():
        model.head.bias[65] += 0.5
    return write_language_model(folder, model, "perturbed", [])


def write_module(folder, function):
    """A traced function of values [3, 4] and indices [2]: a file that is no language model."""
    inputs = [
        {"name": "values", "dtype": "float32", "shape": [3, 4], "std": 2.0},
        {"name": "indices", "dtype": "int64", "shape": [2], "low": 0, "high": 3},
    ]

    class Wrapper(torch.nn.Module):
        def forward(self, values, indices):
            return function(values, indices)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(Wrapper(), (torch.randn(3, 4), torch.tensor([0, 2])), check_trace=False)
    description = {"kind": "module", "model": "toy", "variant": "baseline", "operators": [], "inputs": inputs}
    return _write(folder, traced, description)


def write_shared(folder):
    """Each under its name in cli_bundles.py."""
    torch.ops.load_library(os.environ["WARPFUSE_PLUGIN"])
    write_toy(folder / "fused", "fused", routed=(True, True))
    write_toy(folder / "half", "half", routed=(True, False))
    write_toy(folder / "baseline", "baseline", routed=(False, False))
    write_perturbed(folder / "perturbed", routed=(False, False))
    write_cycle(folder / "cycle", CYCLE)
    write_cycle(folder / "ending", [*b"ab", END_OF_TEXT])
    write_cycle(folder / "undefined", [*b"ab", END_OF_TEXT], undefined=ord("b"))
    write_module(folder / "module", lambda v, i: v[i])


if __name__ == "__main__":
    to = pathlib.Path(sys.argv[1])
    shutil.rmtree(to, ignore_errors=True)
    write_shared(to)
