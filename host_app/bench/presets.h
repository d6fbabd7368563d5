#pragma once

#include <array>
#include <string_view>

namespace warpfuse::host::bench {

// A line of `rows` has lists of operators, shapes, dtypes, masks and directions, as the command
// line takes them. A shape that is a number alone has so many columns, and 64M elements in all.
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
softmax               65536x1024,65536x1025      float16          none      forward,backward
log_softmax           4096x50257                 float32,float16  none      forward,backward
scaled_masked_softmax 96x1024x1024               float32,bfloat16 causal    forward,backward
scaled_masked_softmax 96x1024x1024               float16          causal    forward,backward
scaled_masked_softmax 12x4096x4096               bfloat16         causal    forward,backward
scaled_masked_softmax 8x12x1024x1024             bfloat16         padding   forward,backward
scaled_masked_softmax 1x12x1x1024                float16          positions forward
)"},
    Preset{"cpu", "smaller shapes, every kind of mask, for the CPU",
           "softmax 1024x8192,4096x512,512x50257,64x1025,65536x64,64x1024x64@1 "
           "float32,bfloat16,float16 none forward\n"
           "softmax 600000x3,40000x49,10000x197 float32,bfloat16 none forward,backward\n"
           "log_softmax 512x50257 float32 none forward\n"
           "scaled_masked_softmax 12x1024x1024 float32,bfloat16,float16 "
           "none,causal,boolean,additive forward\n"
           "scaled_masked_softmax 8x8192x3x3,8x1024x8x8 float32,float16 causal,boolean forward"
           R"(
fused_logprob          512x50257,64x32000,4096x1000 float32,bfloat16 none forward,backward,both
dropout_softmax        128x16384                    float32          none forward,backward
softmax_dropout        96x256x256                   float32          none forward,backward
linear_dropout_softmax 128x1024x1024                float32          none forward,both
ms_deform_attn         1x300x8x32x4/25x34/13x17     float32          none forward
)"},
    // Columns in powers of two, each with its odd neighbour, and GPT-2's vocabulary, and lengths
    // between them; then short rows, every fifth length of them in all operators, passes and masks.
    Preset{"sweep", "2 to 262144 columns, short ones of many lengths, 64M elements each",
           "softmax 32,33,64,65,128,129,256,257,512,513,1024,1025,2048,2049,4096,4097,8192,8193,"
           "16384,16385,32768,32769,50257,65536,65537,131072,131073,262144,262145 float32,"
           "bfloat16 none forward\n"
           "softmax,dropout_softmax,softmax_dropout 1100,1500,2100,3000,4500,9000,20000,60000 "
           "float32,bfloat16 none forward\n"
           "scaled_masked_softmax 4x12x1100x1100,2x12x3000x3000 bfloat16 none,causal,padding "
           "forward\n"
           "scaled_masked_softmax_dropout 4x12x1100x1100,2x12x3000x3000 bfloat16 none,causal "
           "forward\n"
           "softmax 2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,"
           "30,31,32,33,34,47,48,49,50,63,64,65,66,95,96,97,127,128,129,130,191,192,193,194,195,"
           "196,197,255,256,257,258,383,385,511,512,513,514,576,577,767,768,769,770,771,772,773,"
           "774,775,776,777,999,1000 bfloat16 none forward\n"
           "softmax 3,8,13,18,23,28,33,50,95,129,194,256,511,577,771,776 float32,float16,"
           "bfloat16 none forward,backward\n"
           "log_softmax,dropout_softmax,softmax_dropout 3,8,13,18,23,28,33,50,95,129,194,256,"
           "511,577,771,776 bfloat16 none forward\n"
           "scaled_masked_softmax 8x932067x3x3,8x131072x8x8,8x49636x13x13,8x25890x18x18,"
           "8x15857x23x23,8x10699x28x28,8x7703x33x33,8x3355x50x50,8x929x95x95,8x504x129x129,"
           "8x222x194x194,8x128x256x256,8x32x511x511,8x25x577x577,8x14x771x771,8x13x776x776 "
           "bfloat16 none,causal,padding,boolean,additive,positions forward"},
    // Of attention over the patches of Swin (49), ViT (50, 197), CLIP (257) and DINO (577), and of
    // prompts; neighbours of powers of two.
    Preset{"odd", "short rows that are not aligned, as attention over images and prompts has", R"(
softmax               2000000x33,1000000x49,1000000x50,500000x65,500000x129 float32,bfloat16,float16 none forward,backward
softmax               300000x197,250000x257,100000x577                      float32,bfloat16,float16 none forward,backward
scaled_masked_softmax 20000x49x49,2000x197x197,1500x257x257,100x777x777     float32,bfloat16 causal forward,backward
)"},
    // Heads of language models: batches of training, and one token of decoding.
    Preset{"logprob", "fused_logprob on heads of 32000 to 128256 columns, for a GPU", R"(
fused_logprob 4096x32000,8192x50257,8192x128256 bfloat16 none forward,backward,both
fused_logprob 2048x128000                       float16  none forward,backward,both
fused_logprob 1x128256                          bfloat16 none forward
)"},
    // A layer of 16384 features with and without its linear, one that is made by a single kernel,
    // and attention in training.
    Preset{"dropout", "softmax with dropout, alone and behind a linear, for a GPU", R"(
dropout_softmax               128x16384       float32,bfloat16              none   forward,backward
dropout_softmax               8192x8192       bfloat16,float16              none   forward,backward
softmax_dropout               96x1024x1024    bfloat16,float16              none   forward,backward
scaled_masked_softmax_dropout 96x1024x1024    bfloat16,float16              causal forward,backward
linear_dropout_softmax        128x2048x16384  float32,tf32,bfloat16,float16 none   forward,both
linear_dropout_softmax        128x16384x16384 float32,tf32,bfloat16,float16 none   forward,both
)"},
    Preset{"dims", "softmax over a dimension that is not the last, 2 to 4096 columns, for a GPU",
           "softmax "
           "16x2x1048576@1,1000000x4x8@1,524288x8x8@1,262144x8x16@1,8x19x262144@1,8x21x263169@1,"
           "65536x32x16@1,512x64x1024@1,512x64x1000@1,1024x100x336@1,128x256x1024@1,"
           "64x512x1024@1,64x1000x576@1,64x4096x128@1,2000000x8x2@1,200000x50x4@1,200000x100x2@1,"
           "40000x100x8@1 float32,bfloat16 none forward,backward"},
    // Deformable-DETR's encoder for one image and eight, its decoder, DINO's, an encoder of five
    // scales, BEVFormer's cameras, and many queries of one head.
    Preset{"msda", "ms_deform_attn in detectors' encoders and decoders, for a GPU", R"(
ms_deform_attn 1x17821x8x32x4/100x134/50x67/25x34/13x17         float16,float32 none forward,backward
ms_deform_attn 1x300x8x32x4/100x134/50x67/25x34/13x17           float16,float32 none forward,backward
ms_deform_attn 8x17821x8x32x4/100x134/50x67/25x34/13x17         float16,float32 none forward
ms_deform_attn 8x900x8x32x4/100x134/50x67/25x34/13x17           float16,float32 none forward,backward
ms_deform_attn 1x89023x8x32x4/200x334/100x167/50x84/25x42/13x21 float16,float32 none forward
ms_deform_attn 6x10000x8x32x8/116x200/58x100/29x50/15x25        float16,float32 none forward
ms_deform_attn 12x123376x1x32x8/92x160/46x80/23x40/12x20        float16,float32 none forward
ms_deform_attn_uniform 1x17821x8x32x4/100x134/50x67/25x34/13x17 float16,float32 none forward
)"},
    // The layers of distilgpt2 and gpt2, which are of one size, for 1, 8 and 16 sequences; their
    // attention after 128, 512 and 1024 tokens, two batches of prompts, and the draw of tokens.
    Preset{"decode", "a decode step of GPT-2 and its prompts, for a GPU", R"(
norm_linear              1x768x2304,8x768x2304,16x768x2304    float16,bfloat16,float32 none forward
norm_linear_gelu         1x768x3072,8x768x3072,16x768x3072    float16,bfloat16,float32 none forward
linear_residual          1x768x768,8x768x768,16x768x768       float16,bfloat16,float32 none forward
linear_residual          1x3072x768,8x3072x768,16x3072x768    float16,bfloat16,float32 none forward
linear_argmax            1x768x50257,8x768x50257,16x768x50257 float16,bfloat16,float32 none forward
sample_tokens            1x50257,8x50257,32x50257,128x50257   float16,float32          none forward
cached_attention_softmax 1x12x1x128x64,1x12x1x512x64,1x12x1x1024x64,8x12x1x128x64,8x12x1x512x64,8x12x1x1024x64,16x12x1x128x64,16x12x1x512x64,16x12x1x1024x64 float16,bfloat16,float32 none forward
cached_attention_softmax 8x12x1024x1024x64,32x12x128x128x64   float16,bfloat16,float32 none forward
cached_attention_softmax 8x12x256x1024x64                     float16,bfloat16         positions forward
)"}};

}  // namespace warpfuse::host::bench
