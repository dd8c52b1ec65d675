// All ranks in this process, on the devices that it sees: the fast way. Each rank has a private copy of NCCL, and a thread for its calls.
//
// One thread enqueues everything else, and a collective only once all members are there: so whatever NCCL kernel runs, those of its peers
// are enqueued, and nothing that waits for the device can wait for what is still to be enqueued.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gpu/ranks/device_rank.h"
#include "gpu/ranks/nccl_rank.h"
#include "gpu/ranks/worker.h"

namespace gradledger::gpu {

// Makes the device of a rank.
using ApiFactory = std::function<std::unique_ptr<DeviceApi>(std::uint32_t rank)>;

// Kernels that wait for each other must all run at once: more ranks than this would share hardware queues.
inline constexpr std::uint32_t thread_ranks_max = 16;

class ThreadDevices final : public Devices {
 public:
  // library: as the loader takes it; each rank loads a copy of its file. deadline: of every call of NCCL.
  ThreadDevices(ApiFactory make_api, NcclLibrary library, std::chrono::milliseconds deadline);
  ~ThreadDevices() override;

  void begin(std::uint32_t world) override;
  void enqueue(std::uint32_t rank, const Command& command, std::span<const double> values) override;
  void collective(std::span<const Participant> members) override;
  void fetch(std::uint32_t rank, Stream stream, std::span<const Operand> operands, std::vector<std::byte>& out) override;

 private:
  struct Member {
    std::unique_ptr<DeviceApi> api;
    std::unique_ptr<DeviceRank> device;
    std::unique_ptr<NcclRank> nccl;
    Worker worker;
  };

  struct Place {
    StreamHandle stream;
    const std::byte* input;
    std::byte* output;
  };

  void add_member();
  void abandon();
  void introduce(const Group& group);
  // call(member number) on each one's thread; returns when all are over.
  template <class Call>
  void on_threads_of(const Group& group, const char* what, Call&& call);
  // Failures of the call are the rank's.
  template <class Call>
  void named(std::uint32_t rank, Call&& call);

  ApiFactory make_api_;
  NcclLibrary library_;
  std::chrono::milliseconds deadline_;
  std::vector<std::unique_ptr<Member>> members_;
  std::vector<Place> places_;  // of the collective under way
  bool failed_ = false;
};

}  // namespace gradledger::gpu
