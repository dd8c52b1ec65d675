// A ring that is played step by step: every rank a list of primitive steps on slices of chunks, every pair of neighbours a bounded
// queue of messages. The arithmetic of a step is exact with one rounding (tests/numeric/reference.h).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <string>
#include <vector>

#include "sim/execution/collectives.h"
#include "tests/numeric/operands.h"

namespace gradledger::testing {

// ---- the ring -------------------------------------------------------------------------------------------------------------------

inline constexpr std::size_t nowhere = ~std::size_t{0};

// What a rank does with one slice: receive it or take its own input, combine the two, keep the result, pass it on.
struct Step {
  bool receives = false;
  std::size_t input = nowhere;  // combined with what was received, or sent if nothing was
  std::size_t output = nowhere;
  bool sends = false;
  std::size_t n = 0;
};

// All ranks of one collective: their data, and what each will do, slice by slice.
template <class T>
struct Ring {
  using Data = std::vector<T>;
  bool averages;
  std::vector<Data> inputs;
  std::vector<Data> outputs;
  std::vector<std::vector<Step>> steps;

  Ring(const std::vector<Data>& in, std::size_t output_numel, T canary, bool avg) : averages(avg), inputs(in), outputs(in.size(), Data(output_numel, canary)), steps(in.size()) {}

  std::size_t world() const { return inputs.size(); }

  // A chunk travels as two slices of whole 16-element groups; the empty ones are messages, too.
  void add(std::size_t rank, Step step) {
    const std::size_t slice = std::max<std::size_t>((step.n + 31) / 32 * 16, 1);
    for (std::size_t part = 0; part < 2; ++part) {
      Step piece = step;
      const std::size_t from = std::min(part * slice, step.n);
      piece.n = std::min(slice, step.n - from);
      if (step.input != nowhere) piece.input += from;
      if (step.output != nowhere) piece.output += from;
      steps[rank].push_back(piece);
    }
  }

  T first_hop(T x) const {
    if (!averages) return x;
    const reference::Format f = reference::format_of<T>;
    return from_bits<T>(reference::multiply(f, bits(x), scalar_bits()));
  }
  T later_hop(T x, T sum) const {
    const reference::Format f = reference::format_of<T>;
    if (averages) return from_bits<T>(reference::fused(f, bits(x), scalar_bits(), bits(sum)));
    return from_bits<T>(reference::add(f, bits(x), bits(sum)));
  }
  std::uint32_t scalar_bits() const {
    const auto as_float = static_cast<float>(1.0 / static_cast<double>(world()));
    return reference::convert(reference::format_of<T>, reference::fp32, bits(as_float));
  }

  // Any rank whose next step has its message and a free slot downstream may go; which one must not matter.
  void play(std::uint64_t seed) {
    constexpr std::size_t slots = 4;
    std::vector<std::deque<Data>> to(world());  // messages on their way to each rank
    std::vector<std::size_t> at(world(), 0);
    Random random(seed);
    for (;;) {
      std::vector<std::size_t> ready;
      bool done = true;
      for (std::size_t r = 0; r < world(); ++r) {
        if (at[r] == steps[r].size()) continue;
        done = false;
        const Step& step = steps[r][at[r]];
        if ((!step.receives || !to[r].empty()) && (!step.sends || to[(r + 1) % world()].size() < slots)) ready.push_back(r);
      }
      if (done) return;
      ASSERT_FALSE(ready.empty()) << "the ring is stuck";
      const std::size_t r = ready[random.below(ready.size())];
      perform(r, steps[r][at[r]++], to);
    }
  }

  void perform(std::size_t rank, const Step& step, std::vector<std::deque<Data>>& to) {
    Data message(step.n);
    if (step.receives) {
      message = std::move(to[rank].front());
      to[rank].pop_front();
      ASSERT_EQ(message.size(), step.n);
    }
    if (step.input != nowhere) {
      const T* own = inputs[rank].data() + step.input;
      for (std::size_t i = 0; i < step.n; ++i) message[i] = step.receives ? later_hop(own[i], message[i]) : first_hop(own[i]);
    }
    if (step.output != nowhere) std::copy(message.begin(), message.end(), outputs[rank].begin() + static_cast<std::ptrdiff_t>(step.output));
    if (step.sends) to[(rank + 1) % world()].push_back(std::move(message));
  }

