#pragma once

#include <array>
#include <string_view>

namespace warpfuse::host::bench {

// A line of `rows` has an operator, and lists of shapes, dtypes, masks and directions, as the
// command line takes them.
struct Preset {
  std::string_view name, summary, rows;
};

inline constexpr std::array kPresets{
    Preset{
        "basic",
        "1024x8192, attention's 512 and 1024 with none, causal, padding, and a head of 512x50257",
        R"(
softmax               1024x8192               float32  none                 forward
scaled_masked_softmax 1x512x512,1x1024x1024   float32  none,causal,padding  forward
fused_logprob         512x50257               float32  none                 forward
)"},
    Preset{"table", "the shapes of docs/benchmarks, forward and backward, for a GPU",
           "softmax 1024x8192,65536x512,65536x1024,65536x1025,16384x4096,8192x8192,4096x32768,"
           "4096x50257,2048x131072,512x262144 float32,bfloat16 none forward,backward"
           R"(
softmax               1x50257,8x50257,32x128256  float32,bfloat16 none      forward
softmax               16x1000003,1x16777259      bfloat16         none      forward,backward
softmax               64x4096x64@1               float32          none      forward,backward
scaled_masked_softmax 96x1024x1024               float32,bfloat16 causal    forward,backward
scaled_masked_softmax 12x4096x4096               bfloat16         causal    forward,backward
scaled_masked_softmax 8x12x1024x1024             bfloat16         padding   forward,backward
scaled_masked_softmax 1x12x1x1024                float16          positions forward
)"},
    Preset{"cpu", "smaller shapes, every kind of mask, for the CPU",
           "softmax 1024x8192,4096x512,512x50257,64x1025,65536x64,64x1024x64@1 "
           "float32,bfloat16,float16 none forward\n"
           "log_softmax 512x50257 float32 none forward\n"
           "scaled_masked_softmax 12x1024x1024 float32,bfloat16,float16 "
           "none,causal,boolean,additive forward"
           R"(
fused_logprob          512x50257,64x32000,4096x1000 float32,bfloat16 none forward,backward,both
dropout_softmax        128x16384                    float32          none forward,backward
softmax_dropout        96x256x256                   float32          none forward,backward
linear_dropout_softmax 128x1024x1024                float32          none forward,both
ms_deform_attn         1x300x8x32x4/25x34/13x17     float32          none forward
)"},
    // Columns in powers of two, each with its odd neighbour, and GPT-2's vocabulary.
    Preset{"sweep", "32 to 262144 columns and odd neighbours, 64M elements each",
           "softmax "
           "2097152x32,2033601x33,1048576x64,1032444x65,524288x128,520223x129,262144x256,"
           "261123x257,131072x512,130816x513,65536x1024,65472x1025,32768x2048,32752x2049,"
           "16384x4096,16380x4097,8192x8192,8191x8193,4096x16384,4095x16385,2048x32768,"
           "2047x32769,1335x50257,1024x65536,1023x65537,512x131072,511x131073,256x262144,"
           "255x262145"
           " float32,bfloat16 none forward"},
    // Heads of language models: batches of training, and one token of decoding.
    Preset{"logprob", "fused_logprob on heads of 32000 to 128256 columns, for a GPU", R"(
fused_logprob 4096x32000,8192x50257,8192x128256 bfloat16 none forward,backward,both
fused_logprob 2048x128000                       float16  none forward,backward,both
fused_logprob 1x128256                          bfloat16 none forward
)"},
    // A layer of 16384 features with and without its linear, one that is made by a single kernel,
    // and attention in training.
    Preset{"dropout", "softmax with dropout, alone and behind a linear, for a GPU", R"(
dropout_softmax        128x16384       float32               none forward,backward
dropout_softmax        8192x8192       bfloat16              none forward,backward
softmax_dropout        96x1024x1024    bfloat16              none forward,backward
linear_dropout_softmax 128x2048x16384  tf32,bfloat16         none forward,both
linear_dropout_softmax 128x16384x16384 float32,tf32,bfloat16 none forward,both
)"},
    // Deformable-DETR's encoder for one image and eight, its decoder, DINO's, an encoder of five
    // scales, BEVFormer's cameras, and many queries of one head.
    Preset{"msda", "ms_deform_attn in detectors' encoders and decoders, for a GPU", R"(
ms_deform_attn 1x17821x8x32x4/100x134/50x67/25x34/13x17         float16,float32 none forward,backward
ms_deform_attn 1x300x8x32x4/100x134/50x67/25x34/13x17           float16,float32 none forward,backward
ms_deform_attn 8x17821x8x32x4/100x134/50x67/25x34/13x17         float16,float32 none forward
ms_deform_attn 8x900x8x32x4/100x134/50x67/25x34/13x17           float16,float32 none forward
ms_deform_attn 1x89023x8x32x4/200x334/100x167/50x84/25x42/13x21 float16,float32 none forward
ms_deform_attn 6x10000x8x32x8/116x200/58x100/29x50/15x25        float16,float32 none forward
ms_deform_attn 12x123376x1x32x8/92x160/46x80/23x40/12x20        float16,float32 none forward
ms_deform_attn_uniform 1x17821x8x32x4/100x134/50x67/25x34/13x17 float16,float32 none forward
)"},
    // The layers of distilgpt2 and gpt2, which are of one size, for 1, 8 and 16 sequences; their
    // attention after 128, 512 and 1024 tokens, and two batches of prompts.
    Preset{"decode", "a decode step of GPT-2 and its prompts, for a GPU", R"(
norm_linear              1x768x2304,8x768x2304,16x768x2304    float16,bfloat16,float32 none forward
norm_linear_gelu         1x768x3072,8x768x3072,16x768x3072    float16,bfloat16,float32 none forward
linear_residual          1x768x768,8x768x768,16x768x768       float16,bfloat16,float32 none forward
linear_residual          1x3072x768,8x3072x768,16x3072x768    float16,bfloat16,float32 none forward
linear_argmax            1x768x50257,8x768x50257,16x768x50257 float16,bfloat16,float32 none forward
cached_attention_softmax 1x12x1x128x64,1x12x1x512x64,1x12x1x1024x64,8x12x1x128x64,8x12x1x512x64,8x12x1x1024x64,16x12x1x128x64,16x12x1x512x64,16x12x1x1024x64 float16,bfloat16,float32 none forward
cached_attention_softmax 8x12x1024x1024x64,32x12x128x128x64   float16,bfloat16,float32 none forward
cached_attention_softmax 8x12x256x1024x64                     float16,bfloat16         positions forward
)"}};

}  // namespace warpfuse::host::bench
