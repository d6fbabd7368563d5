"""Hugging Face's GPT-2 as a peer of the whole program: its ways to generate greedily.

Weights are random, so only the amount of work is that of the named model. Nothing ends a text
before its number of tokens: there is no end-of-text token.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel, StaticCache
from transformers.generation import CompileConfig

Ids = torch.Tensor  # [batch, tokens], prompts and what follows them
Generate = Callable[[int], Ids]  # from the number of new tokens


@dataclass(frozen=True)
class Way:
    """One way to generate, named as Hugging Face does."""

    attention: str
    compiled: bool = False
    loop: bool = False  # a program's own loop over the model, in place of generate()

    @property
    def text(self) -> str:
        if not self.compiled:
            return f"generate(), DynamicCache, {self.attention} attention"
        driver = "own loop over the model" if self.loop else "generate()"
        return (
            f"{driver}, StaticCache, decode by torch.compile(mode=reduce-overhead, "
            f"fullgraph=True), {self.attention} attention"
        )


WAYS: dict[str, Way] = {
    "hf static+compile": Way("sdpa", compiled=True),
    "hf eager": Way("eager"),
    "hf sdpa": Way("sdpa"),
    "hf compiled loop": Way("sdpa", compiled=True, loop=True),
}


def build(config: dict[str, Any], dtype: torch.dtype, device: torch.device, attention: str) -> GPT2LMHeadModel:
    """A model with the same random weights each time."""
    torch.manual_seed(0)
    settings = GPT2Config(**config, attn_implementation=attention, bos_token_id=None, eos_token_id=None)
    model = GPT2LMHeadModel(settings).eval().requires_grad_(False)
    model.generation_config.pad_token_id = 0
    return model.to(device=device, dtype=dtype)


def generator(model: GPT2LMHeadModel, way: Way, prompts: Ids, tokens: int) -> Generate:
    """What continues the prompts by at most `tokens`; a compiler is called at its first calls."""
    if way.compiled:
        return _loop(model, prompts, tokens) if way.loop else _static(model, prompts, tokens)
    return lambda count: _generated(model, prompts, count)


def _generated(model: GPT2LMHeadModel, prompts: Ids, count: int, **options: Any) -> Ids:
    with torch.no_grad():
        mask = torch.ones_like(prompts)
        return model.generate(prompts, attention_mask=mask, do_sample=False, max_new_tokens=count, **options)


def _static(model: GPT2LMHeadModel, prompts: Ids, tokens: int) -> Generate:
    """generate() compiles the decode by itself where the cache is static."""
    compile_config = CompileConfig(fullgraph=True, mode="reduce-overhead")
    compile_config._compile_all_devices = True  # else a CPU would run the eager forward
    # One size of cache for all calls, else each of another length would be compiled anew.
    model._previous_max_cache_length = prompts.shape[1] + tokens
    options = {"cache_implementation": "static", "compile_config": compile_config}
    return lambda count: _generated(model, prompts, count, **options)


def _loop(model: GPT2LMHeadModel, prompts: Ids, tokens: int) -> Generate:
    cache = StaticCache(config=model.config, max_cache_len=prompts.shape[1] + tokens)

    def step(last: Ids) -> Ids:
        logits = model(last, past_key_values=cache, use_cache=True, logits_to_keep=1).logits
        return logits[:, -1].argmax(-1, keepdim=True)

    decode = torch.compile(step, mode="reduce-overhead", fullgraph=True)

    def run(count: int) -> Ids:
        with torch.no_grad():
            cache.reset()
            found = [step(prompts)]
            for _ in range(count - 1):
                # A graph's output is overwritten by its next replay.
                found.append(decode(found[-1]).clone())
            return torch.cat([prompts, *found], dim=1)

    return run