  // One rank alone: its own data, through the first operator.
  void alone(std::size_t n) { add(0, {.input = 0, .output = 0, .n = n}); }

  // Reduce-scatter phase, then all-gather phase, loop after loop.
  void all_reduce(std::size_t n) {
    if (world() == 1) return alone(n);
    const std::size_t w = world();
    const std::size_t chunk_limit = (std::size_t{4} << 20) / 8 * 4 / 512 * 512 / sizeof(T);
    for (std::size_t begin = 0; begin < n; begin += w * chunk_limit) {
      const std::size_t left = n - begin;
      std::size_t chunk = chunk_limit;
      if (left < w * chunk_limit) {
        const std::size_t grain = 16 / sizeof(T);
        chunk = ((left + w - 1) / w + grain - 1) / grain * grain;
      }
      for (std::size_t r = 0; r < w; ++r) {
        const auto step = [&](std::size_t c, bool receives, bool reduces, bool keeps, bool sends) {
          const std::size_t offset = std::min(c * chunk, left);
          add(r, {receives, reduces ? begin + offset : nowhere, keeps ? begin + offset : nowhere, sends, std::min(chunk, left - offset)});
        };
        step((r + w - 1) % w, false, true, false, true);
        for (std::size_t j = 2; j < w; ++j) step((r + w - j) % w, true, true, false, true);
        step(r, true, true, true, true);
        for (std::size_t j = 1; j + 1 < w; ++j) step((r + w - j) % w, true, false, true, true);
        step((r + 1) % w, true, false, true, false);
      }
    }
  }

  void reduce(std::size_t n, std::size_t root) {
    if (world() == 1) return alone(n);
    const std::size_t w = world();
    for_chunks(n, 1, [&](std::size_t begin, std::size_t count) {
      for (std::size_t r = 0; r < w; ++r) add(r, {r != (root + 1) % w, begin, r == root ? begin : nowhere, r != root, count});
    });
  }

  void reduce_scatter(std::size_t n) {
    if (world() == 1) return alone(n);
    const std::size_t w = world();
    const std::size_t block = n / w;
    for_chunks(block, 4, [&](std::size_t begin, std::size_t count) {
      for (std::size_t r = 0; r < w; ++r) {
        add(r, {false, (r + w - 1) % w * block + begin, nowhere, true, count});
        for (std::size_t j = 2; j < w; ++j) add(r, {true, (r + w - j) % w * block + begin, nowhere, true, count});
        add(r, {true, r * block + begin, begin, false, count});
      }
    });
  }

  void all_gather(std::size_t n) {
    const std::size_t w = world();
    for_chunks(n, 4, [&](std::size_t begin, std::size_t count) {
      for (std::size_t r = 0; r < w; ++r) {
        add(r, {false, begin, r * n + begin, w > 1, count});
        for (std::size_t j = 1; j + 1 < w; ++j) add(r, {true, nowhere, (r + w - j) % w * n + begin, true, count});
        if (w > 1) add(r, {true, nowhere, (r + 1) % w * n + begin, false, count});
      }
    });
  }

  void broadcast(std::size_t n, std::size_t root) {
    const std::size_t w = world();
    for_chunks(n, 1, [&](std::size_t begin, std::size_t count) {
      for (std::size_t r = 0; r < w; ++r) add(r, {r != root, r == root ? begin : nowhere, begin, (r + 1) % w != root, count});
    });
  }

 private:
  // BUFFSIZE / 8 times `steps` a chunk; its size does not matter to these collectives.
  template <class Body>
  void for_chunks(std::size_t n, std::size_t buffer_steps, Body&& body) {
    const std::size_t chunk = (std::size_t{4} << 20) / 8 * buffer_steps / sizeof(T);
    for (std::size_t begin = 0; begin < n; begin += chunk) body(begin, std::min(chunk, n - begin));
  }
};

// ---- one case against run_collective --------------------------------------------------------------------------------------------

struct Case {
  CollectiveKind kind;
  ReduceOp op = ReduceOp::sum;
  std::size_t world = 1;
  std::size_t numel = 1;  // of the input
  std::uint32_t root = 0;
  bool in_place = false;

