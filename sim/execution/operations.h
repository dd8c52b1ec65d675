// Executes one operation of one rank, on the host or on a device: storage, arithmetic, optimizer steps. Order and collectives are not
// its concern.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/execution/devices.h"
#include "sim/execution/rank.h"
#include "sim/trace/producer.h"

namespace gradledger {

// What a quotient by a number of the program is. PyTorch's kernels for CUDA multiply by the number's reciprocal, rounded to fp32; those of a CPU divide.
enum class Division : std::uint8_t { quotient, reciprocal };

inline bool changes_storage(OpKind kind) { return kind <= OpKind::release; }
// Storage and arithmetic, not collectives, stream order or host work.
inline bool computes(OpKind kind) { return kind <= OpKind::adam; }

class Operations {
 public:
  // dry: allocations and releases are counted and reported; the rest does nothing. wide: of a program in fp64. devices: they compute, if any
  // are given.
  Operations(const GradientSource& source, TraceSink& sink, bool dry = false, bool wide = false, Devices* devices = nullptr)
      : source_(source), sink_(sink), dry_(dry), wide_(wide), devices_(devices) {}

  // `at`: the operation's place in the rank's program. members: ranks that it is executed for as well, without a memory of their own. Precondition: kind is one of
  // storage, arithmetic or update.
  void execute(const Op& op, std::uint32_t at, Rank& rank, std::uint32_t rank_number, std::span<const std::uint32_t> members = {});

  // Whether those who look at memory ask what each member allocates and frees, or once for each buffer.
  void show_memory_of_members(bool all) { all_memory_of_members_ = all; }

  // On the host's own memory, as of offload, a quotient stays one.
  void divide_by(Division division) { division_ = division; }

  // Whether every element was written; otherwise reports the first that was not, once for each buffer and event.
  bool require_written(Rank& rank, std::uint32_t rank_number, std::uint32_t event, Slice slice, const char* reader);

 private:
  void change_storage(const Op& op, std::uint32_t at, Rank& rank, std::uint32_t rank_number, std::span<const std::uint32_t> members);
  // Notes what is written after the operation, reports what it reads and nobody wrote, and computes, where that is not for a device.
  template <bool computes>
  void run(const Op& op, Rank& rank, std::uint32_t rank_number);
  void enqueue(const Op& op, Rank& rank, std::uint32_t rank_number);
  void scale(const Op& op, Storage& target) const;
  void values_of_deposit(const Op& op, std::uint32_t rank_number);
  void deposit(const Op& op, Storage& target, std::uint32_t rank_number);
  template <bool computes>
  static void copy(Slice target, Slice source, RankMemory& memory);
  // copied(to, from), chunk by chunk, of an interleaving or of its way back.
  template <class Copied>
  static void each_chunk(const Op& op, const Rank& rank, Copied&& copied);
  void copy_chunks_on_device(const Op& op, Rank& rank, std::uint32_t rank_number);
  static void square_root(Storage& target, Slice scalar);
  void update(const Op& op, Rank& rank);

  const GradientSource& source_;
  TraceSink& sink_;
  const bool dry_, wide_;
  Devices* const devices_;
  bool all_memory_of_members_ = false;
  Division division_ = Division::quotient;
  std::vector<double> values_;
  std::vector<std::byte> rounded_;
  std::vector<std::uint64_t> reported_;  // hashes of what was reported
};

}  // namespace gradledger
