#pragma once

#include <ATen/Parallel.h>

#include <thread>
#include <vector>

/// ATen's threads while this lives.
class Threads {
 public:
  explicit Threads(int count) : before_(at::get_num_threads()) { at::set_num_threads(count); }
  ~Threads() { at::set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

/// Calls body(0), body(1), .., each in a thread of its own, and waits for all.
template <typename Body>
void in_threads(int count, const Body& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&body, i] { body(i); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}
