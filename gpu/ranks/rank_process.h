// The process of one rank: connects to the coordinator, serves it, ends with it.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "gpu/ranks/thread_devices.h"

namespace gradledger::gpu {

// Where the coordinator is, and who this is.
struct RankAddress {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;
  std::uint32_t rank = 0;
  std::string token;
};

// Until the coordinator says that it is over. Returns what went wrong, which the coordinator was told too where it could be reached. A
// coordinator that is not there yet is waited for until the deadline.
std::optional<std::string> serve_rank(const RankAddress& address, const ApiFactory& make_api, std::chrono::milliseconds deadline);

}  // namespace gradledger::gpu
