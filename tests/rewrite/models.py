#!/usr/bin/env python3
"""usage: models.py FOLDER

Traces small models of public classes, with random weights, for the tests of rewrite/: FOLDER/<name>.pt,
and FOLDER/<name>.inputs.pt with the arguments of several calls, of other lengths than were traced."""

import os
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()


class Logits(nn.Module):
    """A model of transformers whose result is one tensor, and whose arguments are named."""

    def __init__(self, model: nn.Module, names: Sequence[str], result: str) -> None:
        super().__init__()
        self.model, self.names, self.result = model, names, result

    def forward(self, *arguments: Tensor) -> Tensor:
        return getattr(self.model(**dict(zip(self.names, arguments))), self.result)


def gpt2(config=None, names=("input_ids",)):
    cfg = transformers.GPT2Config(vocab_size=96, n_positions=64, n_embd=32, n_layer=2, n_head=4, attn_implementation="eager", use_cache=False)
    return Logits(transformers.GPT2LMHeadModel(cfg), names, "logits")


def ids(b, t, v=96):
    return torch.randint(0, v, (b, t))

def padded(b, t, left=False):
    m = torch.ones(b, t, dtype=torch.long)
    for i in range(b):
        if i and t > 2:
            if left: m[i, :i] = 0
            else: m[i, t - i:] = 0
    return m

def bert():
    cfg = transformers.BertConfig(vocab_size=96, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, max_position_embeddings=64, attn_implementation="eager")
    return Logits(transformers.BertModel(cfg), ("input_ids", "attention_mask"), "last_hidden_state")

def t5():
    cfg = transformers.T5Config(vocab_size=96, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, attn_implementation="eager", use_cache=False)
    return Logits(transformers.T5ForConditionalGeneration(cfg), ("input_ids", "decoder_input_ids"), "logits")

def vit():
    cfg = transformers.ViTConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, image_size=32, patch_size=8, attn_implementation="eager")
    return Logits(transformers.ViTModel(cfg), ("pixel_values",), "last_hidden_state")

def swin():
    cfg = transformers.SwinConfig(image_size=32, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4, attn_implementation="eager")
    return Logits(transformers.SwinModel(cfg), ("pixel_values",), "last_hidden_state")

MODELS = {"gpt2": (gpt2, lambda: (ids(2, 7),)),
 "gpt2-padded": (lambda: gpt2(names=("input_ids", "attention_mask")), lambda: (ids(2, 7), padded(2, 7, True))),
 "bert": (bert, lambda: (ids(2, 7), padded(2, 7))),
 "t5": (t5, lambda: (ids(2, 7), ids(2, 5))),
 "vit": (vit, lambda: (torch.randn(2, 3, 32, 32),)),
 "swin": (swin, lambda: (torch.randn(2, 3, 32, 32),)),
}
out = Path(sys.argv[1])
for name, (make, inputs) in MODELS.items():
    torch.manual_seed(0)
    try:
        m = make().eval().requires_grad_(False)
        t = torch.jit.trace(m, inputs(), check_trace=False)
        t.save(str(out / f"{name}.pt"))
        print(name, "ok")
    except Exception as e:
        print(name, "FAILED", repr(e)[:500])
