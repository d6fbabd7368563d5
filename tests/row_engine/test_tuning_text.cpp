// The tuning table as text: printed, parsed, refused.

#include <rowwise/tuning.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "support/pch.h"
#include "support/row_engine.h"

namespace {

using warpfuse::default_tuning;
using warpfuse::parse_tuning;
using warpfuse::Tuning;

/// "no error", or the message of what parse_tuning throws.
std::string parse_error(const std::string& text) {
  try {
    parse_tuning(text);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("a table is the text that it prints", "[tuning]") {
  const Tuning tuning = default_tuning();
  const std::string text = tuning.to_string();
  CHECK(parse_tuning(text) == tuning);
  CHECK(parse_tuning(text).to_string() == text);
  Tuning other = tuning;
  other.entries[0].threads = 32;
  CHECK_FALSE(other == tuning);
  CHECK(parse_tuning(other.to_string()) == other);
  other = tuning;
  other.cluster_blocks = 4;
  CHECK(parse_tuning(other.to_string()) == other);
}

TEST_CASE("comments, empty lines and spaces mean nothing; the last limit of a kind counts",
          "[tuning]") {
  const Tuning tuning =
      parse_tuning(std::string("# a comment\n\n  limit   shared_bytes 1\n") +
                   "limit shared_bytes 49152\nlimit cluster_blocks 2" + kLastEntries);
  CHECK(tuning.shared_bytes == 49152);
  CHECK(tuning.cluster_blocks == 2);
  CHECK(tuning.entries.size() == 12);
  CHECK(tuning == parse_tuning(tuning.to_string()));
}

TEST_CASE("a line that is no entry is refused with its number", "[tuning]") {
  const std::string kForm =
      "expected: forward|backward[_plain|_masked|_no_tensor|_rules|_tensor|_dropout|"
      "_dropout_first] bytes packs rows tier";
  const std::string kTiers = "the tier is warp, chunk, span, block, cluster, stream or column";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"sideways 4 256 * warp 128 8 1 0", kForm},
      {"forward", kForm},
      {"forward 4 256 * warp 128 8 1", kForm},
      {"forward 4 256 * warp 128 8 1 0 0", kForm},
      {"forward 3 256 * warp 128 8 1 0", "element bytes are 2, 4 or 8"},
      {"forward 4 0 * warp 128 8 1 0", "packs and rows are positive, or *"},
      {"forward 4 256 -1 warp 128 8 1 0", "packs and rows are positive, or *"},
      {"forward 4 many * warp 128 8 1 0", "not a number: many"},
      {"forward 4 256 1e3 warp 128 8 1 0", "not a number: 1e3"},
      {"forward 4 99999999999999999999 * warp 128 8 1 0", "not a number: 99999999999999999999"},
      {"forward 4 256 * warp few 8 1 0", "not a number: few"},
      {"forward 4.0 256 * warp 128 8 1 0", "not a number: 4.0"},
      {"forward 4 256 * block 128x 4 1 0", "not a number: 128x"},
      {"forward 4 256 * block 128 4, 1 0", "not a number: 4,"},
      {"forward 4 256 * block 128 4 1! 0", "not a number: 1!"},
      {"forward 4 256 * warp 96 8 1 0", "threads of the tier warp are a power of two"},
      {"forward 4 256 * tile 128 8 1 0", kTiers},
      {"forward 4 256 * naive 128 8 1 0", kTiers},
      {"forward 4 256 * warp 16 8 1 0", "threads are a multiple of 32 up to 256"},
      {"forward 4 256 * block 100 8 1 0", "threads are a multiple of 32 up to 1024"},
      {"forward 4 256 * warp 512 8 1 0", "threads are a multiple of 32 up to 256"},
      {"forward 4 256 * block 2048 4 1 0", "threads are a multiple of 32 up to 1024"},
      {"forward 2 256 * block 1024 8 1 1", "threads are a multiple of 32 up to 512"},
      {"backward 4 256 * block 1024 8 1 1", "threads are a multiple of 32 up to 512"},
      {"backward 4 256 * block 1024 0 1 1", "threads are a multiple of 32 up to 512"},
      {"backward 2 256 * cluster 544 0 2 1", "threads are a multiple of 32 up to 512"},
      {"forward 4 256 * stream 1024 0 0 0", "threads are a multiple of 32 up to 512"},
      {"forward 4 256 * column 1024 8 1 0", "threads are a multiple of 32 up to 512"},
      {"forward 4 256 * column 1024 0 1 0", "threads are a multiple of 32 up to 512"},
      {"forward 4 256 * warp 128 7 1 0",
       "no kernel has 7 packs a lane: there are 1, 2, 3, 4, 5, 6, 8"},
      {"forward 4 256 * warp 128 0 1 0",
       "no kernel has 0 packs a lane: there are 1, 2, 3, 4, 5, 6, 8"},
      {"backward 4 256 * warp 128 5 1 0", "no kernel has 5 packs a lane: there are 1, 2, 3, 4"},
      {"backward_dropout 4 256 * warp 128 8 1 0",
       "no kernel has 8 packs a lane: there are 1, 2, 3, 4"},
      {"forward_dropout 8 256 * warp 128 8 1 0", "no kernel has 8 packs a lane: there are 4"},
      {"forward 4 256 * block 128 3 1 0", "no kernel has 3 packs a lane: there are 0, 1, 2, 4, 8"},
      {"forward_dropout 2 256 * block 128 8 1 0",
       "no kernel has 8 packs a lane: there are 0, 1, 2, 4"},
      {"forward 8 256 * block 128 2 1 0", "no kernel has 2 packs a lane: there are 4"},
      {"forward 4 256 * block 128 1 1 1", "no kernel has 1 packs a lane: there are 0, 8"},
      {"forward 2 256 * cluster 128 2 2 1", "no kernel has 2 packs a lane: there are 0, 4"},
      {"backward 8 256 * block 128 0 1 1", "no kernel has 0 packs a lane: there are none"},
      {"forward 4 256 * cluster 128 16 2 0",
       "no kernel has 16 packs a lane: there are 0, 1, 2, 4, 8"},
      {"forward 4 256 * block 128 -4 1 1", "packs a lane are 0 or more"},
      {"forward 8 256 * block 128 0 1 0", "no kernel has 0 packs a lane: there are 4"},
      {"forward 4 256 * warp 128 8 2 0", "the tier warp has one block, nothing ahead"},
      {"forward 4 256 * warp 128 8 1 1", "the tier warp has one block, nothing ahead"},
      {"forward 4 256 * span 512 4 1 0", "threads are a multiple of 32 up to 256"},
      {"forward 4 256 * span 128 8 1 0", "no kernel has 8 packs a lane: there are 1, 4"},
      {"backward 2 256 * span 128 2 1 0", "no kernel has 2 packs a lane: there are 1, 4, 8"},
      {"forward 4 256 * span 128 4 2 0", "the tier span has one block, nothing ahead, and not 8"},
      {"forward 4 256 * span 128 4 1 1", "the tier span has one block, nothing ahead, and not 8"},
      {"forward 8 256 * span 128 4 1 0", "the tier span has one block, nothing ahead, and not 8"},
      {"forward 4 256 * block 128 4 2 0", "the tier block has one block"},
      {"forward 4 256 * cluster 128 4 1 0", "a cluster has 2, 4, 8 or 16 blocks"},
      {"forward 4 256 * cluster 128 4 3 0", "a cluster has 2, 4, 8 or 16 blocks"},
      {"forward 4 256 * cluster 128 4 32 0", "a cluster has 2, 4, 8 or 16 blocks"},
      {"forward 4 256 * stream 128 4 1 0", "the tier stream keeps no packs"},
      {"forward 8 256 * stream 128 0 4 1", "float64 has no cooperative kernel"},
      {"forward 4 256 * stream 128 0 -1 0", "blocks are 0 (as many as fit) to 1024"},
      {"forward 4 256 * stream 128 0 1025 0", "blocks are 0 (as many as fit) to 1024"},
      {"forward 4 256 * column 128 4 1 0", "the tier column keeps 0, 8 or 32 columns"},
      {"forward 4 256 * column 128 16 1 0", "the tier column keeps 0, 8 or 32 columns"},
      {"backward 8 256 * column 128 32 1 0", "the tier column keeps 0, 8 or 16 columns"},
      {"forward 4 256 * column 128 8 1 1", "tiles ahead keep 16 columns"},
      {"forward 4 256 * column 128 0 1 1", "tiles ahead keep 16 columns"},
      {"backward 4 256 * column 128 16 1 1", "tiles ahead keep 8 columns"},
      {"forward 4 256 * column 1024 16 1 1", "threads are a multiple of 32 up to 512"},
      {"forward 4 256 * column 128 8 0 0", "a tile has 1, 2, 4, 8 or 16 blocks"},
      {"forward 4 256 * column 128 8 12 0", "a tile has 1, 2, 4, 8 or 16 blocks"},
      {"forward 4 256 * column 512 0 4 0", "a tile that is read twice has one block"},
      {"forward 4 256 * block 128 4 1 2", "ahead is 0 or 1"},
      {"_dropout 4 256 * block 128 4 1 0", kForm},
      {"forward_dropout 4 256 * column 128 8 1 0",
       "lines of the tier column are for all functions"},
      {"forward_masked 4 256 * column 256 0 1 0", "lines of the tier column are for all functions"},
      {"forward 4 256 * column 256 -1 1 0", "packs a lane are 0 or more"},
      {"backward_dropout 4 256 * span 128 4 1 0", "lines for dropout have no tier span"},
      {"forward_dropout_first 2 256 * column 128 8 1 0",
       "lines of the tier column are for all functions"},
      {"forward_dropout_first 4 256 * chunk 64 40 1 0",
       "no function of this direction and size follows such lines"},
      {"backward_dropout_first 2 256 * stream 256 0 0 0",
       "no function of this direction and size follows such lines"},
      {"forward_dropout_plain 4 256 * warp 128 4 1 0", kForm},
      {"forward_plain_dropout 4 256 * warp 128 4 1 0", kForm},
      {"backward 4 16 * chunk 64 40 1 0", "the tier chunk has one block, nothing ahead, 20"},
      {"forward 8 16 * chunk 64 40 1 0", "the tier chunk has one block, nothing ahead, 40"},
      {"forward 4 256 * block 128 4 1 yes", "ahead is 0 or 1"},
      {"limit", "expected: limit shared_bytes N, or limit cluster_blocks 1..16"},
      {"limit registers 4", "expected: limit shared_bytes N"},
      {"limit shared_bytes -1", "expected: limit shared_bytes N"},
      {"limit shared_bytes much", "not a number: much"},
      {"limit shared_bytes 1000 7", "expected: limit shared_bytes N"},
      {"limit cluster_blocks 4 blocks", "expected: limit shared_bytes N"},
      {"limit cluster_blocks 0", "expected: limit shared_bytes N"},
      {"limit cluster_blocks 17", "expected: limit shared_bytes N"},
  };
  for (const auto& [line, reason] : cases) {
    const std::string got =
        parse_error("limit shared_bytes 1000\n# next\n\n" + line + kLastEntries);
    INFO(got);
    CHECK(got.rfind("line 4, \"" + line + "\": " + reason, 0) == 0);
  }
}

TEST_CASE("a table that leaves shapes without an entry is refused", "[tuning]") {
  CHECK(parse_error(kLastEntries) == "no error");
  CHECK(parse_error("").rfind("no entry for any shape", 0) == 0);
  std::istringstream lines(kLastEntries);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) {
      continue;
    }
    std::string without = kLastEntries;
    without.erase(without.find(line), line.size());
    const std::string named = line.substr(0, line.find(" *"));  // "forward 2"
    const bool stream = line.find("stream") != std::string::npos;
    INFO(line);
    CHECK(parse_error(without).rfind("no entry for any shape", 0) == 0);
    CHECK(parse_error(without).find(stream ? "stream" : "column") != std::string::npos);
    CHECK(parse_error(without).find(named) != std::string::npos);
    // One that is not for all shapes, or holds what may not fit, does not do.
    const std::string tier = stream ? " stream 512 0 0 0" : " column 512 0 1 0";
    CHECK(parse_error(without + named + " 1000 *" + tier) != "no error");
    CHECK(parse_error(without + named + " * 1000" + tier) != "no error");
    CHECK((!stream || parse_error(without + named + " * * stream 512 0 0 1") != "no error"));
    CHECK(parse_error(without + named +
                      (stream ? " * * block 1024 0 1 1" : " * * column 512 8 1 0")) != "no error");
    CHECK(parse_error(without + named +
                      (stream ? " * * stream 512 0 3 0" : " * * column 256 0 1 0")) == "no error");
  }
}

TEST_CASE("WARPFUSE_TEST_TUNING is a file or limits", "[tuning]") {
  const Tuning limited = parse_tuning(tuning_from("shared_bytes=101376,cluster_blocks=1"));
  CHECK(limited.shared_bytes == 101376);
  CHECK(limited.cluster_blocks == 1);
  CHECK((limited.entries == parse_tuning(library_tuning()).entries));
  CHECK_THROWS_AS(parse_tuning(tuning_from("shared_bits=7")), std::invalid_argument);
  CHECK_THROWS_AS(tuning_from("/no/such/file"), std::invalid_argument);
  const auto file =
      std::filesystem::temp_directory_path() / ("warpfuse_test_tuning-" + std::to_string(getpid()));
  std::ofstream(file) << kLastEntries;
  CHECK(tuning_from(file.string()) == kLastEntries);
  std::filesystem::remove(file);
  if (const char* asked = std::getenv("WARPFUSE_TEST_TUNING")) {
    CHECK(parse_tuning(tuning_from(asked)) == parse_tuning(library_tuning()));
  }
}
