#pragma once

#include "common/counters.h"

namespace warpfuse {

// The branches of the CPU kernel, which adds to them. They are defined in sample_tokens.cpp: their
// initialisation, compiled once per instruction set, would run on machines that lack it.
extern Counter bounded_rows;    // rows whose top_k lists the tokens of few blocks
extern Counter narrowed_lists;  // digits by which lists of keys became shorter

}  // namespace warpfuse
