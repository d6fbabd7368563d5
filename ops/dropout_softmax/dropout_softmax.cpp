#include "dropout_softmax/dropout_softmax.h"

#include <warpfuse/softmax.h>

#include <memory>
#include <tuple>

#include "common/check.h"
#include "common/parallel_rows.h"
#include "common/random.h"
#include "core/calls.h"
#include "core/operator.h"
#include "rowwise/row_tensors.h"

namespace warpfuse {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

// --- operators --------------------------------------------------------------------------------

/// Output, statistics and rng.
using DropoutResult = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

struct DropoutForward : Calls<DropoutForward, DropoutResult(const at::Tensor&, int64_t, double,
                                                            bool, const OptionalTensor&)> {
  static constexpr const char* kName = "_dropout_softmax";

  template <typename Backend>
  static DropoutResult run(const at::Tensor& self, int64_t dim, double dropout_p,
                           bool softmax_first, const OptionalTensor& rng) {
    check_floating(kName, "self", self);
    dim = c10::maybe_wrap_dim(dim, self.dim());
    check_dropout_p(kName, dropout_p);
    check_rng(kName, rng, self);
    at::Tensor output = Backend::empty(self.sym_sizes(), self.options());
    at::Tensor statistics =
        Backend::empty(softmax_first ? statistics_sizes(self, dim) : c10::SymDimVector{0},
                       self.options().dtype(statistics_dtype(self)));
    at::Tensor rng_used = rng_to_return<Backend>(self, rng);
    if (Backend::computes(self)) {
      const at::Tensor x = contiguous_in(self, dim, output);
      const RowLayout layout = row_layout(x, dim);
      if (layout.inner != 1) {
        statistics.zero_();  // the kernels of another dimension than the last write none
      }
      at::Tensor held;
      Backend::launch(
          self, DropoutSoftmaxArguments{x.const_data_ptr(), output.mutable_data_ptr(),
                                        softmax_first ? statistics.mutable_data_ptr() : nullptr,
                                        to_dtype(x.scalar_type()), layout, softmax_first,
                                        Dropout(dropout_p), rng_source(rng, held, x.device()),
                                        rng_used.mutable_data_ptr<int64_t>()});
    }
    return {std::move(output), std::move(statistics), std::move(rng_used)};
  }
};

struct DropoutBackward {
  static constexpr const char* kName = "_dropout_softmax_backward";

  template <typename Backend>
  static at::Tensor run(const at::Tensor& grad_output, const at::Tensor& saved,
                        const at::Tensor& statistics, const at::Tensor& rng, int64_t dim,
                        double dropout_p, bool softmax_first) {
    check_floating(kName, "saved", saved);
    check_alike(kName, "grad_output", grad_output, saved);
    dim = c10::maybe_wrap_dim(dim, saved.dim());
    check_dropout_p(kName, dropout_p);
    check_rng(kName, rng, saved);
    if (softmax_first) {
      check_statistics(kName, statistics, saved, dim);
    }
    at::Tensor grad_input = Backend::empty(saved.sym_sizes(), saved.options());
    if (Backend::computes(saved)) {
      const auto [g, x] = contiguous_in(grad_output, saved, dim, grad_input);
      const at::Tensor row_statistics = statistics.contiguous();
      const at::Tensor state = rng.contiguous();
      Backend::launch(
          saved, DropoutSoftmaxBackwardArguments{
                     g.const_data_ptr(), x.const_data_ptr(),
                     softmax_first ? row_statistics.const_data_ptr() : nullptr,
                     grad_input.mutable_data_ptr(), to_dtype(x.scalar_type()), row_layout(x, dim),
                     softmax_first, Dropout(dropout_p), rng_source(state)});
    }
    return grad_input;
  }
};

struct Mask {
  static constexpr const char* kName = "_dropout_mask";

