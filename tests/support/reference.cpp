#include "reference.h"

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

namespace {

struct Row {
  std::vector<long double> a;  // first input
  std::vector<long double> b;  // second input, of the backward formulas
  std::vector<long double> value;
  std::vector<long double> error;
};

/// Calls `formula` on each row along `dim` of `a` (and `b`) and gathers what it writes.
Expected along_dim(const at::Tensor& first, const at::Tensor* second, int64_t dim,
                   const std::function<void(Row&)>& formula) {
  const at::Tensor a = double_on_cpu(first.dim() == 0 ? first.unsqueeze(0) : first);
  const at::Tensor b =
      second ? double_on_cpu(second->dim() == 0 ? second->unsqueeze(0) : *second) : a;
  if (dim < 0) {
    dim += a.dim();
  }
  int64_t outer = 1;
  int64_t inner = 1;
  for (int64_t d = 0; d < a.dim(); ++d) {
    (d < dim ? outer : inner) *= d == dim ? 1 : a.size(d);
  }
  const int64_t columns = a.size(dim);
  Expected expected{at::empty_like(a), at::empty_like(a)};
  const auto* pa = a.const_data_ptr<double>();
  const auto* pb = b.const_data_ptr<double>();
  auto* values = expected.values.mutable_data_ptr<double>();
  auto* errors = expected.error.mutable_data_ptr<double>();
  Row row{std::vector<long double>(columns), std::vector<long double>(columns),
          std::vector<long double>(columns), std::vector<long double>(columns)};
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < inner; ++i) {
      const int64_t base = o * columns * inner + i;
      for (int64_t j = 0; j < columns; ++j) {
        row.a[j] = pa[base + j * inner];
        row.b[j] = pb[base + j * inner];
      }
      formula(row);
      for (int64_t j = 0; j < columns; ++j) {
        values[base + j * inner] = static_cast<double>(row.value[j]);
        errors[base + j * inner] = static_cast<double>(row.error[j]);
      }
    }
  }
  expected.values = expected.values.view(first.sizes());
  expected.error = expected.error.view(first.sizes());
  return expected;
}

long double largest(const std::vector<long double>& values) {
  long double maximum = -std::numeric_limits<long double>::infinity();
  for (const long double value : values) {
    if (value > maximum) {
      maximum = value;
    }
  }
  return maximum;
}

long double sum_of_exponentials(const std::vector<long double>& values, long double maximum) {
  long double sum = 0;
  for (const long double value : values) {
    sum += std::exp(value - maximum);
  }
  return sum;
}

/// A row of scaled_masked_softmax before its normalisation.
struct Scored {
  long double logit = 0;
  long double rounding = 0;  // error of the logit in epsilons: product, its scale, and the sum
  bool visible = false;      // to the rules and the boolean mask
  bool open = false;         // visible, and not shut by an additive mask of -inf
};

class MaskReader {
 public:
  MaskReader(const at::Tensor& scores, const MaskArguments& arguments)
      : arguments_(arguments), scores_(scores) {
    const auto host = [](const at::Tensor& tensor) { return tensor.detach().to(at::kCPU); };
    if (arguments.attn_mask) {
      boolean_ = arguments.attn_mask->scalar_type() == at::kBool;
      mask_ = host(*arguments.attn_mask).to(at::kDouble).expand(scores.sizes()).contiguous();
    }
    if (arguments.query_positions) {
      positions_ = host(*arguments.query_positions).to(at::kLong).contiguous();
    }
    if (arguments.key_lengths) {
      lengths_ = host(*arguments.key_lengths).to(at::kLong).contiguous();
    }
    queries_ = scores.size(-2);
    keys_ = scores.size(-1);
    heads_ = scores.dim() == 4 ? scores.size(1) : 1;
  }

  int64_t rows() const { return scores_.numel() / (keys_ == 0 ? 1 : keys_); }
  int64_t keys() const { return keys_; }

