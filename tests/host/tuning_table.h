#pragma once

#include <rowwise/tuning.h>

#include <string>

// `lines` before what every table ends with.
inline warpfuse::Tuning table_of(const std::string& lines) {
  std::string text = "limit shared_bytes 232448\nlimit cluster_blocks 16\n" + lines;
  for (const std::string start :
       {"forward 2", "forward 4", "forward 8", "backward 2", "backward 4", "backward 8"}) {
    text += start + " * * stream 256 0 0 0\n" + start + " * * column 512 0 1 0\n";
  }
  return warpfuse::parse_tuning(text);
}

// A table without a line of its own.
inline warpfuse::Tuning stripped() { return table_of(""); }

// What a large GPU has.
inline constexpr warpfuse::RowLimits kHopper{size_t{227} * 1024, 16, 132, true};
