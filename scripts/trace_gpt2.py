"""Traces a GPT-2 of Hugging Face as it is, with random weights and the vocabulary of a tokenizer's folder, on the
device that it is to run on, which a trace keeps.

usage: trace_gpt2.py TOKENIZER DEVICE OUT.pt
"""

import json
import pathlib
import sys
import warnings

import torch
import transformers

warnings.simplefilter("ignore")  # torch.jit is deprecated
transformers.logging.set_verbosity_error()


def main(tokenizer, device, out):
    vocabulary = len(json.loads((pathlib.Path(tokenizer) / "vocab.json").read_text(encoding="utf-8")))
    torch.manual_seed(0)
    sizes = {"vocab_size": vocabulary, "n_positions": 256, "n_embd": 128, "n_layer": 4, "n_head": 4}
    end = {"bos_token_id": vocabulary - 1, "eos_token_id": vocabulary - 1}
    # The default attention is scaled_dot_product_attention, whose softmax is inside.
    config = transformers.GPT2Config(**sizes, **end, use_cache=False, attn_implementation="eager")
    model = transformers.GPT2LMHeadModel(config).eval().to(device)
    with torch.no_grad():
        torch.jit.trace(model, torch.randint(vocabulary, (2, 7), device=device), strict=False).save(out)


if __name__ == "__main__":
    main(*sys.argv[1:])
