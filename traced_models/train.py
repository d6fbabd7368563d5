#!/usr/bin/env python3
"""Trains the small GPT-2 that ships in wikitext-small/, on a CPU or a GPU.

    train.py --train wikitext-2/test.txt --held-out wikitext-2/valid.txt -o FOLDER

FOLDER gets model.safetensors (float16), config.json, vocab.json, merges.txt and training_log.json, which has the
loss of every step; it is written at each evaluation, and at the end with samples and scores. All settings are in
train_config.py. --attention and --loss say whose operators compute attention's softmax and the loss;
training_curves.py compares two runs (docs/training.md).
"""

import argparse
import json
import math
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from corpus import read_documents, read_lines
from samples import PROMPTS, repetition, write_samples
from torch import Tensor
from torch.nn import functional as F
from train_config import TrainConfig
from train_data import IGNORE, Stream, build_stream, random_windows, scoring_windows
from train_operators import ATTENTION, LOSSES, cross_entropy
from train_tokenizer import load_tokenizer, train_tokenizer
from transformers import GPT2Config, GPT2LMHeadModel
from unknown_words import UnknownWords


@dataclass
class How:
    """Where and with whose operators a step is computed; not what is trained."""

    device: torch.device
    attention: str = "sdpa"
    loss: str = "aten"
    dtype: torch.dtype = torch.float32  # of autocast


@dataclass
class Run:
    """What training gave: the averaged weights that `config.keep` names, and how it went."""

    model: GPT2LMHeadModel
    curve: list[dict[str, float]]
    losses: list[float]  # -log p of every step's targets, per token
    step_ms: float  # mean, without evaluation
    peak_bytes: int | None  # on a GPU


def build_model(config: TrainConfig, attention: str = "sdpa") -> GPT2LMHeadModel:
    """A GPT-2 with random weights."""
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=config.vocab_size,
            n_positions=config.context,
            n_embd=config.width,
            n_layer=config.layers,
            n_head=config.heads,
            resid_pdrop=config.dropout,
            embd_pdrop=config.dropout,
            attn_pdrop=config.dropout,
            bos_token_id=config.vocab_size - 1,
            eos_token_id=config.vocab_size - 1,
            attn_implementation=ATTENTION[attention],
        )
    )


def repetition_loss(log_probs: Tensor, ids: Tensor, targets: Tensor) -> Tensor:
    """-log(1 - p) of the tokens that followed earlier occurrences of the last two tokens.

    log_probs [B,T,V]; ids, targets i64[B,T]. Candidates that are right this time are left out.
    """
    pair = ids[:, 1:] * log_probs.shape[-1] + ids[:, :-1]  # [B,T-1]
    followers = targets[:, 1:].clamp(min=0)  # [B,T-1]: what came after each pair
    repeated = (pair[:, :, None] == pair[:, None, :]).tril(-1)  # [B,t,j]: pair j comes before t
    repeated &= targets[:, 1:, None] != targets[:, None, 1:]
    repeated &= (targets[:, 1:] != IGNORE)[:, None, :]
    index = followers[:, None, :].expand(-1, pair.shape[1], -1)
    candidate = log_probs[:, 1:].gather(2, index).exp()  # [B,t,j]
    penalty = -torch.log((1.0 - candidate).clamp(min=1e-5))
    return (penalty * repeated).sum() / (targets != IGNORE).sum()


@torch.no_grad()
def held_out_nats(model: GPT2LMHeadModel, stream: Stream, context: int, stride: int) -> float:
    """Sum of -log p over the scored targets of a stream."""
    device = next(model.parameters()).device
    inputs, targets = scoring_windows(stream, context, stride)
    total = 0.0
    for x, y in zip(inputs.split(32), targets.split(32)):
        logits = model(x.to(device)).logits.float()
        total += F.cross_entropy(
            logits.flatten(0, 1), y.to(device).flatten(), ignore_index=IGNORE, reduction="sum"
        ).item()
    return total


