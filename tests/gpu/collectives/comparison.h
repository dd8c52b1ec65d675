// One collective between ranks on devices, held against what the host predicts of it, bit for bit.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sim/execution/collectives.h"
#include "sim/execution/devices.h"
#include "tests/gpu/collectives/commands.h"
#include "tests/numeric/operands.h"

namespace gradledger::testing {

struct CollectiveCase {
  CollectiveKind kind = CollectiveKind::all_reduce;
  ReduceOp op = ReduceOp::sum;
  Dtype dtype = Dtype::float32;
  std::uint32_t numel = 1;  // of the output of a reduce_scatter, of the input of all others
  std::uint32_t root = 0;   // in the group
  bool special = false;     // NaNs, infinities, subnormals and zeros of both signs among the values
  bool in_place = false;    // all_reduce and reduce

  std::string text() const {
    return std::string(name_of(kind)) + " " + std::string(name_of(op)) + " of " + std::to_string(numel) + " " + std::string(name_of(dtype)) + (special ? ", special values" : "") +
           (in_place ? ", in place" : "");
  }
};

class CollectiveComparison {
 public:
  CollectiveComparison(Devices& devices, std::vector<std::uint32_t> group) : devices_(devices), group_(std::move(group)) {}

  // Runs it `repeats` times; every member's output must hold what the host computes, every time.
  void run(const CollectiveCase& c, int repeats = 1) {
    prepare(c);
    for (int repeat = 0; repeat < repeats; ++repeat) ASSERT_NO_FATAL_FAILURE(compare(c)) << c.text() << " between " << group_.size() << " ranks, run " << repeat;
  }
  std::uint64_t bytes_compared() const { return bytes_compared_; }

 private:
  std::uint32_t world() const { return static_cast<std::uint32_t>(group_.size()); }
  std::uint32_t input_numel(const CollectiveCase& c) const { return c.kind == CollectiveKind::reduce_scatter ? c.numel * world() : c.numel; }
  std::uint32_t output_numel(const CollectiveCase& c) const { return c.kind == CollectiveKind::all_gather ? c.numel * world() : c.numel; }

  std::vector<std::byte> fetch(std::uint32_t rank, BufferId buffer, std::uint32_t numel, Dtype dtype, Stream stream) {
    std::vector<std::byte> out;
    const Operand operand{buffer, 0, numel, dtype};
    devices_.fetch(rank, stream, {&operand, 1}, out);
    out.resize(bytes_of(operand));
    return out;
  }

  // Values of a few binades, so that sums round; 2^0 to 2^5 as the scale of a rank.
  static std::vector<double> values_of(const CollectiveCase& c, std::uint32_t numel, Random& random) {
    static const double specials[] = {NAN, INFINITY, -INFINITY, 0.0, -0.0, 0x1p-149, 0x1p-133, 0x1p-24, 65504.0, 0x1.fffffep127};
    std::vector<double> values(numel);
    const double scale = std::ldexp(1.0, static_cast<int>(random.below(6)));
    for (double& value : values) {
      value = static_cast<float>((static_cast<double>(random.next() >> 11) * 0x1p-52 - 1) * scale);
      if (c.special && random.below(4) == 0) value = specials[random.below(std::size(specials))];
    }
    return values;
  }

  void prepare(const CollectiveCase& c) {
    Random random(c.numel * 31 + world());
    devices_.begin(group_.back() + 1);
    inputs_.assign(world(), {});
    for (std::uint32_t i = 0; i < world(); ++i) {
      const std::uint32_t rank = group_[i];
      for (const auto& [buffer, numel] : {std::pair(0u, input_numel(c)), std::pair(1u, output_numel(c))})
        devices_.enqueue(rank, command(OpKind::allocate, buffer, numel, c.dtype), {});
      if (c.dtype == Dtype::uint8 || c.dtype == Dtype::float64) {
        Command fill = command(OpKind::fill, 0, input_numel(c), c.dtype);
        fill.scalar = c.dtype == Dtype::uint8 ? rank : 1.0 / 3 + rank;
        devices_.enqueue(rank, fill, {});
      } else {
        devices_.enqueue(rank, command(OpKind::deposit, 0, input_numel(c), c.dtype), values_of(c, input_numel(c), random));
      }
      inputs_[i] = fetch(rank, 0, input_numel(c), c.dtype, Stream::compute);
    }
  }

  // Ranks issue it on different streams.
  std::vector<Participant> participants(const CollectiveCase& c) {
    std::vector<Participant> members;
    for (std::uint32_t rank : group_) {
      Command call = command(OpKind::collective, 1, output_numel(c), c.dtype, rank % 2 == 0 ? Stream::communication : Stream::compute);
      call.collective = c.kind;
      call.op = c.op;
      call.root = c.root;
      call.source = c.in_place ? call.target : Operand{0, 0, input_numel(c), c.dtype};
      members.push_back({rank, call});
    }
    return members;
  }

  void compare(const CollectiveCase& c) {
    std::vector<std::vector<std::byte>> outputs(world());
    std::vector<CollectiveBuffers> buffers;
    for (std::uint32_t i = 0; i < world(); ++i) {
      outputs[i].assign(std::size_t{output_numel(c)} * size_of(c.dtype), std::byte{0xFF});
      if (c.in_place) outputs[i] = inputs_[i];
      set_output(c, group_[i]);
      buffers.push_back({inputs_[i].data(), outputs[i].data()});
    }
    const std::vector<Participant> members = participants(c);
    devices_.collective(members);
    run_collective(c.kind, c.op, c.dtype, input_numel(c), c.root, CollectiveArithmetic::nccl_ring, buffers);
    for (std::uint32_t i = 0; i < world(); ++i) {
      const std::vector<std::byte> observed = fetch(group_[i], 1, output_numel(c), c.dtype, members[i].command.stream);
      bytes_compared_ += observed.size();
      if (observed == outputs[i]) continue;
      const auto at = static_cast<std::size_t>(std::mismatch(outputs[i].begin(), outputs[i].end(), observed.begin()).first - outputs[i].begin()) / size_of(c.dtype);
      FAIL() << c.text() << ", rank " << group_[i] << ": element " << at << " is " << hex(observed, at, c.dtype) << ", predicted " << hex(outputs[i], at, c.dtype);
    }
  }

  // What the output holds before: rubbish that a result must overwrite, or the input.
  void set_output(const CollectiveCase& c, std::uint32_t rank) {
    if (c.in_place) {
      Command copy = command(OpKind::copy, 1, output_numel(c), c.dtype);
      copy.source = {0, 0, input_numel(c), c.dtype};
      devices_.enqueue(rank, copy, {});
    } else {
      devices_.enqueue(rank, command(OpKind::release, 1, output_numel(c), c.dtype), {});  // poison
    }
    devices_.enqueue(rank, command(OpKind::synchronize, no_index, 0, c.dtype, Stream::host), {});
  }

  static std::string hex(const std::vector<std::byte>& bytes, std::size_t element, Dtype dtype) {
    std::string text = "0x";
    for (std::size_t i = size_of(dtype); i-- > 0;)
      for (unsigned shift : {4u, 0u}) text += "0123456789abcdef"[std::to_integer<unsigned>(bytes[element * size_of(dtype) + i]) >> shift & 15];
    return text;
  }

  Devices& devices_;
  std::vector<std::uint32_t> group_;
  std::vector<std::vector<std::byte>> inputs_;
  std::uint64_t bytes_compared_ = 0;
};

}  // namespace gradledger::testing
