// Which rows the benchmark runs: shapes, presets and the options that override them.

#include <algorithm>
#include <set>

#include "bench/algorithms.h"
#include "bench/plan.h"
#include "failure_of.h"
#include "support/catch.h"

using namespace warpfuse::host::bench;

namespace {

std::vector<std::string> texts(const Request& request) {
  std::vector<std::string> list;
  for (const Case& c : plan(request)) {
    list.push_back(text_of(c));
  }
  return list;
}

Request request(const std::string& op, const std::string& shapes) {
  return {.op = op, .shapes = shapes, .dtypes = std::nullopt, .masks = std::nullopt};
}

std::string refusal(const Request& request) {
  return failure_of([&] { plan(request); });
}

}  // namespace

TEST_CASE("shapes are read and written", "[bench]") {
  const Shape columns = parse_shape("64x4096x32@1").value();
  CHECK(columns.sizes == std::vector<int64_t>{64, 4096, 32});
  CHECK(columns.dim == 1);
  CHECK(columns.columns() == 4096);
  CHECK(columns.elements() == int64_t{64} * 4096 * 32);
  CHECK(columns.text() == "64x4096x32@1");
  CHECK(parse_shape("7").value().text() == "7");
  CHECK(parse_shape("2x3@-2").value().dim == 0);
  CHECK(parse_shape("2x3@1").value() == parse_shape("2x3").value());  // the last, by number
  CHECK(parse_shape("2x3@-1").value().columns() == 3);
  const Shape levels = parse_shape("1x300x8x32x4/25x34/13x17").value();
  CHECK(levels.sizes == std::vector<int64_t>{1, 300, 8, 32, 4});
  CHECK(levels.levels.at(1) == std::array<int64_t, 2>{13, 17});
  CHECK(levels.text() == "1x300x8x32x4/25x34/13x17");
  CHECK(parse_shape("7/2x3").value() != parse_shape("7").value());
  for (const char* bad : {"",
                          "x",
                          "2x",
                          "x2",
                          "0x4",
                          "-1x4",
                          "2x3@2",
                          "2x3@-3",
                          "2x3@",
                          "2 x3",
                          "2.5x3",
                          "a",
                          "4294967296x4294967296",
                          "2x3/",
                          "/2x3",
                          "2x3/4",
                          "2x3/4x5x6",
                          "2x3//4x5",
                          "2x3/0x5",
                          "2x3/4x5@1",
                          "2x3@1/4x5",
                          "65536x65536/65536x65536"}) {
    INFO(bad);
    CHECK_FALSE(parse_shape(bad).has_value());
  }
}

TEST_CASE("sizes on the command line are float32, without a mask, forward", "[bench]") {
  CHECK(texts(request("softmax", "2x3")) ==
        std::vector<std::string>{"softmax forward 2x3 float32 none"});
  Request more = request("scaled_masked_softmax", "4x4,2x3x5");
  more.dtypes = "bfloat16";
  more.masks = "causal,boolean";
  more.backward = true;
  CHECK(texts(more) ==
        std::vector<std::string>{"scaled_masked_softmax forward 4x4 bfloat16 causal",
                                 "scaled_masked_softmax backward 4x4 bfloat16 causal",
                                 "scaled_masked_softmax forward 4x4 bfloat16 boolean",
                                 "scaled_masked_softmax backward 4x4 bfloat16 boolean",
                                 "scaled_masked_softmax forward 2x3x5 bfloat16 causal",
                                 "scaled_masked_softmax backward 2x3x5 bfloat16 causal",
                                 "scaled_masked_softmax forward 2x3x5 bfloat16 boolean",
                                 "scaled_masked_softmax backward 2x3x5 bfloat16 boolean"});
}

