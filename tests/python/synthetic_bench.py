"""Made-up benchmark files for the tests of scripts/report.py; no time in them was measured."""

import math

COPY = 4260.0  # GB/s
BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
MOVED = {  # times the matrix: least, by an unfused chain
    ("softmax", "forward"): (2, 5),
    ("softmax", "backward"): (3, 5),
    ("scaled_masked_softmax", "forward"): (2, 6),
    ("scaled_masked_softmax", "backward"): (3, 7),
}


def launch(tier, row, dtype):
    return {
        "tier": tier,
        "kernel": "registers",
        "grid": row[0],
        "threads": 256,
        "cluster": 1,
        "lane_packs": 4,
        "registers": 48,
        "shared_bytes": 1024,
        "local_bytes": 0,
        "blocks_per_sm": 5,
        "warps_per_sm": 40,
        "max_warps_per_sm": 64,
    }


def variant(name, time, launches=()):
    return {
        "name": name,
        "status": "ok",
        "max_error": 1e-7,
        "p50_us": time,
        "p5_us": time * 0.99,
        "p95_us": time * 1.02,
        "event_p50_us": time + 3,
        "launches": list(launches),
    }


def unsupported(name):
    return {"name": name, "status": "unsupported", "reason": f"{name}: rows too long"}


def row(
    shape,
    dtype,
    direction="forward",
    operator="softmax",
    mask="none",
    dim=-1,
    share=0.9,
    aten=0.45,
    ladder=False,
):
    """A row whose warpfuse variant reaches `share` of the copy, and ATen `aten`."""
    size = math.prod(shape) * BYTES[dtype]
    least, unfused = (factor * size for factor in MOVED[operator, direction])
    if mask == "causal":
        least = least * 3 / 4
    floor = least / COPY / 1e3
    copy = floor + 1.5
    tier = "warp" if shape[-1] <= 1024 else "block" if shape[-1] <= 50000 else "cluster"
    variants = [variant("warpfuse", floor / share, [launch(tier, shape, dtype)])]
    if operator == "softmax":
        variants.append(variant("aten", floor / aten))
    else:
        variants.append(variant("chain", floor / aten * 2))
    if ladder:
        variants += [
            variant("naive", floor * 14, [launch("naive", shape, dtype)]),
            unsupported("warp"),
            variant("block", floor / 0.89, [launch("block", shape, dtype)]),
            variant("cluster", floor / 0.8, [launch("cluster", shape, dtype)]),
            variant("stream", floor / 0.62, [launch("stream", shape, dtype)]),
        ]
    return {
        "operator": operator,
        "direction": direction,
        "shape": list(shape),
        "dim": dim,
        "dtype": dtype,
        "mask": mask,
        "least_bytes": least,
        "fused_bytes": least,
        "unfused_bytes": unfused,
        "floor_us": floor,
        "same_size_copy": {"p50_us": copy, "p5_us": copy, "p95_us": copy},
        "variants": variants,
    }


def both_ways(shape, dtype, **options):
    return [row(shape, dtype, direction, **options) for direction in ("forward", "backward")]


def bench(rows, device="NVIDIA H200"):
    return {
        "format": "warpfuse-bench-1",
        "complete": True,
        "date": "2000-01-02",
        "command": "warpfuse bench made-up",
        "versions": {
            "warpfuse": "0.1.0",
            "commit": "abc1234",
            "libtorch": "2.11.0",
            "cuda": "13.0",
            "driver": "580.1",
        },
        "device": {
            "type": "cuda",
            "name": device,
            "multiprocessors": 132,
            "memory_bytes": 150754820096,
            "l2_bytes": 62914560,
        },
        "timing": {
            "graph": "CUDA graph of calls that rotate over inputs",
            "event": "one call, flushed L2",
        },
        "large_copy": {"bytes": 4294967296, "p50_us": 1008.2, "gb_per_s": COPY},
        "empty_kernel_us": 1.6,
        "tuning": "made up",
        "rows": rows,
    }


def table():
    rows = []
    for dtype in ("float32", "bfloat16"):
        rows += both_ways(
            (1024, 8192), dtype, ladder=True, share=0.92 if dtype == "float32" else 0.88
        )
        for i, shape in enumerate(
            ((65536, 512), (65536, 1025), (8192, 8192), (4096, 50257), (512, 262144))
        ):
            rows += both_ways(
                shape,
                dtype,
                share=0.97 - 0.03 * i - (0.05 if dtype == "bfloat16" else 0),
                aten=0.8 - 0.12 * i,
            )
        rows += both_ways(
            (96, 1024, 1024), dtype, operator="scaled_masked_softmax", mask="causal", aten=0.4
        )
    rows += both_ways((64, 4096, 64), "float32", dim=1)
    rows.append(
        row(
            (1, 12, 1, 1024),
            "float16",
            operator="scaled_masked_softmax",
            mask="positions",
            share=0.0075,
        )
    )
    return bench(rows)


def basic():
    rows = []
    for dtype in ("float32", "bfloat16"):
        rows += both_ways((1024, 8192), dtype, ladder=True)
        for mask in ("none", "causal", "padding"):
            rows += both_ways((1, 1024, 1024), dtype, operator="scaled_masked_softmax", mask=mask)
    return bench(rows)


def sweep():
    lengths = [2**k + odd for k in range(5, 19) for odd in (0, 1)] + [50257]
    return bench(
        [
            row(
                ((1 << 26) // length, length),
                dtype,
                share=0.97
                - 0.015 * abs(math.log2(length) - 11)
                - (0.08 if length % 2 else 0)
                - (0.04 if dtype == "bfloat16" else 0),
                aten=max(
                    0.2,
                    0.9 - 0.06 * abs(math.log2(length) - 9) - (0.2 if dtype == "bfloat16" else 0),
                ),
            )
            for dtype in ("float32", "bfloat16")
            for length in sorted(lengths)
        ]
    )


def cpu():
    rows = []
    for mask in ("causal", "boolean"):
        rows.append(
            row(
                (12, 1024, 1024),
                "float32",
                operator="scaled_masked_softmax",
                mask=mask,
                share=0.7,
                aten=0.5,
            )
        )
    rows += both_ways((1024, 8192), "float32", share=0.8, aten=0.7)
    for entry in rows:
        for found in entry["variants"]:
            found["default_malloc_p50_us"] = found["p50_us"] * 20
            del found["event_p50_us"], found["launches"]
    whole = bench(rows)
    whole["device"] = {"type": "cpu", "name": "Made Up CPU", "threads": 2, "capability": "AVX512"}
    del whole["empty_kernel_us"]
    return whole
