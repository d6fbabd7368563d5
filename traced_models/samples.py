"""Text that a trained model writes, greedy and sampled, and how much the greedy text repeats."""

import torch
from tokenizers import Tokenizer
from torch import Tensor
from train_data import Stream
from transformers import GPT2LMHeadModel

PROMPTS = ["", "The city of", "In 2006, he", " = History of the ship = \n\n", "The film was"]


def generate(
    model: GPT2LMHeadModel, ids: Tensor, count: int, temperature: float, top_k: int
) -> Tensor:
    """Continue ids i64[B,T] by count tokens; temperature 0 is greedy. Returns i64[B,T+count]."""
    options = {"do_sample": False}
    if temperature > 0:
        options = {"do_sample": True, "temperature": temperature, "top_k": top_k}
    return model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=count,
        min_new_tokens=count,
        pad_token_id=model.config.eos_token_id,
        **options,
    )


def write_samples(
    model: GPT2LMHeadModel, tokenizer: Tokenizer, prompts: list[str], count: int = 120
) -> list[dict[str, str]]:
    """Each prompt continued greedily and at temperature 0.8, top-k 40."""
    device = next(model.parameters()).device
    torch.manual_seed(0)
    samples = []
    for prompt in prompts:
        start = tokenizer.encode(prompt).ids or [model.config.bos_token_id]
        ids = torch.tensor([start], device=device)
        row = {"prompt": prompt}
        for name, temperature in (("greedy", 0.0), ("sampled", 0.8)):
            room = model.config.n_positions - len(start)
            continuation = generate(model, ids, min(count, room), temperature, 40)[0, len(start) :]
            row[name] = tokenizer.decode(continuation.tolist())
        samples.append(row)
    return samples


def repetition(model: GPT2LMHeadModel, stream: Stream, context: int, prompts: int = 32) -> float:
    """Share of repeated 4-grams in 200 greedy tokens, over prompts of 32 held-out tokens."""
    device = next(model.parameters()).device
    starts = torch.linspace(0, len(stream.ids) - 33, prompts).long()
    ids = stream.ids[starts[:, None] + torch.arange(32)].to(device)
    written = generate(model, ids, min(200, context - 32), 0.0, 0)[:, 32:].tolist()
    shares = []
    for row in written:
        grams = [tuple(row[i : i + 4]) for i in range(len(row) - 3)]
        shares.append(1 - len(set(grams)) / len(grams))
    return round(sum(shares) / len(shares), 3)
