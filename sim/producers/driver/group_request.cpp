#include "sim/producers/driver/group_request.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "sim/base/contract.h"

namespace gradledger::driver {

std::string_view name_of(GroupCall call) {
  switch (call) {
    case GroupCall::all_reduce: return "all_reduce";
    case GroupCall::reduce: return "reduce";
    case GroupCall::reduce_scatter: return "reduce_scatter";
    case GroupCall::all_gather: return "all_gather";
    case GroupCall::broadcast: return "broadcast";
    case GroupCall::gather: return "gather";
    case GroupCall::scatter: return "scatter";
    case GroupCall::all_to_all: return "all_to_all";
    case GroupCall::barrier: return "barrier";
    case GroupCall::send: return "send";
    case GroupCall::receive: return "receive";
  }
  return "";
}

std::string_view name_of(GroupOperator op) {
  switch (op) {
    case GroupOperator::none: return "";
    case GroupOperator::sum: return "sum";
    case GroupOperator::avg: return "avg";
    case GroupOperator::max: return "max";
    case GroupOperator::min: return "min";
    case GroupOperator::product: return "product";
    case GroupOperator::band: return "band";
    case GroupOperator::bor: return "bor";
    case GroupOperator::bxor: return "bxor";
  }
  return "";
}

std::string_view name_of(GroupDtype dtype) {
  switch (dtype) {
    case GroupDtype::fp32: return "fp32";
    case GroupDtype::bf16: return "bf16";
    case GroupDtype::fp16: return "fp16";
    case GroupDtype::fp64: return "fp64";
    case GroupDtype::int8: return "int8";
    case GroupDtype::uint8: return "uint8";
    case GroupDtype::int16: return "int16";
    case GroupDtype::int32: return "int32";
    case GroupDtype::int64: return "int64";
    case GroupDtype::boolean: return "bool";
    case GroupDtype::bytes: return "bytes";
  }
  return "";
}

std::uint32_t size_of(GroupDtype dtype) {
  switch (dtype) {
    case GroupDtype::fp32: return 4;
    case GroupDtype::bf16: return 2;
    case GroupDtype::fp16: return 2;
    case GroupDtype::fp64: return 8;
    case GroupDtype::int8: return 1;
    case GroupDtype::uint8: return 1;
    case GroupDtype::int16: return 2;
    case GroupDtype::int32: return 4;
    case GroupDtype::int64: return 8;
    case GroupDtype::boolean: return 1;
    case GroupDtype::bytes: return 1;
  }
  return 0;
}

std::uint32_t GroupRequest::index_of(std::uint32_t rank) const {
  const auto at = std::lower_bound(group.begin(), group.end(), rank);
  expects(at != group.end() && *at == rank, "a rank is looked for in a group that it is no member of");
  return static_cast<std::uint32_t>(at - group.begin());
}

// ---- faults -------------------------------------------------------------------------------------------------------------------------------

namespace {

bool is_member(const GroupRequest& request, std::uint32_t rank) { return std::binary_search(request.group.begin(), request.group.end(), rank); }

std::optional<InputError> fault_of_ranks(const GroupRequest& request, std::uint32_t rank, std::uint32_t world_size) {
  const auto& group = request.group;
  if (group.empty() || group.size() > world_size || group.back() >= world_size) return InputError{"/group", "is no group of ranks below " + std::to_string(world_size)};
  if (std::adjacent_find(group.begin(), group.end(), std::greater_equal<>()) != group.end()) return InputError{"/group", "is not sorted, or names a rank twice"};
  if (!is_member(request, rank)) return InputError{"/group", "does not name rank " + std::to_string(rank) + ", which asks"};
  if (has_root(request.kind) && !is_member(request, request.root)) return InputError{"/root", "is no member of the group"};
  if (is_between_two(request.kind) && (!is_member(request, request.peer) || request.peer == rank)) return InputError{"/peer", "is no other member of the group"};
  return std::nullopt;
}

std::optional<InputError> fault_of_parts(const GroupRequest& request, std::uint32_t rank, std::uint64_t numel_max) {
  const auto& parts = request.parts;
  if (parts.empty()) return std::nullopt;
  if (!may_have_parts(request.kind)) return InputError{"/parts", "are nothing that a " + std::string(name_of(request.kind)) + " has"};
  if (parts.size() != request.group.size()) return InputError{"/parts", "are not as many as the group has members"};
  if (std::any_of(parts.begin(), parts.end(), [&](std::uint64_t part) { return part > numel_max; })) return InputError{"/parts", "are larger than a message"};
  const std::uint64_t total = std::accumulate(parts.begin(), parts.end(), std::uint64_t{0});
  if (request.kind == GroupCall::all_gather) {
    if (parts[request.index_of(rank)] != request.numel) return InputError{"/parts", "give rank " + std::to_string(rank) + " another size than its input has"};
  } else if (total != request.numel) {
    return InputError{"/parts", "do not add up to the elements of the input"};
  }
  return std::nullopt;
}

// Of a broadcast and a scatter only the root's data counts: the others may send theirs or leave it out.
std::optional<InputError> fault_of_data(const GroupRequest& request, std::uint32_t rank) {
  const bool gives = request.kind != GroupCall::barrier && request.kind != GroupCall::receive;
  const bool may_give = (request.kind == GroupCall::broadcast || request.kind == GroupCall::scatter) && request.root != rank;
  const std::uint64_t bytes = gives ? request.numel * size_of(request.dtype) : 0;
  if (request.data.size() == bytes || (may_give && request.data.empty())) return std::nullopt;
  return InputError{"/data", "has " + std::to_string(request.data.size()) + " bytes; expected " + std::to_string(bytes)};
}

}  // namespace

std::optional<InputError> fault_of(const GroupRequest& request, std::uint32_t rank, std::uint32_t world_size) {
  const std::uint64_t numel_max = group_bytes_max / size_of(request.dtype);
  if (request.tag.size() > group_tag_length_max) return InputError{"/tag", "is longer than " + std::to_string(group_tag_length_max) + " bytes"};
  if (request.site.size() > group_site_length_max) return InputError{"/site", "is longer than " + std::to_string(group_site_length_max) + " bytes"};
  if (auto fault = fault_of_ranks(request, rank, world_size)) return fault;
  if (reduces(request.kind) == (request.op == GroupOperator::none))
    return InputError{"/operator", reduces(request.kind) ? "is missing: a reduction has one" : "is given for what reduces nothing; expected \"\""};
  if (request.factor != 1 && (request.op != GroupOperator::sum || !is_float(request.dtype))) return InputError{"/factor", "is of sums of floats alone"};
  if (request.numel > numel_max) return InputError{"/numel", "is larger than a message; expected at most " + std::to_string(numel_max)};
  if (request.kind == GroupCall::barrier && request.numel != 0) return InputError{"/numel", "is not 0, but a barrier moves nothing"};
  if (auto fault = fault_of_parts(request, rank, numel_max)) return fault;
  return fault_of_data(request, rank);
}

// ---- what is said of a call -----------------------------------------------------------------------------------------------------------------

Purpose purpose_of(const GroupRequest& request, std::uint64_t model_numel) {
  if (request.purpose) return *request.purpose;
  if (!reduces(request.kind)) return Purpose::parameter;
  return request.numel <= 1 && model_numel > 1 ? Purpose::norm : Purpose::gradient;
}

std::string call_text(const GroupRequest& request, std::uint32_t world_size, std::uint64_t model_numel) {
  std::string out(name_of(request.kind));
  if (reduces(request.kind)) out += " " + std::string(name_of(request.op));
  if (request.factor != 1) out += fmt::format(" times {}", request.factor);
  if (request.kind != GroupCall::barrier) out += " of " + std::to_string(request.numel) + " " + std::string(name_of(request.dtype));
  if (has_root(request.kind)) out += " with root " + std::to_string(request.root);
  if (request.kind == GroupCall::send) out += " to rank " + std::to_string(request.peer);
  if (request.kind == GroupCall::receive) out += " from rank " + std::to_string(request.peer);
  if (request.group.size() < world_size) {
    out += " among ranks";
    for (std::size_t i = 0; i < request.group.size(); ++i) out += (i == 0 ? " " : ", ") + std::to_string(request.group[i]);
  }
  if (request.purpose || reduces(request.kind)) out += " (" + std::string(gradledger::name_of(purpose_of(request, model_numel))) + ")";
  return request.site.empty() ? out : out + " at " + request.site;
}

}  // namespace gradledger::driver
