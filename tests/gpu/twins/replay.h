// A launch without a GPU: every thread of every block of the grid, one after the other, in an order of the test's choice.
#pragma once

#include <algorithm>
#include <numeric>

#include "gpu/pack.h"

namespace gradledger::testing {

// Visits 0 .. count-1 each once: in order, or in strides that are coprime to count.
struct Order {
  std::size_t stride = 1;

  template <class Visit>
  void visit(std::size_t count, Visit&& visit_one) const {
    std::size_t step = stride;
    while (std::gcd(step, count) != 1) ++step;
    std::size_t at = stride == 1 ? 0 : count - 1;
    for (std::size_t k = 0; k < count; ++k) {
      visit_one(at);
      at = (at + step) % count;
    }
  }
};

struct Replay {
  gpu::LaunchShape fixed{0, 0};  // zero: the shape that a launch takes
  Order order;

  // As gpu::Launch.
  template <class Operation>
  void operator()(const Operation& operation, std::size_t n) const {
    if (n == 0) return;
    const gpu::Packing packing = gpu::packing_of(operation, n);
    const gpu::LaunchShape shape = fixed.blocks ? fixed : gpu::launch_shape(packing.units);
    order.visit(std::size_t{shape.blocks} * shape.threads, [&](std::size_t at) {
      gpu::run_units(operation, packing, {at / shape.threads, shape.blocks, at % shape.threads, shape.threads});
    });
  }
};

// As gpu::LaunchPhased: all threads of a phase before the next. Shared memory starts as signalling rubbish.
struct ReplayPhased {
  Order order;

  template <class Program>
  void operator()(const Program& program, std::size_t blocks) const {
    order.visit(blocks, [&](std::size_t block) {
      typename Program::Shared shared;
      std::fill_n(reinterpret_cast<unsigned char*>(&shared), sizeof(shared), static_cast<unsigned char>(0xFF));  // NaNs
      for (unsigned phase = 0; phase < Program::phases; ++phase) order.visit(Program::threads, [&](std::size_t thread) { program.run(phase, block, thread, shared); });
    });
  }
};

}  // namespace gradledger::testing
