// One rank's side of NCCL: its library, a communicator for each group of ranks that it has met.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "gpu/device_api.h"
#include "gpu/ranks/nccl_library.h"
#include "sim/execution/devices.h"

namespace gradledger::gpu {

using Group = std::vector<std::uint32_t>;  // ranks, sorted

// Used by one thread. Failures are std::runtime_error.
class NcclRank {
 public:
  explicit NcclRank(NcclLibrary library) : library_(std::move(library)) {}
  ~NcclRank();
  NcclRank(const NcclRank&) = delete;
  NcclRank& operator=(const NcclRank&) = delete;

  const NcclLibrary& library() const { return library_; }

  // A name for a group that its first member makes and all get.
  NcclUniqueId make_id() const;
  // Returns when all members have joined.
  void join(const Group& group, const NcclUniqueId& id, std::uint32_t rank);
  bool knows(const Group& group) const { return comms_.contains(group); }

  // Precondition: the group is known. Enqueues on the stream.
  void enqueue(const Group& group, const Command& command, const void* input, void* output, StreamHandle stream);

 private:
  NcclLibrary library_;
  std::map<Group, NcclComm> comms_;
};

// The host's name is frozen when a library makes its first communicator; this makes one of this rank alone, and ends it.
void freeze_host_name(const NcclLibrary& library, std::uint32_t rank);

}  // namespace gradledger::gpu
