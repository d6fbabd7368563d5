#pragma once

// Guards around what an operator allocates: memory it does not write shows, and so does memory it
// writes and does not own.

#include <ATen/ATen.h>

#include <cstdint>

/// While this lives, fresh memory is filled, so that an element which an operator leaves unwritten
/// cannot pass: on the CPU with `fill` in every byte (0xff is NaN in every floating dtype), on the
/// GPU with NaN by ATen's deterministic mode, whatever `fill` is.
///
/// On the CPU every allocation also lies between two guard zones of 512 bytes, checked when it is
/// freed; the test case fails where this ends after one was overwritten.
class Poison {
 public:
  explicit Poison(uint8_t fill = 0xff);
  ~Poison();
  Poison(const Poison&) = delete;
  Poison& operator=(const Poison&) = delete;

 private:
  bool deterministic_;
  bool warn_only_;
  bool fill_uninitialized_;
};

/// Guard zones found overwritten since the last call, for which no test case fails then.
int64_t take_damaged_guard_zones();
