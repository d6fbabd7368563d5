#include "common/counters.h"

#include <map>
#include <set>

namespace warpfuse {

constinit Counter* Counter::head_ = nullptr;

int64_t Counter::read(const std::string& name) {
  for (const Counter* counter = head_; counter != nullptr; counter = counter->next_) {
    if (name == counter->name()) {
      return counter->count_.load(std::memory_order_relaxed);
    }
  }
  return -1;
}

void Counter::reset_all() {
  for (Counter* counter = head_; counter != nullptr; counter = counter->next_) {
    counter->count_.store(0, std::memory_order_relaxed);
  }
}

std::string Counter::json() {
  std::map<std::string, int64_t> sorted;
  for (const Counter* counter = head_; counter != nullptr; counter = counter->next_) {
    sorted[counter->name()] = counter->count_.load(std::memory_order_relaxed);
  }
  std::string text = "{";
  for (const auto& [name, count] : sorted) {
    text += (text.size() > 1 ? ", \"" : "\"") + name + "\": " + std::to_string(count);
  }
  return text + "}";
}

std::string Counter::names() {
  std::set<std::string> sorted;
  for (const Counter* counter = head_; counter != nullptr; counter = counter->next_) {
    sorted.insert(counter->name());
  }
  std::string text;
  for (const auto& name : sorted) {
    text += (text.empty() ? "" : ", ") + name;
  }
  return text;
}

}  // namespace warpfuse
