// What the process of a rank does with what it is told. Knows no sockets.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "gpu/ranks/device_rank.h"
#include "gpu/ranks/nccl_rank.h"
#include "gpu/ranks/wire.h"

namespace gradledger::gpu {

class RankServer {
 public:
  RankServer(DeviceApi& api, NcclLibrary library, std::uint32_t rank) : api_(api), device_(std::make_unique<DeviceRank>(api)), nccl_(std::move(library)), rank_(rank) {}

  // Carries it out; the reply, where one is due. Failures of the device or of NCCL are std::runtime_error, frames out of place WireError.
  std::optional<Frame> handle(const Frame& frame);
  bool finished() const { return finished_; }

 private:
  void enqueue(Unpacker in);
  Frame fetch(Unpacker in);
  void join(Unpacker in);
  void collective(Unpacker in);

  DeviceApi& api_;
  std::unique_ptr<DeviceRank> device_;
  NcclRank nccl_;
  std::uint32_t rank_;
  bool finished_ = false;
};

}  // namespace gradledger::gpu
