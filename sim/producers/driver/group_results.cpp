#include "sim/producers/driver/group_results.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "sim/base/contract.h"
#include "sim/producers/driver/reduce.h"

namespace gradledger::driver {
namespace {

using Bytes = std::vector<std::uint8_t>;

bool any_has_parts(GroupMembers members) {
  return std::any_of(members.begin(), members.end(), [](const GroupRequest* call) { return !call->parts.empty(); });
}

// Elements that each member gives (all_gather), or that each is given.
std::vector<std::uint64_t> parts_of(const GroupRequest& call) {
  if (!call.parts.empty()) return call.parts;
  return std::vector<std::uint64_t>(call.group.size(), call.kind == GroupCall::all_gather ? call.numel : call.numel / call.group.size());
}

bool sizes_fit(GroupMembers members) {
  const GroupRequest& first = *members.front();
  const bool parts = any_has_parts(members);
  if (first.kind == GroupCall::all_to_all && parts) return true;
  return std::all_of(members.begin(), members.end(),
                     [&](const GroupRequest* call) { return first.kind == GroupCall::all_gather && parts ? parts_of(*call) == parts_of(first) : call->numel == first.numel; });
}

// Elements of the largest result.
std::uint64_t result_numel(GroupMembers members) {
  const GroupRequest& first = *members.front();
  std::vector<std::uint64_t> given(members.size(), 0);
  if (first.kind == GroupCall::all_to_all) {
    for (const GroupRequest* call : members) {
      const auto parts = parts_of(*call);
      for (std::size_t i = 0; i < given.size(); ++i) given[i] += parts[i];
    }
    return *std::max_element(given.begin(), given.end());
  }
  if (first.kind != GroupCall::all_gather && first.kind != GroupCall::gather) return first.numel;
  return std::accumulate(members.begin(), members.end(), std::uint64_t{0}, [](std::uint64_t sum, const GroupRequest* call) { return sum + call->numel; });
}

Bytes joined(GroupMembers members) {
  Bytes out;
  out.reserve(result_numel(members) * size_of(members.front()->dtype));
  for (const GroupRequest* call : members) out.insert(out.end(), call->data.begin(), call->data.end());
  return out;
}

void append(Bytes& out, const Bytes& data, std::uint64_t from, std::uint64_t bytes) {
  const auto begin = data.begin() + static_cast<std::ptrdiff_t>(from);
  out.insert(out.end(), begin, begin + static_cast<std::ptrdiff_t>(bytes));
}

// Each member's pieces of all inputs, in the order of those who sent them.
std::vector<Bytes> exchanged(GroupMembers members) {
  std::vector<Bytes> out(members.size());
  for (const GroupRequest* call : members) {
    std::uint64_t from = 0;
    const auto parts = parts_of(*call);
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::uint64_t bytes = parts[i] * size_of(call->dtype);
      append(out[i], call->data, from, bytes);
      from += bytes;
    }
  }
  return out;
}

}  // namespace

const char* misfit(GroupMembers members) {
  const GroupRequest& first = *members.front();
  const auto differ = [&](auto&& of) { return std::any_of(members.begin(), members.end(), [&](const GroupRequest* call) { return of(*call) != of(first); }); };
  const bool between_two = is_between_two(first.kind);
  if (!between_two && differ([](const GroupRequest& call) { return call.kind; })) return "kind";
  if (first.kind == GroupCall::barrier) return nullptr;
  if (differ([](const GroupRequest& call) { return call.dtype; })) return "dtype";
  if (!sizes_fit(members)) return "size";
  if (differ([](const GroupRequest& call) { return std::pair(call.op, call.factor); })) return "operator";
  if (has_root(first.kind) && differ([](const GroupRequest& call) { return call.root; })) return "root";
  return nullptr;
}

std::optional<std::string> refusal(GroupMembers members) {
  const GroupRequest& first = *members.front();
  const bool equal_parts = first.kind == GroupCall::reduce_scatter || first.kind == GroupCall::scatter || (first.kind == GroupCall::all_to_all && !any_has_parts(members));
  if (reduces(first.kind) && !is_reduction(first.op, first.dtype)) return std::string(name_of(first.op)) + " of " + std::string(name_of(first.dtype)) + " is no reduction";
  for (const GroupRequest* call : members) {
    const bool divides = call->numel % members.size() == 0;
    if (equal_parts && !divides) return std::to_string(call->numel) + " elements do not split evenly among " + std::to_string(members.size()) + " members";
    if (first.kind == GroupCall::all_to_all && call->parts.empty() && !divides) return "a member without parts has elements that do not split evenly";
    if (first.kind == GroupCall::reduce_scatter && std::any_of(call->parts.begin(), call->parts.end(), [&](std::uint64_t part) { return part * members.size() != call->numel; }))
      return "a reduce_scatter into parts of different sizes is not served";
  }
  if (result_numel(members) > group_bytes_max / size_of(first.dtype))
    return "the result is larger than a message; at most " + std::to_string(group_bytes_max) + " bytes are served";
  return std::nullopt;
}

std::vector<Bytes> results_of(GroupMembers members) {
  const GroupRequest& first = *members.front();
  std::vector<Bytes> out(members.size());
  switch (first.kind) {
    case GroupCall::all_reduce:
    case GroupCall::reduce:
    case GroupCall::reduce_scatter: return run_reduction(members);
    case GroupCall::all_gather: return std::vector<Bytes>(members.size(), joined(members));
    case GroupCall::broadcast: return std::vector<Bytes>(members.size(), members[first.index_of(first.root)]->data);
    case GroupCall::gather: out[first.index_of(first.root)] = joined(members); return out;
    case GroupCall::scatter: {
      const Bytes& all = members[first.index_of(first.root)]->data;
      for (std::size_t i = 0; i < out.size(); ++i) append(out[i], all, i * (all.size() / out.size()), all.size() / out.size());
      return out;
    }
    case GroupCall::all_to_all: return exchanged(members);
    case GroupCall::barrier: return out;
    case GroupCall::send: out[1] = first.data; return out;
    case GroupCall::receive: break;
  }
  expects(false, "a receive comes before its send");
  return out;
}

}  // namespace gradledger::driver