def learning_rate(config: TrainConfig, step: int) -> float:
    """Linear warm-up, then a cosine to zero."""
    if step < config.warmup:
        return config.learning_rate * (step + 1) / config.warmup
    progress = (step - config.warmup) / max(1, config.steps - config.warmup)
    return config.learning_rate * 0.5 * (1 + math.cos(math.pi * progress))


def train(
    config: TrainConfig, data: Stream, held_out: Stream, how: How,
    evaluated: Callable[[Run], None] = lambda run: None,
) -> Run:  # fmt: skip
    """A run from random weights; equal settings take the same windows in the same order. `evaluated` gets the run
    so far after each evaluation."""
    device = how.device
    torch.manual_seed(config.seed)
    windows = torch.Generator().manual_seed(config.seed)
    model = build_model(config, how.attention).to(device)
    average = build_model(config, how.attention).to(device).eval()
    average.load_state_dict(model.state_dict())
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": config.weight_decay},
            {"params": vectors, "weight_decay": 0.0},
        ],
        betas=(0.9, 0.98),
        fused=device.type == "cuda",
    )
    held_out_targets = int((held_out.targets[1:] != IGNORE).sum())
    best, best_loss, curve, losses = {}, math.inf, [], []
    seconds = 0.0
    for step in range(config.steps):
        started = time.perf_counter()
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(config, step)
        ids, targets = random_windows(data, config.context, config.batch, windows)
        ids, targets = ids.to(device), targets.to(device)
        noisy = ids
        if config.token_noise:
            draw = torch.randint(len(data.ids), ids.shape, generator=windows)
            chosen = torch.rand(ids.shape, generator=windows) < config.token_noise
            noisy = torch.where(chosen.to(device), data.ids[draw].to(device), ids)
        with torch.autocast(device.type, how.dtype, enabled=how.dtype != torch.float32):
            logits = model(noisy).logits
        likelihood = cross_entropy(logits, targets, IGNORE, how.loss)
        loss = likelihood
        if config.label_smoothing or config.unlikelihood:
            log_probs = logits.float().log_softmax(-1)
        if config.label_smoothing:
            uniform = -log_probs.mean(-1)[targets != IGNORE].mean()
            loss = loss.lerp(uniform, config.label_smoothing)
        if config.unlikelihood:
            loss = loss + config.unlikelihood * repetition_loss(log_probs, ids, targets)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        decay = min(config.average_decay, (step + 1) / (step + 10))
        with torch.no_grad():
            torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 1 - decay)
        losses.append(likelihood.item())  # waits for the step
        seconds += time.perf_counter() - started
        if (step + 1) % config.evaluate_every == 0 or step + 1 == config.steps:
            nats = held_out_nats(average, held_out, config.context, config.context)
            since = step + 1 - (curve[-1]["step"] if curve else 0)
            curve.append(
                {
                    "step": step + 1,
                    "train": round(sum(losses[-since:]) / since, 4),
                    "held_out": round(nats / held_out_targets, 4),
                }
            )
            print(json.dumps(curve[-1]), flush=True)
            if config.keep == "lowest" and curve[-1]["held_out"] < best_loss:
                best_loss = curve[-1]["held_out"]
                best = {name: value.clone() for name, value in average.state_dict().items()}
            peak = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
            run = Run(average, curve, losses, seconds / (step + 1) * 1e3, peak)
            evaluated(run)
    if best:
        average.load_state_dict(best)
    return run


