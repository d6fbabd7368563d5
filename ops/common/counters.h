#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace warpfuse {

/// A named count of calls, declared where the calls are made:
///
///     Counter cpu_calls("softmax.cpu");
///
/// All counters of the library form one list, so that they can be read and reset by name.
class Counter {
 public:
  explicit Counter(const char* name) noexcept : Counter(name, "") {}
  /// The calls of an operator on a backend: its name, without a leading _, and ".cpu" or ".cuda".
  Counter(const char* op, const char* backend) noexcept
      : name_(*op == '_' ? op + 1 : op), backend_(backend) {
    head_ = this;
  }
  Counter(const Counter&) = delete;
  Counter& operator=(const Counter&) = delete;

  void add() { count_.fetch_add(1, std::memory_order_relaxed); }

  /// The count of `name`, or -1 for an unknown name.
  static int64_t read(const std::string& name);
  static void reset_all();
  /// {"softmax.cpu": 3, ...}, sorted by name.
  static std::string json();
  /// "a, b, c", sorted: for error messages.
  static std::string names();

 private:
  std::string name() const { return std::string(name_) + backend_; }

  const char* name_;
  const char* backend_;
  std::atomic<int64_t> count_{0};
  Counter* next_ = head_;
  static Counter* head_;  // constant-initialised: counters of any file may be made before others
};

}  // namespace warpfuse