  Scored read(int64_t row, int64_t key, long double score) const {
    const int64_t query = row % queries_;
    const int64_t batch = row / queries_ / heads_;
    Scored scored;
    scored.logit = score * arguments_.scale;
    if (arguments_.scale != 1.0) {
      scored.rounding = 2 * std::abs(scored.logit);
    }
    scored.visible = seen_by_rules(batch, query, key);
    scored.open = scored.visible;
    if (mask_.defined()) {
      const double entry = mask_.const_data_ptr<double>()[row * keys_ + key];
      if (!boolean_) {
        scored.logit += entry;
        scored.rounding += std::abs(scored.logit);
        scored.open = scored.visible && entry != -std::numeric_limits<double>::infinity();
      } else if (entry == 0.0 && arguments_.masked_value) {
        scored.logit = *arguments_.masked_value;
        scored.rounding = std::abs(scored.logit);
      } else if (entry == 0.0) {
        scored.visible = scored.open = false;
      }
    }
    return scored;
  }

  /// Whether masked_value has replaced the score, which then has no gradient.
  bool filled(int64_t row, int64_t key) const {
    return mask_.defined() && boolean_ && arguments_.masked_value &&
           mask_.const_data_ptr<double>()[row * keys_ + key] == 0.0;
  }

 private:
  bool seen_by_rules(int64_t batch, int64_t query, int64_t key) const {
    int64_t own = query;  // the query's own key
    if (arguments_.causal == "lower_right") {
      own = query + keys_ - queries_;
    }
    if (arguments_.causal != "none" && key > own) {
      return false;
    }
    if (positions_.defined()) {
      own = positions_.const_data_ptr<int64_t>()[batch * queries_ + query];
      own = own < -1 ? -1 : (own > keys_ - 1 ? keys_ - 1 : own);
      if (key > own) {
        return false;
      }
    }
    if (lengths_.defined() && key >= lengths_.const_data_ptr<int64_t>()[batch]) {
      return false;
    }
    // own and key are small, the window need not be.
    return arguments_.window == 0 || (key <= own && own - key < arguments_.window);
  }

  const MaskArguments& arguments_;
  at::Tensor scores_;
  at::Tensor mask_;
  at::Tensor positions_;
  at::Tensor lengths_;
  bool boolean_ = false;
  int64_t queries_ = 0;
  int64_t keys_ = 0;
  int64_t heads_ = 1;
};

}  // namespace

Expected expected_softmax(const at::Tensor& self, int64_t dim) {
  return along_dim(self, nullptr, dim, [](Row& row) {
    const long double maximum = largest(row.a);
    const long double sum = sum_of_exponentials(row.a, maximum);
    for (size_t j = 0; j < row.a.size(); ++j) {
      row.value[j] = std::exp(row.a[j] - maximum) / sum;
      row.error[j] = row.value[j] * (maximum - row.a[j] + kBase);
    }
  });
}

Expected expected_log_softmax(const at::Tensor& self, int64_t dim) {
  return along_dim(self, nullptr, dim, [](Row& row) {
    const long double maximum = largest(row.a);
    const long double sum = sum_of_exponentials(row.a, maximum);
    for (size_t j = 0; j < row.a.size(); ++j) {
      row.value[j] = (row.a[j] - maximum) - std::log(sum);
      row.error[j] = maximum - row.a[j] + std::abs(row.value[j]) + kBase;
    }
  });
}

Expected expected_softmax_backward(const at::Tensor& grad_output, const at::Tensor& output,
                                   int64_t dim) {
  return along_dim(grad_output, &output, dim, [](Row& row) {
    long double dot = 0;
    long double size = 0;
    for (size_t j = 0; j < row.a.size(); ++j) {
      dot += row.a[j] * row.b[j];
      size += std::abs(row.a[j] * row.b[j]);
    }
    for (size_t j = 0; j < row.a.size(); ++j) {
      row.value[j] = row.b[j] * (row.a[j] - dot);
      row.error[j] = kBase * std::abs(row.b[j]) * (std::abs(row.a[j]) + size);
    }
  });
}

