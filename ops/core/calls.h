#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <warpfuse/dispatch.h>

#include <array>
#include <cstddef>
#include <numeric>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

// Arguments that belong together, such as attention's masks, are one struct in C++, though a schema
// lists them one by one. The struct names their types in the schema, and gives them back:
//
//   struct Pair {
//     Pair(const at::Tensor& first, double second);
//     using Fields = std::tuple<const at::Tensor&, double>;
//     Fields fields() const;
//   };

namespace warpfuse {

template <typename T>
concept HasFields = requires { typename std::remove_cvref_t<T>::Fields; };

/// The types of T in a schema: T itself, or its Fields.
template <typename T>
struct SchemaTypes {
  using Tuple = std::tuple<T>;
};
template <HasFields T>
struct SchemaTypes<T> {
  using Tuple = std::remove_cvref_t<T>::Fields;
};

namespace detail {

template <typename Result, typename Tuple>
struct FunctionType;
template <typename Result, typename... Types>
struct FunctionType<Result, std::tuple<Types...>> {
  using Type = Result(Types...);
};

}  // namespace detail

/// Result(Args...) as the dispatcher knows it: without structs.
template <typename Result, typename... Args>
using SchemaSignature =
    detail::FunctionType<Result, decltype(std::tuple_cat(
                                     std::declval<typename SchemaTypes<Args>::Tuple>()...))>::Type;

/// Calls function(arguments...) with the fields of structs in place of structs.
template <typename Function, typename... Args>
decltype(auto) with_fields(const Function& function, const Args&... args) {
  if constexpr ((HasFields<Args> || ...)) {
    const auto fields = []<typename T>(const T& argument) {
      if constexpr (HasFields<T>) {
        return argument.fields();
      } else {
        return std::tuple<const T&>(argument);
      }
    };
    return std::apply(function, std::tuple_cat(fields(args)...));
  } else {
    return function(args...);
  }
}

namespace detail {

template <auto function, typename Signature, typename Flat>
struct Kernel;

template <auto function, typename Result, typename... Args, typename... Flat>
struct Kernel<function, Result (*)(Args...), Result(Flat...)> {
  static Result call(Flat... flat) {
    return with_structs(std::tuple<const Flat&...>(flat...), std::index_sequence_for<Args...>());
  }

 private:
  template <size_t... kArgs>
  static Result with_structs(const std::tuple<const Flat&...>& flat,
                             std::index_sequence<kArgs...>) {
    return function(argument<kArgs, Args>(flat)...);
  }

  /// The argument at place kArg; its fields follow those of the arguments before it.
  template <size_t kArg, typename Arg>
  static decltype(auto) argument(const std::tuple<const Flat&...>& flat) {
    constexpr std::array kCounts = {std::tuple_size_v<typename SchemaTypes<Args>::Tuple>...};
    constexpr size_t kFirst = std::accumulate(kCounts.begin(), kCounts.begin() + kArg, size_t{0});
    if constexpr (HasFields<Arg>) {
      return [&]<size_t... kFields>(std::index_sequence<kFields...>) {
        return std::remove_cvref_t<Arg>(std::get<kFirst + kFields>(flat)...);
      }(std::make_index_sequence<kCounts[kArg]>());
    } else {
      return std::get<kFirst>(flat);
    }
  }
};

template <typename Function>
struct Flat;
template <typename Result, typename... Args>
struct Flat<Result (*)(Args...)> {
  using Signature = SchemaSignature<Result, Args...>;
};

}  // namespace detail

/// `function` as the dispatcher can call it: without structs among its arguments.
template <auto function>
constexpr auto kernel_of =
    &detail::Kernel<function, decltype(function),
                    typename detail::Flat<decltype(function)>::Signature>::call;
template <typename Result, typename... Args, Result (*function)(Args...)>
  requires(!(HasFields<Args> || ...))
constexpr auto kernel_of<function> = function;

/// Calls of the operator Op::kName, whose handle is looked up once. Its signature may have structs
/// among its arguments.
template <typename Op, typename Signature>
class Calls;

template <typename Op, typename Result, typename... Args>
class Calls<Op, Result(Args...)> {
 public:
  static Result call(const Args&... args) {
    return with_fields([](const auto&... fields) { return handle().call(fields...); }, args...);
  }

  /// The operator's kernel for the first of `keys`.
  static Result redispatch(c10::DispatchKeySet keys, const Args&... args) {
    return with_fields([&](const auto&... fields) { return handle().redispatch(keys, fields...); },
                       args...);
  }

 private:
  using Schema = SchemaSignature<Result, Args...>;

  static const c10::TypedOperatorHandle<Schema>& handle() {
    static const auto handle =
        detail::find_operator<Schema>((std::string("warpfuse::") + Op::kName).c_str());
    return handle;
  }
};

}  // namespace warpfuse
