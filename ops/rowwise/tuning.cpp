#include "rowwise/tuning.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <utility>

namespace warpfuse {
namespace {

// Tables that have been in use; none is freed, since a call may still read it.
class Tables {
 public:
  const Tuning& current() const { return *current_.load(std::memory_order_acquire); }

  void set(Tuning tuning) {
    const std::scoped_lock lock(mutex_);
    auto known = std::ranges::find_if(tables_, [&](const auto& table) { return *table == tuning; });
    if (known == tables_.end()) {
      known = tables_.insert(known, std::make_unique<const Tuning>(std::move(tuning)));
    }
    current_.store(known->get(), std::memory_order_release);
  }

  static Tables& instance() {
    static auto* tables = new Tables;  // outlives every static destructor
    return *tables;
  }

 private:
  Tables() { set(default_tuning()); }

  std::mutex mutex_;  // of writers
  std::vector<std::unique_ptr<const Tuning>> tables_;
  std::atomic<const Tuning*> current_{nullptr};
};

}  // namespace

const char* to_string(Tier tier) {
  switch (tier) {
    case Tier::warp:
      return "warp";
    case Tier::chunk:
      return "chunk";
    case Tier::span:
      return "span";
    case Tier::block:
      return "block";
    case Tier::cluster:
      return "cluster";
    case Tier::stream:
      return "stream";
    case Tier::column:
      return "column";
    case Tier::naive:
      return "naive";
    case Tier::elements:
      return "elements";
    case Tier::tile:
      return "tile";
  }
  return "?";
}

std::span<const TuningEntry> Tuning::lines(Direction direction, int element_bytes) const {
  return std::ranges::equal_range(entries, std::pair(direction, element_bytes), {},
                                  &TuningEntry::sort_key);
}

const Tuning& tuning() { return Tables::instance().current(); }

void set_tuning(Tuning tuning) { Tables::instance().set(std::move(tuning)); }

}  // namespace warpfuse
