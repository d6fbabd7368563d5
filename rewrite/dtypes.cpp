#include "dtypes.h"

#include <ATen/Functions.h>
#include <ATen/native/TypeProperties.h>

#include <cmath>

namespace warpfuse::rewriting {
namespace {

namespace jit = torch::jit;
using c10::ScalarType;

// A number of an unknown kind may be a float.
ScalarType dtype_of_number(const jit::Value* number) {
  switch (number->type()->kind()) {
    case c10::TypeKind::BoolType:
      return ScalarType::Bool;
    case c10::TypeKind::IntType:
      return ScalarType::Long;
    default:
      return ScalarType::Float;
  }
}

void promote(ScalarType& result, ScalarType dtype) {
  result = result == ScalarType::Undefined ? dtype : c10::promoteTypes(result, dtype);
}

// The number as the dtype holds it; null where that is not defined or not known.
ExpressionPtr number_in_dtype(double number, std::optional<ScalarType> dtype) {
  if (!dtype) {  // each holds these two
    return number == 0 || number == 1 ? constant(number) : nullptr;
  }
  constexpr double kMaxInteger = 1LL << 53;
  if (c10::isIntegralType(*dtype, /*includeBool=*/false) && !(std::abs(number) <= kMaxInteger)) {
    return nullptr;
  }
  const at::Tensor value = at::scalar_tensor(number, at::kDouble).to(*dtype);
  return constant(value.to(at::kDouble).item<double>());
}

}  // namespace

bool is_number(const jit::Value* value) {
  return value->type()->isSubtypeOf(*c10::NumberType::get()) ||
         value->type()->isSubtypeOf(*c10::BoolType::get());
}

std::optional<ScalarType> promoted(const Facts& facts, const std::vector<jit::Value*>& operands) {
  at::native::ResultTypeState state;
  bool has_unknown_scalar = false;
  for (const jit::Value* operand : operands) {
    if (is_number(operand)) {
      promote(state.wrappedResult, dtype_of_number(operand));
      continue;
    }
    const Fact& fact = facts.of(operand);
    const bool is_scalar = fact.sizes && fact.sizes->empty();
    if (!fact.sizes || (!fact.dtype && !is_scalar)) {
      return std::nullopt;
    }
    if (fact.dtype) {
      promote(is_scalar ? state.zeroResult : state.dimResult, *fact.dtype);
    }
    has_unknown_scalar = has_unknown_scalar || !fact.dtype;
  }
  // A tensor without dimensions changes no float.
  if (has_unknown_scalar && !c10::isFloatingType(state.dimResult)) {
    return std::nullopt;
  }
  const ScalarType result = at::native::result_type(state);
  const bool is_default = c10::isFloatingType(result) && !c10::isFloatingType(state.dimResult) &&
                          !c10::isFloatingType(state.zeroResult);
  return result == ScalarType::Undefined || is_default ? std::nullopt : std::optional(result);
}

std::optional<ScalarType> asked_dtype(const Facts& facts, jit::Node* node,
                                      std::optional<ScalarType> otherwise) {
  if (Facts::argument(node, "dtype") == nullptr || facts.is_none(node, "dtype")) {
    return otherwise;
  }
  const std::optional<c10::IValue> dtype = facts.constant_argument(node, "dtype");
  return dtype && dtype->isInt() ? std::optional(static_cast<ScalarType>(dtype->toInt()))
                                 : std::nullopt;
}

bool holds_coordinates(std::optional<ScalarType> dtype) {
  return dtype == ScalarType::Long || dtype == ScalarType::Int || dtype == ScalarType::Float ||
         dtype == ScalarType::Double;
}

ExpressionPtr in_dtype(const ExpressionPtr& element, std::optional<ScalarType> dtype) {
  if (is_uniform(element)) {
    return number_in_dtype(element->number, dtype);
  }
  const bool is_choice = element && element->kind == Expression::Kind::select &&
                         is_uniform(element->a) && is_uniform(element->b);
  return is_choice ? select(element->condition, number_in_dtype(element->a->number, dtype),
                            number_in_dtype(element->b->number, dtype))
                   : nullptr;
}

}  // namespace warpfuse::rewriting
