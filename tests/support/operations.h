#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

/// An operator in one of its forms, on a tensor like the one that the list was made for.
struct Operation {
  std::string name;
  std::function<at::Tensor(const at::Tensor& x)> run;
};

/// The operators on rows, forward and backward, in every form and by every algorithm that takes
/// `x`, [2, heads, queries, keys]. The other arguments are drawn here, and so is what a forward
/// pass keeps for a backward one.
std::vector<Operation> operations(const at::Tensor& x);
