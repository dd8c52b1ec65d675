// The process of one rank: connects to the coordinator, serves it, ends with it.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "gpu/ranks/thread_devices.h"
#include "sim/transport/address.h"

namespace gradledger::gpu {

// Where the coordinator is, and who this is.
struct RankAddress {
  transport::Address coordinator;
  std::uint32_t rank = 0;
  std::string secret;
};

// Until the coordinator says that it is over. Returns what went wrong, which the coordinator was told too where it could be reached. A
// coordinator that is not there yet is waited for until the deadline. Precondition: the secret has the form of one.
std::optional<std::string> serve_rank(const RankAddress& address, const ApiFactory& make_api, std::chrono::milliseconds deadline);

}  // namespace gradledger::gpu