TEST_CASE("fused_logprob has rows of both passes in one call", "[bench]") {
  Request with_backward = request("fused_logprob", "2x3x4x5x6");
  CHECK(texts(with_backward) ==
        std::vector<std::string>{"fused_logprob forward 2x3x4x5x6 float32 none"});
  with_backward.backward = true;
  CHECK(texts(with_backward) ==
        std::vector<std::string>{"fused_logprob forward 2x3x4x5x6 float32 none",
                                 "fused_logprob backward 2x3x4x5x6 float32 none",
                                 "fused_logprob both 2x3x4x5x6 float32 none"});
}

TEST_CASE("all runs each operator that takes the shape", "[bench]") {
  CHECK(texts(request("all", "2x3")).size() == 10);
  CHECK(texts(request("all", "2x3x4@1")) ==
        std::vector<std::string>{"softmax forward 2x3x4@1 float32 none",
                                 "log_softmax forward 2x3x4@1 float32 none",
                                 "dropout_softmax forward 2x3x4@1 float32 none",
                                 "softmax_dropout forward 2x3x4@1 float32 none"});
  CHECK(texts(request("all", "2x3x4")).back() == "linear_argmax forward 2x3x4 float32 none");
}

TEST_CASE("levels are ms_deform_attn's, whose rows may have points from all of the image",
          "[bench]") {
  const std::string shape = "1x5x2x8x3/6x4/3x2";
  CHECK(texts(request("all", shape)) ==
        std::vector<std::string>{"ms_deform_attn forward 1x5x2x8x3/6x4/3x2 float32 none",
                                 "ms_deform_attn_uniform forward 1x5x2x8x3/6x4/3x2 float32 none"});
  Request both = request("ms_deform_attn", shape);
  both.dtypes = "float16";
  both.backward = true;
  CHECK(texts(both) ==
        std::vector<std::string>{"ms_deform_attn forward 1x5x2x8x3/6x4/3x2 float16 none",
                                 "ms_deform_attn backward 1x5x2x8x3/6x4/3x2 float16 none"});
  const Json key = key_of(plan(both).front());
  CHECK(key["shape"] == Json{1, 5, 2, 8, 3});
  CHECK(key["levels"] == Json{{6, 4}, {3, 2}});
  CHECK(shape_in(key) == parse_shape(shape).value());
  CHECK(shape_in(key_of(plan(request("softmax", "2x3x4@1")).front())).text() == "2x3x4@1");
}

TEST_CASE("linear_dropout_softmax has rows of a training step, and of tf32", "[bench]") {
  Request linear = request("linear_dropout_softmax", "2x3x4");
  CHECK(texts(linear) ==
        std::vector<std::string>{"linear_dropout_softmax forward 2x3x4 float32 none"});
  linear.backward = true;
  linear.dtypes = "tf32,float32";
  CHECK(texts(linear) ==
        std::vector<std::string>{"linear_dropout_softmax forward 2x3x4 tf32 none",
                                 "linear_dropout_softmax both 2x3x4 tf32 none",
                                 "linear_dropout_softmax forward 2x3x4 float32 none",
                                 "linear_dropout_softmax both 2x3x4 float32 none"});
  CHECK(plan(linear).front().dtype == c10::ScalarType::Float);
  Request all = request("all", "2x3x4");
  all.dtypes = "tf32";  // the others have none
  CHECK(texts(all) == std::vector<std::string>{"linear_dropout_softmax forward 2x3x4 tf32 none"});
}

TEST_CASE("a row that is asked for twice runs once", "[bench]") {
  CHECK(texts(request("softmax", "2x3,4x5,2x3@1")).size() == 2);
}

