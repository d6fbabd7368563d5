#include "attention_mask/mask_arguments.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace warpfuse {
namespace {

// --- checks -----------------------------------------------------------------------------------

void check_index(const char* op, const char* argument, const at::Tensor& index,
                 const at::Tensor& scores, c10::SymIntArrayRef shape, const char* meaning) {
  check_integers(op, argument, index);
  check_same_device(op, argument, index, scores);
  WARPFUSE_CHECK(index.sym_sizes() == shape, op, argument,
                 c10::str("shape ", meaning, " = ", shape), index.sym_sizes());
}

void check_attn_mask(const char* op, const at::Tensor& mask, const at::Tensor& scores) {
  const at::ScalarType type = mask.scalar_type();
  WARPFUSE_CHECK(
      type == at::kBool || type == scores.scalar_type() || type == at::kFloat, op, "attn_mask",
      scores.scalar_type() == at::kFloat ? "bool or Float"
                                         : c10::str("bool, ", scores.scalar_type(), " or Float"),
      type);
  check_same_device(op, "attn_mask", mask, scores);
  bool broadcasts = mask.dim() <= scores.dim();
  for (int64_t d = 1; broadcasts && d <= mask.dim(); ++d) {
    broadcasts = is_one_or(mask.sym_size(-d), scores.sym_size(-d));
  }
  WARPFUSE_CHECK(broadcasts, op, "attn_mask",
                 c10::str("a shape that broadcasts to ", scores.sym_sizes()), mask.sym_sizes());
}

std::optional<at::Tensor> defined(std::optional<at::Tensor> tensor) {
  return tensor.has_value() && tensor->defined() ? std::move(tensor) : std::nullopt;
}

}  // namespace

MaskArguments::MaskArguments(OptionalTensor attn_mask, std::string_view causal,
                             OptionalTensor query_positions, OptionalTensor key_lengths,
                             int64_t window, std::optional<double> masked_value)
    : attn_mask(defined(std::move(attn_mask))),
      causal(causal),
      query_positions(defined(std::move(query_positions))),
      key_lengths(defined(std::move(key_lengths))),
      window(window),
      masked_value(masked_value) {}

MaskArguments::Fields MaskArguments::fields() const {
  return {attn_mask, causal, query_positions, key_lengths, window, masked_value};
}

void check_masks(const char* op, const at::Tensor& scores, const MaskArguments& masks) {
  check_floating(op, "scores", scores);
  WARPFUSE_CHECK(scores.dim() >= 2 && scores.dim() <= 4, op, "scores",
                 "[B, H, Tq, Tk], [B, Tq, Tk] or [Tq, Tk]", scores.dim(), " dimensions");
  WARPFUSE_CHECK(
      masks.causal == "none" || masks.causal == "upper_left" || masks.causal == "lower_right", op,
      "causal", "\"none\", \"upper_left\" or \"lower_right\"", '"', masks.causal, '"');
  WARPFUSE_CHECK(masks.window >= 0, op, "window", "0 (none) or a positive number of keys",
                 masks.window);
  const auto& mask = masks.attn_mask;
  if (mask.has_value()) {
    check_attn_mask(op, *mask, scores);
  }
  const c10::SymInt batch = scores.dim() == 2 ? c10::SymInt(1) : scores.sym_size(0);
  if (masks.query_positions.has_value()) {
    check_index(op, "query_positions", *masks.query_positions, scores, {batch, scores.sym_size(-2)},
                "[B, Tq]");
  }
  if (masks.key_lengths.has_value()) {
    check_index(op, "key_lengths", *masks.key_lengths, scores, {batch}, "[B]");
  }
  WARPFUSE_CHECK(
      !masks.masked_value.has_value() || (mask.has_value() && mask->scalar_type() == at::kBool), op,
      "masked_value", "a boolean attn_mask to go with it",
      mask.has_value() ? c10::str(mask->scalar_type()) : "no attn_mask");
}

// --- the kernels' view of the masks -----------------------------------------------------------

KeyRules key_rules(const at::Tensor& scores, const MaskArguments& masks) {
  KeyRules rules;
  rules.heads = scores.dim() == 4 ? scores.size(1) : 1;
  rules.queries = scores.size(-2);
  rules.keys = scores.size(-1);
  rules.causal = masks.causal != "none";
  rules.diagonal = masks.causal == "lower_right" ? rules.keys - rules.queries : 0;
  rules.window = std::min(masks.window, rules.queries + rules.keys);
  if (const auto& positions = masks.query_positions) {
    rules.query_positions = {positions->const_data_ptr(), positions->scalar_type() == at::kLong,
                             positions->stride(0), positions->stride(1)};
  }
  if (const auto& lengths = masks.key_lengths) {
    rules.key_lengths = {lengths->const_data_ptr(), lengths->scalar_type() == at::kLong,
                         lengths->stride(0), 0};
  }
  return rules;
}

MaskView mask_view(const at::Tensor& scores, const MaskArguments& masks) {
  MaskView view;
  if (!masks.attn_mask.has_value()) {
    return view;
  }
  const at::Tensor mask = masks.attn_mask->expand(scores.sizes());
  view.data = mask.const_data_ptr();
  view.kind = mask.scalar_type() == at::kBool              ? MaskKind::boolean
              : mask.scalar_type() == scores.scalar_type() ? MaskKind::additive
                                                           : MaskKind::additive_float32;
  view.batch_stride = scores.dim() > 2 ? mask.stride(0) : 0;
  view.head_stride = scores.dim() == 4 ? mask.stride(1) : 0;
  view.query_stride = mask.stride(-2);
  view.key_stride = mask.stride(-1);
  view.elements = 1;
  for (int64_t dim = 0; dim < mask.dim(); ++dim) {
    view.elements += (mask.size(dim) - 1) * mask.stride(dim);
  }
  view.fills = masks.masked_value.has_value();
  view.fill_value = masks.masked_value.value_or(0.0);
  return view;
}

}  // namespace warpfuse
