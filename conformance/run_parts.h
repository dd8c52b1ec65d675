// What the readers of the two formats share.
#pragma once

#include "conformance/fields.h"
#include "conformance/run.h"

namespace gradledger::conform {

// As the framework's test program wrote it; and the compact form. Throw Unreadable.
RecordedRun read_recorder_format(const Field& line);
RecordedRun read_compact_format(const Field& line);

// World, sizes and the number of operations, each within its limit, and what a replay of them holds within numbers_max. Throws Unreadable.
struct OutlineFields {
  Field world, sizes, operations, micro_batches;
};
std::uint32_t read_outline(const OutlineFields& fields, RecordedRun& run);  // returns the number of micro-batches

bool same_gradients(const GivenValues& a, const GivenValues& b);  // bit for bit

// "fb 2"
std::string operation_text(const nlohmann::json& operation);

// Counts what a recording holds while it is read.
class NumberBudget {
 public:
  static constexpr std::uint64_t per_text = 16;  // numbers that take as much memory as a name and its bookkeeping

  // Throws Unreadable at `where`.
  void take(std::uint64_t elements, const Field& where) {
    const std::uint64_t cost = elements + per_text;
    if (cost > left_) where.fail("makes the recording hold more than " + std::to_string(numbers_max) + " numbers; it would need too much memory");
    left_ -= cost;
  }

 private:
  std::uint64_t left_ = numbers_max;
};

// [["all_reduce", 64, "bfloat16", {"operator": "sum", "group": [0, 1], "root": 0}]], the last of which a call may lack, under a key of a moment, which may lack it. Throws Unreadable.
std::optional<std::vector<RecordedCollective>> read_collectives(const Field& moment, const std::string& key, NumberBudget& budget);

// "loss_scale" and "overflow" of a moment; a moment may lack them. Throws Unreadable.
void read_step(const Field& moment, RecordedMoment& out);

// "optimizer" and "patch" of the outline, and "unfinished" of the line; all may be lacking. Throws Unreadable.
void read_additions(const Field& outline, const Field& line, RecordedRun& run);

// Every rank of the world is there, with a moment for each operation, or none after an error that ended it. Throws Unreadable.
void check_lengths(const RecordedRun& run, const Field& ranks);

}  // namespace gradledger::conform
