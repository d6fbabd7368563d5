"""Tracing a model's methods, and proving the saved file against the eager module."""

import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from errors import ModelError
from gpt2 import GPT2
from torch import Tensor, nn

# (B, T, cache slots S, slots of the whole cache that S is a narrowed view of)
_SHAPES = [(1, 1, 16, 16), (1, 64, 64, 64), (3, 7, 33, 33), (2, 5, 24, 48)]
_TOLERANCE = {torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}

Inputs = tuple[Tensor, ...]


def new_cache(model: GPT2, batch: int, slots: int, whole: int) -> Tensor:
    """A cache of zeros [L,2,B,H,slots,D], a view of one of `whole` slots."""
    config = model.config
    shape = (config.layers, 2, batch, config.heads, whole, config.head_dim)
    return torch.zeros(shape, dtype=model.transformer.wte.weight.dtype).narrow(4, 0, slots)


def _prompt(model: GPT2, batch: int, length: int) -> tuple[Tensor, Tensor]:
    """Random ids and their positions 0..length-1, both i64[batch, length]."""
    generator = torch.Generator().manual_seed(length)
    ids = torch.randint(model.config.vocab_size, (batch, length), generator=generator)
    return ids, torch.arange(length).expand(batch, length)


@contextmanager
def _without_deprecation() -> Iterator[None]:
    """TorchScript says that it is deprecated: DeprecationWarning, from torch 2.14 FutureWarning."""
    with warnings.catch_warnings():
        for category in (DeprecationWarning, FutureWarning):
            warnings.filterwarnings("ignore", r".*torch\.jit\.", category)
        yield


def trace(module: nn.Module, methods: dict[str, Inputs]) -> torch.jit.ScriptModule:
    """Trace several methods into one module; in-place inputs rule out the tracer's own check."""
    with _without_deprecation(), torch.no_grad():
        warnings.simplefilter("ignore", torch.jit.TracerWarning)
        return torch.jit.trace_module(module, methods, check_trace=False)


def trace_gpt2(model: GPT2) -> torch.jit.ScriptModule:
    """The methods of a bundle, traced at B = 2 and a length that nothing else has."""
    length = min(5, model.config.context)
    slots = min(24, model.config.context)
    ids, pos = _prompt(model, 2, length)
    last = torch.tensor([length - 1, 0])
    examples = {"forward": (ids, pos), "prefill": (ids, pos, last)}
    for method in model.methods():
        tokens = examples.get(method, (ids[:, :1], pos[:, :1]))
        examples[method] = (*tokens, new_cache(model, 2, slots, slots))
    return trace(model, examples)


def serialize(traced: torch.jit.ScriptModule) -> bytes:
    """The bytes of model.pt."""
    buffer = io.BytesIO()
    with _without_deprecation():
        torch.jit.save(traced, buffer)
    return buffer.getvalue()


def deserialize(data: bytes) -> torch.jit.ScriptModule:
    """What a host gets from model.pt."""
    with _without_deprecation():
        return torch.jit.load(io.BytesIO(data))


def foreign_operators(traced: torch.jit.ScriptModule, methods: Sequence[str]) -> list[str]:
    """Names of the operators outside aten and prim that the methods call. A ModelError where a
    method names a device: it would run on no other."""
    names = set()
    for method in methods:
        pending = list(getattr(traced, method).inlined_graph.nodes())
        while pending:
            node = pending.pop()
            names.add(node.kind())
            pending += [inner for block in node.blocks() for inner in block.nodes()]
            if node.kind() == "prim::Constant" and node.output().type().kind() == "DeviceObjType":
                raise ModelError(f"{method} names the device {node.s('value')}; nothing was written")
    return sorted(name for name in names if name.split("::")[0] not in ("aten", "prim"))


def require_close(got: Tensor, expected: Tensor, what: str) -> None:
    """A ModelError where a traced result is not the eager one."""
    limit = _TOLERANCE[expected.dtype] * max(1.0, expected.abs().max().item())
    if got.shape != expected.shape or not (got - expected).abs().max().item() <= limit:
        raise ModelError(f"the traced {what} differs from the eager module; nothing was written")


def _chosen(logits: Tensor, tokens: Tensor) -> Tensor:
    """The logits [B] of tokens i64[B]: where two are nearly equal, either may be chosen."""
    return logits.gather(1, tokens[:, None]).squeeze(1)


def check_gpt2(model: GPT2, loaded: torch.jit.ScriptModule) -> None:
    """Compare all methods at several shapes that were not traced, the cache included."""
    context = model.config.context
    for batch, length, slots, whole in _SHAPES:
        length = min(length, context - 1) or 1
        slots, whole = max(length, min(slots, context)), max(length, min(whole, context))
        ids, pos = _prompt(model, batch, length)
        last = (torch.arange(batch) + length - 1) % length
        results = []
        for module in (model, loaded):
            cache = new_cache(model, batch, slots, whole)
            with torch.no_grad():
                outputs = [module.prefill(ids, pos, last, cache)]
                if length < slots:
                    step = (ids[:, :1], pos[:, -1:] + 1, cache)
                    outputs.append(module.decode(*step))
                    if "next" in model.methods():
                        outputs.append(_chosen(outputs[-1], module.next(*step)))
                outputs.append(module(ids, pos, new_cache(model, batch, slots, whole)))
            results.append([*outputs, cache])
        shape = f"B={batch} T={length} S={slots} of {whole}"
        for eager, traced in zip(*results):
            require_close(traced, eager, f"model at {shape}")
