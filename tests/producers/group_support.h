// Requests written by hand, ranks that ask in a given order, and what a sink was told.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "sim/producers/driver/coordinator.h"
#include "tests/numeric/operands.h"

namespace gradledger::testing {

using driver::Coordinator;
using driver::CoordinatorLimits;
using driver::GroupAnswer;
using driver::GroupCall;
using driver::GroupDtype;
using driver::GroupOperator;
using driver::GroupRequest;
using Bytes = std::vector<std::uint8_t>;

class RecordedGroup : public TraceSink {
 public:
  void collective(const CollectiveRecord& r) override { collectives.push_back(r); }
  void mismatch(const MismatchRecord& r) override { mismatches.push_back(r); }
  void deadlock(const DeadlockRecord& r) override { deadlocks.push_back(r); }

  std::vector<CollectiveRecord> collectives;
  std::vector<MismatchRecord> mismatches;
  std::vector<DeadlockRecord> deadlocks;
};

inline std::vector<std::uint32_t> all_of(std::uint32_t world) {
  std::vector<std::uint32_t> out(world);
  std::iota(out.begin(), out.end(), 0u);
  return out;
}

template <class T>
Bytes bytes_of(const std::vector<T>& values) {
  Bytes out(values.size() * sizeof(T));
  if (!out.empty()) std::memcpy(out.data(), values.data(), out.size());
  return out;
}

template <class T>
std::vector<T> values_of(const Bytes& bytes) {
  std::vector<T> out(bytes.size() / sizeof(T));
  if (!out.empty()) std::memcpy(out.data(), bytes.data(), out.size() * sizeof(T));
  return out;
}

// Data as the kind wants it, of zeros.
inline GroupRequest request(std::uint64_t id, std::vector<std::uint32_t> group, GroupCall kind, std::uint64_t numel, GroupDtype dtype = GroupDtype::fp32) {
  GroupRequest out;
  out.id = id;
  out.group = std::move(group);
  out.kind = kind;
  out.op = reduces(kind) ? GroupOperator::sum : GroupOperator::none;
  out.dtype = dtype;
  out.numel = numel;
  out.root = out.group.front();
  out.event = 0;
  if (kind != GroupCall::barrier && kind != GroupCall::receive) out.data.resize(numel * size_of(dtype));
  return out;
}

inline GroupRequest all_reduce(std::uint64_t id, std::vector<std::uint32_t> group, const std::vector<float>& values) {
  GroupRequest out = request(id, std::move(group), GroupCall::all_reduce, values.size());
  out.data = bytes_of(values);
  return out;
}

// One of each member, in the order given; what each rank is answered.
inline std::map<std::uint32_t, GroupAnswer> meet(Coordinator& coordinator, std::vector<std::pair<std::uint32_t, GroupRequest>> calls) {
  std::map<std::uint32_t, GroupAnswer> out;
  for (auto& [rank, call] : calls)
    for (GroupAnswer& answer : coordinator.ask(rank, std::move(call))) {
      const std::uint32_t to = answer.rank;
      EXPECT_TRUE(out.emplace(to, std::move(answer)).second) << "rank " << to << " is answered twice";
    }
  return out;
}

// Requests of ranks 0, 1, ... that form one group; the results by rank.
inline std::vector<Bytes> results(std::vector<GroupRequest> calls) {
  RecordedGroup sink;
  const auto world = static_cast<std::uint32_t>(calls.size());
  Coordinator coordinator(world, 1000, sink);
  std::vector<std::pair<std::uint32_t, GroupRequest>> asked;
  for (std::uint32_t r = 0; r < world; ++r) asked.emplace_back(r, std::move(calls[r]));
  std::vector<Bytes> out(world);
  const auto answers = meet(coordinator, std::move(asked));
  EXPECT_EQ(answers.size(), world);
  for (const auto& [rank, answer] : answers) {
    EXPECT_EQ(answer.kind, GroupAnswer::Kind::result) << answer.text;
    out[rank] = answer.data;
  }
  return out;
}

}  // namespace gradledger::testing
