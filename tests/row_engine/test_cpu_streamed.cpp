// Results that are larger than the caches, which the CPU's kernels write with non-temporal stores
// where their pages are there.

#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>

#include <functional>

#include "support/compare.h"
#include "support/inputs.h"
#include "support/masks.h"
#include "support/operators.h"
#include "support/pch.h"
#include "support/poison.h"

namespace {

/// While this lives, each tensor is mapped anew, as malloc does with large ones.
class NewPages final : public c10::Allocator {
 public:
  NewPages() { c10::SetCPUAllocator(this); }
  ~NewPages() override { c10::SetCPUAllocator(previous_); }

  at::DataPtr allocate(size_t bytes) override {
    void* const pages =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    TORCH_CHECK(pages != MAP_FAILED, "mmap");
    return {pages, new Mapping{pages, bytes}, &unmap, at::kCPU};
  }
  void copy_data(void* destination, const void* source, size_t bytes) const override {
    default_copy_data(destination, source, bytes);
  }

 private:
  struct Mapping {
    void* pages;
    size_t bytes;
  };
  static void unmap(void* context) {
    const std::unique_ptr<Mapping> mapping(static_cast<Mapping*>(context));
    munmap(mapping->pages, mapping->bytes);
  }

  c10::Allocator* previous_ = c10::GetCPUAllocator();
};

template <typename Allocator, typename Call>
at::Tensor with_allocator(const Call& call) {
  const Allocator allocator;
  return call();
}

}  // namespace

TEST_CASE("results larger than the caches", "[softmax][masked][cpu_paths]") {
  // Row by row the same as in a tensor that the caches hold.
  const at::Tensor x = random_tensor({2100, 4096}, at::kFloat);
  const at::Tensor grad = random_tensor({2100, 4096}, at::kFloat);
  const auto check =
      [&](const char* operation, const std::string& counter, int64_t dim,
          const std::function<at::Tensor(const at::Tensor&, const at::Tensor&)>& call) {
        INFO(operation);
        const CounterDelta moved(counter);
        const Poison poison;
        const at::Tensor whole = call(x, grad);
        CHECK(moved() == 1);
        // Half of the rows at a time.
        for (const int64_t half : {0, 1}) {
          const int64_t size = x.size(1 - dim) / 2;
          const auto part = [&](const at::Tensor& t) {
            return t.narrow(1 - dim, half * size, size);
          };
          CHECK(bit_mismatch(part(whole), call(part(x), part(grad))) == "");
        }
        CHECK(moved() == 1);
      };
  for (const int64_t dim : {0, 1}) {
    check("softmax", "streamed.softmax", dim,
          [&](const at::Tensor& a, const at::Tensor&) { return warpfuse::softmax(a, dim); });
    check("log_softmax", "streamed.softmax", dim,
          [&](const at::Tensor& a, const at::Tensor&) { return warpfuse::log_softmax(a, dim); });
    for (const bool log : {false, true}) {
      check("backward", "streamed.softmax", dim, [&](const at::Tensor& a, const at::Tensor& g) {
        return log ? log_softmax_backward(g, a, dim) : softmax_backward(g, a, dim);
      });
    }
  }
  const at::Tensor lengths = at::randint(0, 4097, {2100}, at::kLong);
  const auto rules = [&](const at::Tensor& a) {  // a is x or some of its rows
    const int64_t first = a.storage_offset() / x.size(1);
    return MaskArguments{.scale = 0.5, .key_lengths = lengths.narrow(0, first, a.size(0))};
  };
  const auto batched = [](const at::Tensor& a) { return a.unsqueeze(1); };
  check("scaled_masked_softmax", "streamed.scaled_masked_softmax", 1,
        [&](const at::Tensor& a, const at::Tensor&) {
          return masked_softmax(batched(a), rules(a)).squeeze(1);
        });
  check("scaled_masked_softmax backward", "streamed.scaled_masked_softmax", 1,
        [&](const at::Tensor& a, const at::Tensor& g) {
          return masked_softmax_backward(batched(g), batched(a), rules(a)).squeeze(1);
        });
}

TEST_CASE(
    "results larger than the caches in new pages are written through the caches, with equal bits",
    "[softmax][masked][cpu_paths]") {
  const at::Tensor x = random_tensor({2100, 4096}, at::kFloat);
  const auto check = [&](const std::string& name, const auto& call) {
    INFO(name);
    const CounterDelta streamed("streamed." + name);
    const at::Tensor expected = with_allocator<Poison>(call);
    CHECK(streamed() == 1);
    CHECK(at::equal(with_allocator<NewPages>(call), expected));
    CHECK(streamed() == 1);
  };
  check("softmax", [&] { return warpfuse::softmax(x, -1); });
  const at::Tensor short_rows = x.view({-1, 128});  // whose gradients would fit registers
  check("softmax", [&] { return softmax_backward(short_rows, short_rows, -1); });
  check("scaled_masked_softmax", [&] { return masked_softmax(x, {.scale = 0.5}); });
}
