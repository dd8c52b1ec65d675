// One rank on a device: its buffers, a CUDA stream for each of the program's, events, pinned host memory. Carries out commands.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "gpu/device_api.h"
#include "sim/execution/devices.h"

namespace gradledger::gpu {

// Used by one thread at a time. Errors of the device are std::runtime_error.
class DeviceRank {
 public:
  explicit DeviceRank(DeviceApi& api) : api_(api) {}
  ~DeviceRank();
  DeviceRank(const DeviceRank&) = delete;
  DeviceRank& operator=(const DeviceRank&) = delete;

  // As Devices::begin, enqueue and fetch, for this rank.
  void begin();
  void enqueue(const Command& command, std::span<const double> values);
  void fetch(Stream stream, std::span<const Operand> operands, std::vector<std::byte>& out);

  // What a collective needs: where an operand lies, and the stream. Work of the host is over by then.
  std::byte* address(const Operand& operand) { return at(operand); }
  StreamHandle stream(Stream stream);

 private:
  struct Buffer {
    std::byte* memory = nullptr;
    std::size_t bytes = 0;  // that lie at `memory`
    MemorySpace space = MemorySpace::device;
  };

  std::byte* at(const Operand& operand);
  void provide(BufferId buffer, std::size_t bytes, MemorySpace space);
  bool on_host(const Operand& operand) const;
  void poison_buffer(StreamHandle stream, BufferId buffer);
  EventHandle event(std::uint32_t index);
  void synchronize_all();
  void compute(const Command& command, std::span<const double> values, StreamHandle stream);
  void deposit(const Command& command, std::span<const double> values, StreamHandle stream);
  void add_squared_norm(const Command& command, StreamHandle stream);
  void update(const Command& command, StreamHandle stream);
  bool compute_on_host(const Command& command);
  std::byte* scratch(std::size_t bytes, StreamHandle stream);

  DeviceApi& api_;
  std::vector<Buffer> buffers_;
  std::array<StreamHandle, stream_count> streams_{};
  std::vector<EventHandle> events_;
  Buffer scratch_[stream_count];  // values of deposits, sums of norms; by stream, since streams run at the same time
};

}  // namespace gradledger::gpu
