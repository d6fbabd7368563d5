"""Made-up runs for the tests of scripts/report.py; no time in them was measured."""

import math

COPY = 4260.0  # GB/s
BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "tf32": 4}
GPU = {"type": "cuda", "name": "NVIDIA H200", "multiprocessors": 132, "l2_bytes": 62914560}
CPU = {"type": "cpu", "name": "Made Up CPU", "threads": 2}
PLUGIN = {"warpfuse", "in_place", "softmax", "naive", "warp", "block", "cluster", "stream"}  # variants of its own kernels
VERSIONS = {"warpfuse": "0.1.0", "commit": "abc1234", "libtorch": "2.11.0", "cuda": None}


def variant(name, time, **more):
    ok = {"status": "ok", "p50_us": time, "p5_us": time * 0.99, "p95_us": time * 1.02, "event_p50_us": time + 3}
    return {"name": name, "extra_bytes": 0, "max_error": 2e-7} | ok | ({"launches": []} if name in PLUGIN else {}) | more


def row(shape, dtype="float32", direction="forward", operator="softmax", mask="none", dim=-1, share=0.9, **others):
    """A row whose warpfuse variant reaches `share` of the copy; `others` are the shares of other variants."""
    least = (2 if direction == "forward" else 3) * math.prod(shape) * BYTES[dtype]
    floor = least / COPY / 1e3
    peer = "chain" if operator == "scaled_masked_softmax" else "aten"
    shares = {"warpfuse": share, peer: share / 2} | others
    return {
        "operator": operator,
        "direction": direction,
        "shape": list(shape),
        "dim": dim,
        "dtype": dtype,
        "mask": mask,
        "least_bytes": least,
        "fused_bytes": least,
        "unfused_bytes": 2 * least,
        "floor_us": floor,
        "same_size_copy": {"p50_us": floor + 1.5, "p5_us": floor, "p95_us": floor + 2},
        "variants": [variant(name, floor / each) for name, each in shares.items()],
    }


def bench(rows, device=GPU, **more):
    return {
        "format": "warpfuse-bench-1",
        "complete": True,
        "date": "2000-01-02",
        "command": "warpfuse bench made-up",
        "versions": VERSIONS,
        "device": dict(device),
        "timing": {"graph": "CUDA graph of calls that rotate over inputs"},
        "large_copy": {"bytes": 4294967296, "p50_us": 1008.2, "gb_per_s": COPY},
        "empty_kernel_us": 1.6,
        "tuning": "made up",
        "rows": rows,
        **more,
    }


def table():
    """Each kind of row that the page has a table for, under its preset."""
    ladder = {"naive": 0.01, "warp": 0.4, "block": 0.89, "cluster": 0.5, "stream": 0.7}
    rows = [row((1024, 8192), dtype, way, **ladder) for dtype in ("float32", "bfloat16") for way in ("forward", "backward")]
    rows += [row((64, 4096, 64), dim=1), row((4096, 1024), operator="log_softmax")]
    rows += [row((96, 1024, 1024), "bfloat16", operator="scaled_masked_softmax", mask="causal")]
    sweep = [row((1 << 20, columns), dtype) for dtype in ("float32", "bfloat16") for columns in (32, 33, 64, 65)]
    logprob = [
        row((512, 50257), "bfloat16", way, "fused_logprob", in_place=0.95, cross_entropy=0.3)
        for way in ("forward", "backward", "both")
    ]
    dropout = [row((8192, 8192), "bfloat16", operator="dropout_softmax", softmax=0.99)]
    dropout += [row((128, 2048, 16384), "tf32", "both", "linear_dropout_softmax", linear=0.8)]
    for name, part in (("sweep", sweep), ("logprob", logprob), ("dropout", dropout)):
        rows += [entry | {"presets": [name]} for entry in part]
    rows[0]["traffic"] = [{"variant": "warpfuse", "dram_read_bytes": 33.6e6, "dram_write_bytes": 10.2e6}]
    return bench(rows, traffic_how="made up")


def cpu():
    rows = [row((1024, 8192)), row((12, 1024, 1024), operator="scaled_masked_softmax", mask="causal")]
    for entry in rows:
        for found in entry["variants"]:
            found["default_malloc_p50_us"] = found["p50_us"] * 20
            del found["event_p50_us"]
    return bench(rows, CPU)


def spread(p50):
    return {"p50": p50, "min": p50 * 0.98, "max": p50 * 1.01}


def generated(variant, rate, graph=True, batch=1, prompt=32, dtype="float16"):
    step = batch / rate * 1e6
    work = {"model": "distilgpt2", "dtype": dtype, "batch": batch, "prompt": prompt}
    return work | {
        "variant": variant,
        "graph": graph,
        "tokens_per_s": spread(rate),
        "latency_us": {"p5": step, "p50": step, "p95": step},
        "kernels_per_token": 100,
        "softmax_kernels_share": 0.125,
        "floor_us": step / 4,
        "host_us_per_token": 9.5,
    }


def generation(device=GPU, **more):
    rates = {"baseline": 2500.0, "fused": 2850.0, "sdpa": 2900.0, "steps": 5800.0}
    graphs = (True, False) if device == GPU else (False,)
    work = {"model": "distilgpt2", "dtype": "float16", "batch": 8, "prompt": 1024}
    accuracy = {"model": "distilgpt2", "variant": "fused", "dtype": "float16", "largest_logit_difference": 0.5}
    accuracy |= {"relative_logit_difference": 0.01, "tolerance": 0.001, "first_divergence": 17, "tokens_compared": 224}
    return {
        "format": "warpfuse-generate-1",
        "date": "2000-01-02",
        "device": dict(device),
        "versions": VERSIONS,
        "read_gb_per_s": 4100.0,
        "rows": [generated(name, rate, graph) for graph in graphs for name, rate in rates.items()],
        "prefill": [work | {"variant": name, "ms": spread(ms)} for name, ms in (("baseline", 13.0), ("fused", 10.0))],
        "accuracy": [accuracy],
        "prompts": {"source": "/tmp/wikitext-2-valid.json", "ids": [[1, 2, 3], [4, 5]]},
        **more,
    }


def hugging_face():
    work = {"model": "distilgpt2", "dtype": "float16", "batch": 1, "prompt": 32}
    measured = {"status": "ok", "how": "as it is", "tokens_per_s": spread(580.0)}
    rows = [work | measured | {"peer": "hf static+compile"}]
    rows.append(work | {"peer": "hf eager", "status": "not measured", "reason": "time"})
    head = {"date": "2000-01-03", "versions": {"transformers": "5.0.0"}, "device": GPU, "timing": {}}
    return {"format": "warpfuse-generate-peers-1", "complete": True, **head, "rows": rows}


def target(measure, limit, end="at_least", device="cuda", **where):
    return {"device": device, "measure": measure, end: limit, **where}


def rule(measure, limit, columns, end="at_least", presets=("sweep",), **where):
    return target(measure, limit, end, columns=list(columns), presets=list(presets), **where)


def peers(targets=(), generate=(), best=(), rules=()):
    return {
        "format": "warpfuse-peers-1",
        "device": "NVIDIA H200",
        "measured": "Made up.",
        "versions": {"Liger": "made up"},
        "processor": {"fp32_per_clock": 128, "special_per_clock": 16, "clock_mhz": 1980},
        "peers": list(best),
        "targets": list(targets),
        "rules": list(rules),
        "generate": list(generate),
    }