TEST_CASE("presets hold the rows that their names promise", "[bench]") {
  CHECK(texts(request("all", "basic")).size() == 8);
  CHECK(texts(request("softmax", "basic")) ==
        std::vector<std::string>{"softmax forward 1024x8192 float32 none"});
  CHECK(texts(request("log_softmax", "basic")) ==
        std::vector<std::string>{"log_softmax forward 1024x8192 float32 none"});

  const std::vector<std::string> table = texts(request("all", "table"));
  const std::set<std::string> rows(table.begin(), table.end());
  CHECK(rows.size() == 71);  // 10 x 2 x 2 + 3 x 2 + 2 x 2 + 2 + 2 x 2 x 2 + 3 x 2 + 2 + 2 + 1
  for (const char* row :
       {"softmax forward 65536x1025 bfloat16 none", "softmax backward 1x16777259 bfloat16 none",
        "softmax backward 64x4096x64@1 float32 none",
        "scaled_masked_softmax backward 12x4096x4096 bfloat16 causal",
        "scaled_masked_softmax forward 8x12x1024x1024 bfloat16 padding",
        "scaled_masked_softmax forward 1x12x1x1024 float16 positions"}) {
    INFO(row);
    CHECK(rows.contains(row));
  }
  const std::vector<std::string> heads = texts(request("fused_logprob", "logprob"));
  CHECK(heads.size() == 13);  // 4 x 3 + 1
  CHECK(heads.front() == "fused_logprob forward 4096x32000 bfloat16 none");
  CHECK(heads.back() == "fused_logprob forward 1x128256 bfloat16 none");
  CHECK(texts(request("fused_logprob_entropy", "logprob")).size() == 13);
  CHECK(texts(request("sample_tokens", "decode")).front() ==
        "sample_tokens forward 1x50257 float16 none");
  CHECK(texts(request("all", "dims")).size() == 72);  // 18 x 2 x 2
  const std::vector<std::string> dropout = texts(request("all", "dropout"));
  CHECK(dropout.size() == 32);  // 2 x 2 + 2 x 2 + 2 x 2 + 2 x 2 + 4 x 2 + 4 x 2
  CHECK(dropout.front() == "dropout_softmax forward 128x16384 float32 none");
  CHECK(dropout.back() == "linear_dropout_softmax both 128x16384x16384 float16 none");
  CHECK(texts(request("linear_dropout_softmax", "cpu")) ==
        std::vector<std::string>{"linear_dropout_softmax forward 128x1024x1024 float32 none",
                                 "linear_dropout_softmax both 128x1024x1024 float32 none"});
  const std::vector<std::string> detectors = texts(request("all", "msda"));
  CHECK(detectors.size() == 22);  // 3 x 2 x 2 + 5 x 2
  CHECK(detectors.front() ==
        "ms_deform_attn forward 1x17821x8x32x4/100x134/50x67/25x34/13x17 float16 none");
  CHECK(texts(request("ms_deform_attn", "cpu")) ==
        std::vector<std::string>{"ms_deform_attn forward 1x300x8x32x4/25x34/13x17 float32 none"});
  for (const Case& c : plan(request("softmax", "sweep"))) {
    CHECK(std::abs(c.shape.elements() - int64_t{64} * 1024 * 1024) <= c.shape.columns());
  }
  // 58 long and short ones; 8 lengths between them in two dtypes; 70 more lengths in bfloat16; 16
  // lengths of these in other dtypes (3 are there in float32) and backward.
  CHECK(texts(request("softmax", "sweep")).size() == 58 + 8 * 2 + 70 + 13 + 16 + 3 * 16);
  // The 8 lengths by two more operators, two lengths of keys with three masks, and two with
  // dropout; the 16 by three more operators, and with six masks.
  const std::vector<std::string> sweep = texts(request("all", "sweep"));
  CHECK(sweep.size() == 221 + 2 * 8 * 2 + 2 * 3 + 2 * 2 + 3 * 16 + 6 * 16);
  const std::set<std::string> swept(sweep.begin(), sweep.end());
  for (const char* row :
       {"softmax forward 33554432x2 bfloat16 none", "softmax forward 67108x1000 bfloat16 none",
        "softmax backward 1342177x50 float16 none", "log_softmax forward 116306x577 bfloat16 none",
        "softmax_dropout forward 2033601x33 bfloat16 none",
        "dropout_softmax forward 7456x9000 float32 none",
        "scaled_masked_softmax_dropout forward 4x12x1100x1100 bfloat16 causal",
        "scaled_masked_softmax forward 8x3355x50x50 bfloat16 positions"}) {
    INFO(row);
    CHECK(swept.contains(row));
  }
  const std::vector<std::string> odd = texts(request("all", "odd"));
  CHECK(odd.size() == 64);  // 8 x 3 x 2 + 4 x 2 x 2
  CHECK(odd.front() == "softmax forward 2000000x33 float32 none");
  CHECK(odd.back() == "scaled_masked_softmax backward 100x777x777 bfloat16 causal");
}

