"""Made-up files of `warpfuse bench generate` and its peers; no time in them was measured."""

READ = 4100.0  # GB/s
WEIGHTS = {"float16": 163.8e6, "float32": 327.7e6}
# Tokens a second at batch 1.
RATES = {"baseline": 2500.0, "fused": 2850.0, "sdpa": 2900.0}
HF = {"hf static+compile": 580.0, "hf eager": 150.0, "hf sdpa": 240.0, "hf compiled loop": 1900.0}
GPU = {"type": "cuda", "name": "NVIDIA H200", "multiprocessors": 132}
CPU = {"type": "cpu", "name": "Made Up CPU", "threads": 2}


def spread(p50):
    return {"p50": p50, "min": p50 * 0.98, "max": p50 * 1.01}


def row(variant, model="distilgpt2", dtype="float16", graph=True, batch=1, prompt=32, rate=None):
    rate = rate or RATES[variant] * batch * (1 if graph else 0.4)
    step = batch / rate * 1e6
    return {
        "model": model,
        "variant": variant,
        "dtype": dtype,
        "graph": graph,
        "batch": batch,
        "prompt": prompt,
        "tokens": 224,
        "tokens_per_s": spread(rate),
        "ttft_ms": spread(1.25),
        "latency_us": {"p5": step * 0.99, "p50": step, "p95": step * 1.1},
        "kernels_per_token": 100,
        "softmax_kernels_share": 0.125,
        "floor_us": WEIGHTS[dtype] / READ / 1e3,
        "empty_graph_us": 120.0,
        "host_us_per_token": 9.5,
        "speedup_over_baseline": None,
        "weight_bytes": int(WEIGHTS[dtype]),
        "cache_bytes": 4718592,
        "capture_note": None,
    }


def prefill(variant, ms, model="distilgpt2", dtype="float16", batch=8, prompt=1024):
    return {
        "model": model,
        "variant": variant,
        "dtype": dtype,
        "batch": batch,
        "prompt": prompt,
        "ms": spread(ms),
        "speedup_over_baseline": None,
    }


def accuracy(variant="fused", difference=1e-3, divergence=None):
    return {
        "model": "distilgpt2",
        "variant": variant,
        "dtype": "float16",
        "largest_logit_difference": difference,
        "relative_logit_difference": difference / 20,
        "tolerance": 1e-3,
        "first_divergence": divergence,
        "tokens_compared": 224,
    }


def generation(rows=None, device=GPU, **more):
    if rows is None:
        rows = [row(variant, graph=graph) for graph in (True, False) for variant in RATES]
        rows += [row(variant, batch=32, prompt=512) for variant in RATES]
    return {
        "format": "warpfuse-generate-1",
        "date": "2000-01-02",
        "device": device,
        "versions": {"warpfuse": "0.1.0", "commit": "abc1234", "libtorch": "2.11.0"},
        "read_gb_per_s": READ,
        "rows": rows,
        "prefill": [prefill("baseline", 13.0), prefill("fused", 10.0), prefill("sdpa", 8.0)],
        "accuracy": [accuracy(), accuracy("sdpa", 0.5, 17)],
        "prompts": {"source": "wikitext-2 valid", "ids": [[1, 2, 3], [4, 5]]},
        **more,
    }


def cpu(share=0.85):
    """A fused variant that takes the floor over `share`."""
    at_floor = READ * 1e9 / WEIGHTS["float32"]
    rows = [
        row(variant, dtype="float32", graph=False, rate=at_floor * share * factor)
        for variant, factor in (("baseline", 0.9), ("fused", 1.0), ("sdpa", 0.95))
    ]
    for entry in rows:
        entry |= {"kernels_per_token": None, "empty_graph_us": None}
    return generation(rows, CPU, prefill=[], accuracy=[])


def hf_row(peer, rate=None, batch=1, prompt=32, **more):
    return {
        "peer": peer,
        "model": "distilgpt2",
        "dtype": "float16",
        "batch": batch,
        "prompt": prompt,
        "tokens": 224,
        "how": f"{peer} as it is",
        "status": "ok",
        "tokens_per_s": spread(rate or HF[peer]),
        "ttft_ms": spread(6.0),
        **more,
    }


def unmeasured(peer, **more):
    found = hf_row(peer, **more) | {"status": "not measured", "reason": "time"}
    del found["tokens_per_s"], found["ttft_ms"]
    return found


def hf(rows=None, device=GPU):
    if rows is None:
        rows = [hf_row(peer) for peer in HF]
        rows.append(unmeasured("hf static+compile", batch=32, prompt=512))
    return {
        "format": "warpfuse-generate-peers-1",
        "complete": True,
        "date": "2000-01-03",
        "command": "scripts/generate_peers.py made-up",
        "versions": {"transformers": "5.0.0", "torch": "2.11.0"},
        "device": device,
        "timing": {"tokens_per_s": "made up"},
        "rows": rows,
    }