  template <typename Backend>
  static at::Tensor run(const at::Tensor& like, double dropout_p, const at::Tensor& rng) {
    check_tensor(kName, "like", like);
    check_dropout_p(kName, dropout_p);
    check_rng(kName, rng, like);
    at::Tensor mask = Backend::empty(like.sym_sizes(), like.options().dtype(at::kBool));
    if (Backend::computes(mask)) {
      const at::Tensor state = rng.contiguous();
      Backend::launch(mask, DropoutMaskArguments{mask.mutable_data_ptr<bool>(), mask.numel(),
                                                 Dropout(dropout_p), rng_source(state)});
    }
    return mask;
  }
};

WARPFUSE_OPERATORS(m) {
  register_operator<DropoutForward>(m);
  register_operator<DropoutBackward>(m);
  register_operator<Mask>(m);
}

// --- the public operators, on every backend ---------------------------------------------------

// They consist of others, each with its gradient.
template <bool kSoftmaxFirst>
at::Tensor dropout_and_softmax(const at::Tensor& self, int64_t dim, double dropout_p,
                               bool training) {
  constexpr const char* kOp = kSoftmaxFirst ? "softmax_dropout" : "dropout_softmax";
  check_floating(kOp, "self", self);
  c10::maybe_wrap_dim(dim, self.dim());
  check_dropout_p(kOp, dropout_p);
  return training && dropout_p > 0
             ? std::get<0>(DropoutForward::call(self, dim, dropout_p, kSoftmaxFirst, std::nullopt))
             : warpfuse::softmax(self, dim);
}

WARPFUSE_LIBRARY_IMPL(CompositeImplicitAutograd, m) {
  m.impl("dropout_softmax", TORCH_FN(dropout_and_softmax<false>));
  m.impl("softmax_dropout", TORCH_FN(dropout_and_softmax<true>));
}

// Under vmap too: their parts know what vmap's randomness means.
WARPFUSE_LIBRARY_IMPL(FuncTorchVmapMode, m) {
  m.impl("dropout_softmax", TORCH_FN(dropout_and_softmax<false>));
  m.impl("softmax_dropout", TORCH_FN(dropout_and_softmax<true>));
}

// --- the CPU ----------------------------------------------------------------------------------

Counter dropout_rows("cpu.dropout_rows");
Counter dropout_transposed("cpu.dropout_transposed");
Counter dropout_column("cpu.dropout_column");

// Elements of a task that drops or marks them one by one: whole Philox blocks, and cache lines.
constexpr int64_t kElementGranule = 1024;

template <typename Arguments, typename Kernel>
void over_rows(const Arguments& arguments, const Kernel& kernel) {
  (is_transposed(arguments) ? dropout_transposed : dropout_rows).add();
  parallel_layout_rows(arguments, kernel);
}

template <typename Arguments, typename Kernel>
void over_columns(const Arguments& arguments, const Kernel& kernel) {
  dropout_column.add();
  parallel_layout_rows(arguments, kernel);
}

template <typename Arguments, typename Kernel>
void over_elements(const Arguments& arguments, const Kernel& kernel) {
  parallel_rows(
      arguments.elements, 1, [&](int64_t begin, int64_t end) { kernel(arguments, begin, end); },
      kElementGranule);
}

template <typename Arguments>
void drop(const void* from, void* to, const Arguments& arguments, bool scaled) {
  const int64_t elements = arguments.layout.rows() * arguments.layout.columns;
  over_elements(DropElementsArguments{from, to, arguments.dtype, elements, arguments.dropout,
                                      arguments.rng, nullptr, scaled},
                drop_elements_cpu);
}

template <typename Arguments>
void softmax(const void* from, void* to, const Arguments& arguments, double scale) {
  over_columns(ScaledSoftmaxArguments{from, to, arguments.dtype, arguments.layout, scale},
               strided_softmax_cpu);
}

}  // namespace

void launch_cpu(const DropoutSoftmaxArguments& arguments) {
  arguments.rng.get().store(arguments.rng_used);
  if (arguments.layout.inner == 1) {
    over_rows(arguments, dropout_softmax_rows_cpu);
  } else if (arguments.softmax_first) {
    softmax(arguments.input, arguments.output, arguments, arguments.dropout.scale);
    drop(arguments.output, arguments.output, arguments, true);
  } else {
    drop(arguments.input, arguments.output, arguments, false);
    softmax(arguments.output, arguments.output, arguments, 1.0);
  }
}

void launch_cpu(const DropoutSoftmaxBackwardArguments& arguments) {
  if (arguments.layout.inner == 1) {
    over_rows(arguments, dropout_softmax_backward_rows_cpu);
  } else if (arguments.softmax_first) {
    const int64_t elements = arguments.layout.rows() * arguments.layout.columns;
    const auto dropped =
        std::make_unique_for_overwrite<std::byte[]>(elements * element_bytes(arguments.dtype));
    drop(arguments.grad_output, dropped.get(), arguments, false);
    softmax(arguments.saved, arguments.grad_input, arguments, 1.0);
    DropoutSoftmaxBackwardArguments undropped = arguments;
    undropped.grad_output = dropped.get();
    undropped.saved = arguments.grad_input;
    over_columns(undropped, strided_softmax_backward_cpu);
  } else {
    over_columns(arguments, strided_softmax_backward_cpu);
    drop(arguments.grad_input, arguments.grad_input, arguments, false);
  }
}

void launch_cpu(const DropoutMaskArguments& arguments) {
  over_elements(arguments, mark_elements_cpu);
}

}  // namespace warpfuse
