#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "rowwise/tuning.h"

namespace warpfuse {
namespace {

constexpr int64_t kAny = std::numeric_limits<int64_t>::max();
// Of a direction.
constexpr std::array<std::pair<TuningEntry::Functions, std::string_view>, 7> kSuffixes = {
    {{TuningEntry::Functions::plain, "_plain"},
     {TuningEntry::Functions::masked, "_masked"},
     {TuningEntry::Functions::no_tensor, "_no_tensor"},
     {TuningEntry::Functions::rules, "_rules"},
     {TuningEntry::Functions::tensor, "_tensor"},
     {TuningEntry::Functions::dropout, "_dropout"},
     {TuningEntry::Functions::dropout_first, "_dropout_first"}}};
constexpr std::array kTiers = {Tier::warp,    Tier::chunk,  Tier::span,  Tier::block,
                               Tier::cluster, Tier::stream, Tier::column};

std::string_view suffix_of(TuningEntry::Functions functions) {
  for (const auto& [known, suffix] : kSuffixes) {
    if (known == functions) {
      return suffix;
    }
  }
  return "";
}

// The kernels that the entry may ask for: those of any function that it is for.
LanePacks kernels_for(const TuningEntry& entry) {
  LanePacks found;
  for (const RowKind& kind : row_kinds(entry.direction, entry.element_bytes)) {
    if (entry.is_for(kind)) {
      const KernelSet set = kernel_set(kind);
      found = found | (entry.tier == Tier::warp   ? set.warp
                       : entry.tier == Tier::span ? set.span_warp | set.span_block
                                                  : set.block_packs(entry.ahead));
    }
  }
  return found;
}

// Why none of them has the entry's packs a lane, or an empty string.
std::string refused_packs(const TuningEntry& entry) {
  const LanePacks kernels = kernels_for(entry);
  const int least = entry.tier == Tier::warp ? 1 : 0;  // 0 of a warp: by an algorithm's name alone
  if (entry.lane_packs >= least && kernels.contains(entry.lane_packs)) {
    return "";
  }
  std::string reason = "no kernel has " + std::to_string(entry.lane_packs) + " packs a lane:";
  if (kernels.empty()) {
    return reason + " there are none";
  }
  const char* separator = " there are ";
  for (int n = least; n <= LanePacks::kMax; ++n) {
    if (kernels.contains(n)) {
      reason += separator + std::to_string(n);
      separator = ", ";
    }
  }
  return reason;
}

}  // namespace

std::string refusal(const TuningEntry& entry) {
  if (entry.element_bytes != 2 && entry.element_bytes != 4 && entry.element_bytes != 8) {
    return "element bytes are 2, 4 or 8";
  }
  if (entry.packs < 1 || entry.rows < 1) {
    return "packs and rows are positive, or *";
  }
  using enum TuningEntry::Functions;
  if (std::ranges::none_of(row_kinds(entry.direction, entry.element_bytes),
                           [&](const RowKind& kind) { return entry.is_for(kind); })) {
    return "no function of this direction and size follows such lines";
  }
  const bool draws = entry.functions == dropout || entry.functions == dropout_first;
  if (draws && entry.tier == Tier::span) {
    return "lines for dropout have no tier span";
  }
  if (entry.tier == Tier::warp && !std::has_single_bit(unsigned(entry.threads))) {
    return "threads of the tier warp are a power of two";  // as RowOrder's groups of rows are
  }
  if (entry.lane_packs < 0) {
    return "packs a lane are 0 or more";
  }
  const bool registers = entry.lane_packs > 0;
  // What the kernels' registers leave room for: 64 for each of 1024 threads.
  const int pack_bytes =
      entry.direction == Direction::forward && entry.element_bytes >= 4 ? 16 : 32;
  const bool rows = entry.tier == Tier::block || entry.tier == Tier::cluster;
  const bool at_most_512 = entry.tier == Tier::stream || entry.tier == Tier::column ||
                           (rows && !registers && entry.direction == Direction::backward) ||
                           (rows && entry.ahead && entry.lane_packs * pack_bytes > 128);
  const bool at_most_256 = entry.tier == Tier::warp || entry.tier == Tier::span;
  const int most = entry.tier == Tier::chunk ? 128 : at_most_256 ? 256 : at_most_512 ? 512 : 1024;
  if (entry.threads < 32 || entry.threads > most || entry.threads % 32 != 0) {
    return "threads are a multiple of 32 up to " + std::to_string(most);
  }
  const int slots = chunk_slots(entry.direction);
  switch (entry.tier) {
    case Tier::warp:
      return entry.blocks != 1 || entry.ahead ? "the tier warp has one block, nothing ahead"
                                              : refused_packs(entry);
    case Tier::chunk:
      return entry.element_bytes == 8 || entry.ahead || entry.blocks != 1 ||
                     entry.lane_packs != slots
                 ? "the tier chunk has one block, nothing ahead, " + std::to_string(slots) +
                       " elements a lane, and not 8 bytes"
                 : "";
    case Tier::span:
      return entry.element_bytes == 8 || entry.ahead || entry.blocks != 1
                 ? "the tier span has one block, nothing ahead, and not 8 bytes"
                 : refused_packs(entry);
    case Tier::block:
    case Tier::cluster:
      if (entry.tier == Tier::block && entry.blocks != 1) {
        return "the tier block has one block";
      }
      if (entry.tier == Tier::cluster &&
          (entry.blocks < 2 || entry.blocks > 16 || !std::has_single_bit(unsigned(entry.blocks)))) {
        return "a cluster has 2, 4, 8 or 16 blocks";
      }
      return refused_packs(entry);
    case Tier::stream:
      return registers                                 ? "the tier stream keeps no packs"
             : entry.ahead && entry.element_bytes == 8 ? "float64 has no cooperative kernel"
             : entry.blocks < 0 || entry.blocks > 1024 ? "blocks are 0 (as many as fit) to 1024"
                                                       : "";
    case Tier::column: {
      if (entry.functions != all) {
        return "lines of the tier column are for all functions";
      }
      const int ahead = kColumnAheadPacks / (entry.direction == Direction::forward ? 1 : 2);
      const int elements = column_elements(entry.direction, entry.element_bytes);
      return entry.ahead && entry.lane_packs != ahead
                 ? "tiles ahead keep " + std::to_string(ahead) + " columns"
             : !entry.ahead && registers && entry.lane_packs != kColumnPacks &&
                     entry.lane_packs != elements
                 ? "the tier column keeps 0, " + std::to_string(kColumnPacks) + " or " +
                       std::to_string(elements) + " columns"
             : entry.blocks < 1 || entry.blocks > 16 || !std::has_single_bit(unsigned(entry.blocks))
                 ? "a tile has 1, 2, 4, 8 or 16 blocks"
             : !registers && entry.blocks != 1 ? "a tile that is read twice has one block"
                                               : "";
    }
    case Tier::naive:
    case Tier::elements:
    case Tier::tile:
      break;
  }
  return "the tier is warp, chunk, span, block, cluster, stream or column";
}

namespace {

template <typename Number>
Number number(const std::string& word) {
  Number value = 0;
  const char* const end = word.data() + word.size();
  const auto [rest, error] = std::from_chars(word.data(), end, value);
  if (error != std::errc() || rest != end) {
    throw std::invalid_argument("not a number: " + word);
  }
  return value;
}

int64_t number_or_any(const std::string& word) {
  return word == "*" ? kAny : number<int64_t>(word);
}

std::string star(int64_t number) { return number == kAny ? "*" : std::to_string(number); }

// The entry in the words of a line.
TuningEntry parse_entry(std::istringstream& words, std::string direction) {
  TuningEntry entry{};
  for (const auto& [functions, suffix] : kSuffixes) {
    if (direction.ends_with(suffix)) {
      entry.functions = functions;
      direction.resize(direction.size() - suffix.size());
      break;
    }
  }
  std::string bytes, packs, rows, tier, threads, lane_packs, blocks, ahead, more;
  if (!(words >> bytes >> packs >> rows >> tier >> threads >> lane_packs >> blocks >> ahead) ||
      (words >> more) || (direction != "forward" && direction != "backward")) {
    throw std::invalid_argument(
        "expected: forward|backward[_plain|_masked|_no_tensor|_rules|_tensor|_dropout|"
        "_dropout_first] bytes packs rows tier threads lane_packs blocks ahead");
  }
  entry.direction = direction == "forward" ? Direction::forward : Direction::backward;
  entry.element_bytes = number<int>(bytes);
  entry.packs = number_or_any(packs);
  entry.rows = number_or_any(rows);
  const auto found =
      std::ranges::find_if(kTiers, [&](Tier known) { return to_string(known) == tier; });
  entry.tier = found == kTiers.end() ? Tier::naive : *found;
  entry.threads = number<int>(threads);
  entry.lane_packs = number<int>(lane_packs);
  entry.blocks = number<int>(blocks);
  entry.ahead = ahead == "1";
  const std::string reason = ahead != "0" && ahead != "1" ? "ahead is 0 or 1" : refusal(entry);
  if (!reason.empty()) {
    throw std::invalid_argument(reason);
  }
  return entry;
}

void parse_line(const std::string& line, Tuning& tuning) {
  std::istringstream words(line);
  std::string first;
  if (!(words >> first) || first[0] == '#') {
    return;
  }
  if (first == "limit") {
    std::string what, value, more;
    if (words >> what >> value && !(words >> more)) {
      const auto limit = number<int64_t>(value);
      if (what == "shared_bytes" && limit >= 0) {
        tuning.shared_bytes = static_cast<size_t>(limit);
        return;
      }
      if (what == "cluster_blocks" && limit >= 1 && limit <= 16) {
        tuning.cluster_blocks = static_cast<int>(limit);
        return;
      }
    }
    throw std::invalid_argument("expected: limit shared_bytes N, or limit cluster_blocks 1..16");
  }
  tuning.entries.push_back(parse_entry(words, first));
}

}  // namespace

std::string Tuning::to_string() const {
  std::ostringstream text;
  text << "limit shared_bytes " << shared_bytes << "\nlimit cluster_blocks " << cluster_blocks
       << "\n# direction bytes packs rows tier threads lane_packs blocks ahead\n";
  for (const TuningEntry& entry : entries) {
    text << (entry.direction == Direction::forward ? "forward" : "backward")
         << suffix_of(entry.functions) << ' ' << entry.element_bytes << ' ' << star(entry.packs)
         << ' ' << star(entry.rows) << ' ' << warpfuse::to_string(entry.tier) << ' '
         << entry.threads << ' ' << entry.lane_packs << ' ' << entry.blocks << ' ' << entry.ahead
         << '\n';
  }
  return text.str();
}

Tuning parse_tuning(const std::string& text) {
  // No limit, as a number that a line can have.
  Tuning tuning{size_t{std::numeric_limits<int64_t>::max()}, 16, {}};
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    try {
      parse_line(line, tuning);
    } catch (const std::exception& error) {
      throw std::invalid_argument("line " + std::to_string(number) + ", \"" + line +
                                  "\": " + error.what());
    }
  }
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    for (const int bytes : {2, 4, 8}) {
      // What holds nothing takes any shape, on any device.
      for (const Tier tier : {Tier::stream, Tier::column}) {
        const bool covered = std::ranges::any_of(tuning.entries, [&](const TuningEntry& entry) {
          return entry.direction == direction && entry.functions == TuningEntry::Functions::all &&
                 entry.element_bytes == bytes && entry.packs == kAny && entry.rows == kAny &&
                 entry.tier == tier && entry.lane_packs == 0 &&
                 (tier == Tier::stream ? !entry.ahead : entry.blocks == 1);
        });
        if (!covered) {
          throw std::invalid_argument(
              std::string("no entry for any shape: expected a last one of * packs, * rows, tier ") +
              to_string(tier) + ", 0 packs a lane for " +
              (direction == Direction::forward ? "forward " : "backward ") + std::to_string(bytes));
        }
      }
    }
  }
  std::ranges::stable_sort(tuning.entries, {}, &TuningEntry::sort_key);
  return tuning;
}

}  // namespace warpfuse
