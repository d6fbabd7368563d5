"""Writes a tiny TorchScript model for each operator of the plugin that has none here yet.

    python make.py .../libwarpfuse.so

A model that is here stays as it is: each must load and run with every later version of the plugin,
so it is never made anew. `forward()` takes nothing and calls the operator on tensors kept in the
file; `expected`, float64, is the result by plain formulas.
"""

import pathlib
import sys

import torch

import decode_models
import deform_models
import dropout_models
import info_models
import logprob_models
import sampling_models
import softmax_models

FOLDER = pathlib.Path(__file__).resolve().parent

MODELS = {
    "softmax": softmax_models.Softmax,
    "log_softmax": softmax_models.LogSoftmax,
    "scaled_masked_softmax": softmax_models.ScaledMaskedSoftmax,
    "fused_logprob": logprob_models.FusedLogprob,
    "fused_logprob_lse": logprob_models.FusedLogprobLse,
    "fused_logprob_entropy": logprob_models.FusedLogprobEntropy,
    "sample_tokens": sampling_models.SampleTokens,
    "ms_deform_attn": deform_models.MsDeformAttn,
    "ms_deform_attn_softmax": deform_models.MsDeformAttnSoftmax,
    "norm_linear": decode_models.NormLinear,
    "linear_residual": decode_models.LinearResidual,
    "cached_attention_softmax": decode_models.CachedAttentionSoftmax,
    "linear_argmax": decode_models.LinearArgmax,
    "gpt2_step": decode_models.Gpt2Step,
    "_ms_deform_attn_backward": deform_models.MsDeformAttnBackward,
    "_softmax_algorithm": softmax_models.SoftmaxAlgorithm,
    "_softmax_backward": softmax_models.SoftmaxBackward,
    "_log_softmax_backward": softmax_models.LogSoftmaxBackward,
    "_scaled_masked_softmax_backward": softmax_models.ScaledMaskedSoftmaxBackward,
    "_fused_logprob": logprob_models.FusedLogprobStatistics,
    "_fused_logprob_backward": logprob_models.FusedLogprobBackward,
    "_fused_logprob_backward_": logprob_models.FusedLogprobBackwardInPlace,
    "dropout_softmax": dropout_models.DropoutSoftmax,
    "softmax_dropout": dropout_models.SoftmaxDropout,
    "linear_dropout_softmax": dropout_models.LinearDropoutSoftmax,
    "scaled_masked_softmax_dropout": dropout_models.ScaledMaskedSoftmaxDropout,
    "_dropout_softmax": dropout_models.DropoutSoftmaxWithRng,
    "_dropout_softmax_backward": dropout_models.DropoutSoftmaxBackward,
    "_linear_dropout_softmax": dropout_models.LinearDropoutSoftmaxWithRng,
    "_scaled_masked_softmax_dropout": dropout_models.ScaledMaskedSoftmaxDropoutWithRng,
    "_scaled_masked_softmax_dropout_backward": dropout_models.ScaledMaskedSoftmaxDropoutBackward,
    "_dropout_mask": dropout_models.DropoutMask,
    "build_info": info_models.BuildInfo,
    "device_info": info_models.DeviceInfo,
    "call_count": info_models.CallCount,
    "call_counts": info_models.CallCounts,
    "reset_call_counts": info_models.ResetCallCounts,
    "tuning": info_models.Tuning,
    "_set_tuning": info_models.SetTuning,
    "_launches": info_models.Launches,
    "_record_launches": info_models.RecordLaunches,
}


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: make.py LIBWARPFUSE.SO")
    torch.ops.load_library(sys.argv[1])
    for name, model in MODELS.items():
        path = FOLDER / f"{name}.pt"
        if not path.exists():
            torch.manual_seed(11)
            torch.jit.save(torch.jit.script(model().eval()), str(path))
            print(path)


if __name__ == "__main__":
    main()