Expected expected_log_softmax_backward(const at::Tensor& grad_output, const at::Tensor& output,
                                       int64_t dim) {
  return along_dim(grad_output, &output, dim, [](Row& row) {
    long double sum = 0;
    long double size = 0;
    for (const long double grad : row.a) {
      sum += grad;
      size += std::abs(grad);
    }
    for (size_t j = 0; j < row.a.size(); ++j) {
      const long double probability = std::exp(row.b[j]);
      row.value[j] = row.a[j] - probability * sum;
      row.error[j] = kBase * std::abs(row.a[j]) + (kBase + std::abs(row.b[j])) * probability * size;
    }
  });
}

Expected expected_scaled_masked_softmax(const at::Tensor& scores, const MaskArguments& arguments) {
  const at::Tensor input = double_on_cpu(scores);
  const MaskReader reader(scores, arguments);
  const int64_t keys = reader.keys();
  Expected expected{at::zeros_like(input), at::zeros_like(input)};
  std::vector<Scored> row(keys);
  for (int64_t r = 0; r < (input.numel() ? reader.rows() : 0); ++r) {
    const double* source = input.const_data_ptr<double>() + r * keys;
    double* values = expected.values.mutable_data_ptr<double>() + r * keys;
    double* errors = expected.error.mutable_data_ptr<double>() + r * keys;
    long double maximum = -std::numeric_limits<long double>::infinity();
    bool any_open = false;
    for (int64_t j = 0; j < keys; ++j) {
      row[j] = reader.read(r, j, source[j]);
      any_open |= row[j].open;
      if (row[j].visible && row[j].logit > maximum) {
        maximum = row[j].logit;
      }
    }
    if (!any_open) {
      continue;  // zeros
    }
    long double sum = 0;
    for (int64_t j = 0; j < keys; ++j) {
      sum += row[j].visible ? std::exp(row[j].logit - maximum) : 0;
    }
    long double rounding = 0;  // of the logarithm of the sum
    for (int64_t j = 0; j < keys; ++j) {
      const long double weight = row[j].visible ? std::exp(row[j].logit - maximum) / sum : 0;
      rounding += weight > 0 ? weight * row[j].rounding : 0;
    }
    for (int64_t j = 0; j < keys; ++j) {
      if (row[j].visible) {
        const long double value = std::exp(row[j].logit - maximum) / sum;
        values[j] = static_cast<double>(value);
        errors[j] = value == 0 ? 0
                               : static_cast<double>(value * (maximum - row[j].logit +
                                                              row[j].rounding + rounding + kBase));
      }
    }
  }
  return expected;
}

Expected expected_scaled_masked_softmax_backward(const at::Tensor& grad_output,
                                                 const at::Tensor& output,
                                                 const MaskArguments& arguments) {
  Expected expected = expected_softmax_backward(grad_output, output, -1);
  const MaskReader reader(output, arguments);
  for (int64_t r = 0; r < (output.numel() ? reader.rows() : 0); ++r) {
    for (int64_t j = 0; j < reader.keys(); ++j) {
      const int64_t place = r * reader.keys() + j;
      const bool none = !reader.read(r, j, 0).visible || reader.filled(r, j);
      double& value = expected.values.mutable_data_ptr<double>()[place];
      double& error = expected.error.mutable_data_ptr<double>()[place];
      value = none ? 0.0 : value * arguments.scale;
      error = none ? 0.0 : error * std::abs(arguments.scale);
    }
  }
  return expected;
}

at::Tensor visible_keys(const at::Tensor& scores, const MaskArguments& arguments) {
  const MaskReader reader(scores, arguments);
  at::Tensor visible = at::zeros(scores.sizes(), at::kBool);
  for (int64_t r = 0; r < (scores.numel() ? reader.rows() : 0); ++r) {
    for (int64_t j = 0; j < reader.keys(); ++j) {
      visible.mutable_data_ptr<bool>()[r * reader.keys() + j] = reader.read(r, j, 0).visible;
    }
  }
  return visible;
}