def summary(model: GPT2LMHeadModel, stream: Stream, context: int) -> dict[str, float]:
    """Held-out figures of the weights as they are stored: a window of context, half of it new."""
    nats = held_out_nats(model, stream, context, context // 2)
    tokens = int((stream.targets[1:] != IGNORE).sum())
    return {
        "tokens": tokens,
        "words": stream.words,
        "bytes": stream.scored_bytes,
        "loss_per_token": round(nats / tokens, 4),
        "perplexity_per_token": round(math.exp(nats / tokens), 2),
        "perplexity_per_word": round(math.exp(nats / stream.words), 1),
        "bits_per_byte": round(nats / math.log(2) / stream.scored_bytes, 4),
    }


def save(model: GPT2LMHeadModel, out: Path) -> None:
    """Write model.safetensors in float16 and config.json."""
    model.half().save_pretrained(out)
    (out / "generation_config.json").unlink(missing_ok=True)


def write_log(out: Path, about: dict, run: Run, **results: object) -> str:
    """Replace training_log.json, with the losses in one line. The text without them."""
    log = about | {
        "parameters": sum(p.numel() for p in run.model.parameters()),
        "step_ms": round(run.step_ms, 2),
        "peak_bytes": run.peak_bytes,
        "curve": run.curve,
    } | results
    text = json.dumps(log, indent=1, ensure_ascii=False)
    losses = json.dumps([round(loss, 6) for loss in run.losses])
    new = out / "training_log.json.new"
    new.write_text(text.removesuffix("\n}") + f',\n "losses": {losses}\n}}\n', encoding="utf-8")
    new.replace(out / "training_log.json")
    return text


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train", type=Path, required=True, help="WikiText file to train on")
    parser.add_argument("--held-out", type=Path, required=True, help="WikiText file to score on")
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder to write into")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--attention", choices=ATTENTION, default="sdpa")
    parser.add_argument("--loss", choices=LOSSES, default="aten")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"],
                        help="of autocast; default: bfloat16 on a GPU")  # fmt: skip
    parser.add_argument("--plugin", type=Path, help="libwarpfuse.so, for what is to be warpfuse's")
    parser.add_argument("--tokenizer", type=Path,
                        help="folder with vocab.json and merges.txt, such as GPT-2's; default: one is trained")  # fmt: skip
    arguments = parser.parse_args()

    start = time.monotonic()
    try:
        config = TrainConfig().override(arguments.set)
    except ValueError as error:
        parser.error(str(error))
    device = torch.device(arguments.device)
    if "warpfuse" in (arguments.attention, arguments.loss):
        if arguments.plugin is None:
            parser.error("--attention warpfuse and --loss warpfuse need --plugin")
        torch.ops.load_library(str(arguments.plugin))
    default = "bfloat16" if device.type == "cuda" else "float32"
    how = How(device, arguments.attention, arguments.loss, getattr(torch, arguments.dtype or default))
    train_lines = read_lines(arguments.train)
    unknown = UnknownWords(train_lines)
    documents = read_documents(train_lines, unknown)
    if arguments.tokenizer is None:
        train_tokenizer([d.text for d in documents], config.vocab_size, arguments.out)
    else:
        arguments.out.mkdir(parents=True, exist_ok=True)
        for name in ("vocab.json", "merges.txt"):
            shutil.copyfile(arguments.tokenizer / name, arguments.out / name)
    tokenizer = load_tokenizer(arguments.out)
    config.vocab_size = tokenizer.get_vocab_size()
    data = build_stream(documents, tokenizer, score_filled=True)
    held_out = build_stream(
        read_documents(read_lines(arguments.held_out), unknown), tokenizer, score_filled=False
    )
    about = {
        "config": asdict(config),
        "training_tokens": len(data.ids),
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "operators": {"attention": how.attention, "loss": how.loss, "dtype": str(how.dtype).removeprefix("torch.")},
        "torch": torch.__version__,
    }

    def write(run: Run, **results: object) -> str:
        return write_log(arguments.out, about, run, seconds=round(time.monotonic() - start), **results)

    run = train(config, data, held_out, how, write)
    save(run.model, arguments.out)
    model = run.model.float().eval()  # the float16 values, computed with in float32
    results = {
        "held_out": summary(model, held_out, config.context),
        "greedy_repeated_4grams": repetition(model, held_out, config.context),
        "samples": write_samples(model, tokenizer, PROMPTS),
    }
    print(write(run, **results))


if __name__ == "__main__":
    main()