  std::size_t output_numel() const {
    if (kind == CollectiveKind::reduce_scatter) return numel / world;
    return kind == CollectiveKind::all_gather ? numel * world : numel;
  }
  std::string text() const {
    return std::string(name_of(kind)) + " " + std::string(name_of(op)) + " world " + std::to_string(world) + " numel " + std::to_string(numel) + " root " + std::to_string(root) +
           (in_place ? " in place" : "");
  }
};

// Values of one magnitude, so that each hop rounds, and at some elements infinities, canonical NaNs, subnormals and the largest.
template <class T>
std::vector<T> rank_input(std::size_t n, std::uint64_t seed) {
  const reference::Format f = reference::format_of<T>;
  const std::uint32_t leading = 1u << (f.digits - 1);
  const std::uint32_t one = (f.infinity() / 2) & ~(leading - 1);
  const std::uint32_t rare[] = {0, 1, leading - 1, leading, f.infinity() - 1, f.infinity(), f.nan()};
  Random random(seed);
  std::vector<T> data(n);
  for (T& x : data) {
    const std::uint64_t r = random.next();
    std::uint32_t magnitude = one - 2 * leading + static_cast<std::uint32_t>(r % (4 * leading));
    if ((r >> 40) % 64 == 0) magnitude = rare[(r >> 50) % std::size(rare)];
    x = from_bits<T>(magnitude == f.nan() ? magnitude : magnitude | (static_cast<std::uint32_t>(r >> 32) & f.sign_bit()));
  }
  return data;
}

template <class T>
std::vector<std::vector<T>> rank_inputs(std::size_t world, std::size_t n, std::uint64_t seed) {
  std::vector<std::vector<T>> inputs;
  for (std::size_t r = 0; r < world; ++r) inputs.push_back(rank_input<T>(n, seed * 1000 + r));
  return inputs;
}

// The outputs of run_collective; with an in-place case the input lies where the contract says, inside the output or around it.
template <class T>
std::vector<std::vector<T>> run(const Case& c, std::vector<std::vector<T>> inputs, T canary, CollectiveArithmetic arithmetic = CollectiveArithmetic::nccl_ring) {
  std::vector<std::vector<T>> outputs(c.world, std::vector<T>(c.output_numel(), canary));
  std::vector<CollectiveBuffers> buffers(c.world);
  const std::vector<std::vector<T>> before = inputs;
  for (std::size_t r = 0; r < c.world; ++r) {
    T* in = inputs[r].data();
    T* out = outputs[r].data();
    if (c.in_place && c.kind == CollectiveKind::reduce_scatter) out = in + r * c.output_numel();
    else if (c.in_place && c.kind == CollectiveKind::all_gather) in = out + r * c.numel;
    else if (c.in_place) out = in;
    if (in != inputs[r].data()) std::copy(inputs[r].begin(), inputs[r].end(), in);
    buffers[r] = {reinterpret_cast<const std::byte*>(in), reinterpret_cast<std::byte*>(out)};
  }
  run_collective(c.kind, c.op, dtype_of<T>, static_cast<std::uint32_t>(c.numel), c.root, arithmetic, buffers);
  for (std::size_t r = 0; r < c.world; ++r) {
    if (!c.in_place) {
      const auto same_bits = [](T a, T b) { return bits(a) == bits(b); };
      EXPECT_TRUE(std::equal(inputs[r].begin(), inputs[r].end(), before[r].begin(), same_bits)) << "an input was written";
    } else if (c.kind != CollectiveKind::all_gather) {
      const T* out = reinterpret_cast<const T*>(buffers[r].output);
      outputs[r].assign(out, out + c.output_numel());
    }
  }
  return outputs;
}

// The chain of one element, from owner + 1 around to the owner.
template <class T>
T chain(const Ring<T>& ring, std::size_t element, std::size_t owner) {
  const std::size_t w = ring.world();
  T sum = ring.first_hop(ring.inputs[(owner + 1) % w][element]);
  for (std::size_t hop = 2; hop <= w; ++hop) sum = ring.later_hop(ring.inputs[(owner + hop) % w][element], sum);
  return sum;
}

struct DtypeNames {
  template <class T>
  static std::string GetName(int) {
    return std::string(name_of(dtype_of<T>));
  }
};
using Dtypes = ::testing::Types<float, Bf16, Fp16>;

}  // namespace gradledger::testing
