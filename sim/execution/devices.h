// Where operations are carried out when it is not on the host executor's own memory: on GPUs, in this process or in others.
// The executor decides what is enqueued and when; a device decides nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/program/program.h"
#include "sim/trace/autograd.h"
#include "sim/trace/producer.h"

namespace gradledger {

// A slice with its dtype. numel 0 where the operation has no such operand.
struct Operand {
  BufferId buffer = no_index;
  std::uint64_t offset = 0;  // elements
  std::uint64_t numel = 0;
  Dtype dtype = Dtype::float32;
};

// An operation with all that its program says of it. A plain value: it can be sent.
struct Command {
  OpKind kind = OpKind::fill;
  Stream stream = Stream::host;
  bool flag = false;                        // deposit: accumulates; update: by the formula of the CPU
  MemorySpace space = MemorySpace::device;  // allocate
  CollectiveKind collective = CollectiveKind::all_reduce;
  ReduceOp op = ReduceOp::sum;
  std::uint32_t index = no_index;       // record, wait: number of the stream event
  std::uint32_t root = 0;               // collective: index in its group
  Operand target, source;               // update: parameter and gradient; collective: output and input; allocate: the buffer
  Operand first_moment, second_moment;  // adam
  double scalar = 0;                    // also the factor of a premultiplied sum
  numeric::AdamScalars scalars;         // updates
};

// The command of one of a program's operations: storage, arithmetic, update, record, wait or synchronize.
Command command_of(const Op& op, const Program& program);

// A rank is lost: its process ended, a deadline passed, a call of CUDA or NCCL failed. The run cannot go on.
class DeviceFailure final : public RunFailure {
 public:
  DeviceFailure(std::optional<std::uint32_t> rank, const std::string& what) : RunFailure(rank, rank ? "rank " + std::to_string(*rank) + ": " + what : what) {}
};

// One member of a collective.
struct Participant {
  std::uint32_t rank = 0;
  Command command;
};

// Makes the backward of a network on devices. Throws DeviceFailure where there is none.
using AutogradFactory = std::function<std::unique_ptr<Autograd>(const Scenario& scenario, const GradientSource& source)>;

// The devices of all ranks. Every call may throw DeviceFailure; after that only destruction is allowed.
class Devices {
 public:
  virtual ~Devices() = default;

  // Empty: the host runs the backward of networks.
  void set_autograd(AutogradFactory factory) { autograd_ = std::move(factory); }
  const AutogradFactory& autograd() const { return autograd_; }

  // A run starts: ranks 0 to world - 1, nothing allocated, no event recorded, all memory poison. Earlier work is over first.
  virtual void begin(std::uint32_t world) = 0;

  // Enqueues on the command's stream and returns. Operations on Stream::host are over when the rank's next command starts: waiting there
  // waits for the event, synchronizing for all streams of the rank. values: deposits alone, one an element.
  virtual void enqueue(std::uint32_t rank, const Command& command, std::span<const double> values) = 0;

  // All members of one group, in its order: the collective is enqueued on the stream of each.
  virtual void collective(std::span<const Participant> members) = 0;

  // What the operands hold once all that was enqueued on the stream is done, each from the next multiple of fetch_alignment on.
  virtual void fetch(std::uint32_t rank, Stream stream, std::span<const Operand> operands, std::vector<std::byte>& out) = 0;

 private:
  AutogradFactory autograd_;
};

inline std::size_t bytes_of(const Operand& operand) { return std::size_t{operand.numel} * size_of(operand.dtype); }

inline constexpr std::size_t fetch_alignment = 16;
inline std::size_t fetched_bytes(const Operand& operand) { return (bytes_of(operand) + fetch_alignment - 1) / fetch_alignment * fetch_alignment; }

}  // namespace gradledger