TEST_CASE("bad requests name the option, what was expected and what was given", "[bench]") {
  CHECK(refusal(request("softmin", "basic")) ==
        "2: operator: expected softmax, log_softmax, scaled_masked_softmax, "
        "scaled_masked_softmax_dropout, fused_logprob, "
        "fused_logprob_lse, fused_logprob_entropy, sample_tokens, dropout_softmax, "
        "softmax_dropout, linear_dropout_softmax, ms_deform_attn, "
        "ms_deform_attn_uniform, norm_linear, norm_linear_gelu, linear_residual, "
        "cached_attention_softmax, linear_argmax or all, got 'softmin'");
  CHECK(refusal(request("softmax", "2y3")) ==
        "2: --shapes: expected basic, table, cpu, sweep, odd, logprob, dropout, dims, msda, "
        "decode, or "
        "sizes "
        "such as "
        "1024x8192 or 64x4096x64@1, got '2y3'");
  CHECK(refusal(request("softmax", "2x3,")).ends_with("got ''"));
  CHECK(refusal(request("scaled_masked_softmax", "64")).ends_with("got '64'"));
  CHECK(refusal(request("scaled_masked_softmax", "2x3x4@1")).ends_with("got '2x3x4@1'"));
  CHECK(refusal(request("fused_logprob", "64")) ==
        "2: --shapes: expected at least 2 sizes, and no other dim than the last, for "
        "fused_logprob, got '64'");
  for (const char* shape : {"2x3", "2x3x4x5", "2x3x4@1"}) {
    CHECK(refusal(request("linear_dropout_softmax", shape)) ==
          "2: --shapes: expected 3 sizes, rows x in x out, and no other dim than the last, for "
          "linear_dropout_softmax, got '" +
              std::string(shape) + "'");
  }
  for (const char* shape : {"1x2x3x4x5", "1x2x3x4/5x6", "1x2x3x4x5x6/7x8"}) {
    CHECK(refusal(request("ms_deform_attn", shape)) ==
          "2: --shapes: expected 5 sizes, batch x queries x heads x channels x points, and levels, "
          "such as 1x300x8x32x4/25x34/13x17, for ms_deform_attn, got '" +
              std::string(shape) + "'");
  }
  CHECK(refusal(request("softmax", "2x3/4x5")) ==
        "2: --shapes: expected sizes without levels for softmax, got '2x3/4x5'");
  Request bad = request("scaled_masked_softmax", "2x3");
  bad.dtypes = "float32,int8";
  CHECK(refusal(bad) ==
        "2: --dtype: expected a list of float32, float16, bfloat16, float64, tf32, got 'int8'");
  bad.dtypes = "float32,tf32";
  CHECK(refusal(bad) ==
        "2: --dtype: only linear_dropout_softmax takes tf32, not scaled_masked_softmax");
  bad.dtypes.reset();
  bad.masks = "diagonal";
  CHECK(refusal(bad).starts_with("2: --mask: expected a list of none, causal,"));
  bad.masks = "causal";
  bad.op = "softmax";
  CHECK(refusal(bad) == "2: --mask: expected none for softmax, got 'causal'");
  bad.masks = "none";
  CHECK_FALSE(texts(bad).empty());
  bad = request("cached_attention_softmax", "2x3x1x8x16");
  bad.masks = "none,causal";
  CHECK(refusal(bad) ==
        "2: --mask: expected none, positions for cached_attention_softmax, got 'causal'");
  bad.masks = "positions";
  CHECK(texts(bad).size() == 1);
  bad.dtypes = "float64";
  CHECK(refusal(bad) == "2: --dtype: cached_attention_softmax takes no float64");
}
