// A collective as one rank of a real framework asks for it, and the answer: docs/driver-protocol.md, "The process group".
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/result.h"
#include "sim/trace/observation.h"

namespace gradledger::driver {

enum class GroupCall : std::uint8_t { all_reduce, reduce, reduce_scatter, all_gather, broadcast, gather, scatter, all_to_all, barrier, send, receive };
enum class GroupOperator : std::uint8_t { none, sum, avg, max, min, product, band, bor, bxor };
enum class GroupDtype : std::uint8_t { fp32, bf16, fp16, fp64, int8, uint8, int16, int32, int64, boolean, bytes };

inline constexpr int group_calls = 11, group_operators = 9, group_dtypes = 11;

std::string_view name_of(GroupCall call);
std::string_view name_of(GroupOperator op);  // none: ""
std::string_view name_of(GroupDtype dtype);
std::uint32_t size_of(GroupDtype dtype);

constexpr bool reduces(GroupCall call) { return call == GroupCall::all_reduce || call == GroupCall::reduce || call == GroupCall::reduce_scatter; }
constexpr bool has_root(GroupCall call) { return call == GroupCall::reduce || call == GroupCall::broadcast || call == GroupCall::gather || call == GroupCall::scatter; }
constexpr bool may_have_parts(GroupCall call) { return call == GroupCall::reduce_scatter || call == GroupCall::all_gather || call == GroupCall::all_to_all; }
constexpr bool is_float(GroupDtype dtype) { return dtype == GroupDtype::fp32 || dtype == GroupDtype::bf16 || dtype == GroupDtype::fp16 || dtype == GroupDtype::fp64; }
constexpr bool is_between_two(GroupCall call) { return call == GroupCall::send || call == GroupCall::receive; }

inline constexpr std::uint64_t group_bytes_max = (1ull << 30) - (64ull << 10);  // of an input and of a result: a frame holds it and the other keys
inline constexpr std::uint32_t group_tag_length_max = 256;
inline constexpr std::uint32_t group_site_length_max = 1024;

struct GroupRequest {
  std::uint64_t id = 0;              // the rank counts
  std::vector<std::uint32_t> group;  // ranks, sorted
  std::string tag;                   // tells groups of the same ranks apart
  GroupCall kind = GroupCall::all_reduce;
  GroupOperator op = GroupOperator::none;  // of a reduction
  double factor = 1;                       // of a sum of floats: of what each member has times this, as NCCL's PreMulSum
  GroupDtype dtype = GroupDtype::fp32;
  std::uint64_t numel = 0;           // of the input; receive: of what is expected; scatter: of what the root has for all members together
  std::uint32_t root = 0;            // a rank of the world
  std::vector<std::uint64_t> parts;  // elements by member, where they are not equal
  std::uint32_t peer = 0;            // of send and receive, as the next
  std::int64_t message_tag = 0;
  std::string site;                // file, line and function of the framework's source
  std::optional<Purpose> purpose;  // absent: purpose_of() decides
  std::int64_t event = -1;         // before the first
  bool asynchronous = false;
  std::vector<std::uint8_t> data;

  // Precondition: the rank is a member.
  std::uint32_t index_of(std::uint32_t rank) const;
};

struct GroupAnswer {
  enum class Kind : std::uint8_t { result, refused, go_on };

  std::uint32_t rank = 0;
  std::uint64_t id = 0;
  Kind kind = Kind::result;
  std::vector<std::uint8_t> data;  // of a result
  std::string type, text;          // of a refusal: "CollectiveMismatch", "CollectiveDeadlock" or "CollectiveRefused"
};

// What makes the request one that nobody can take part in, by itself: ranks, sizes, data. Errors name the key of the message.
std::optional<InputError> fault_of(const GroupRequest& request, std::uint32_t rank, std::uint32_t world_size);

// The request's own; where it names none: a reduction of one element of a model that has more is of a norm, of more elements of a gradient, and
// what only moves are parameters.
Purpose purpose_of(const GroupRequest& request, std::uint64_t model_numel);

// "all_reduce sum of 64 bf16 (gradient) at stage_1_and_2.py:1234 average_tensor". The group is named where it is not the whole world.
std::string call_text(const GroupRequest& request, std::uint32_t world_size, std::uint64_t model_numel);

}  // namespace gradledger::driver
