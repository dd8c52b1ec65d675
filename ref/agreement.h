// Bitwise agreement of ranks on elements that they share, after reductions and after steps.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ref/slowest_rank.h"
#include "sim/trace/producer.h"

namespace gradledger::ref {

// The first element in which two ranks' snapshots of one buffer differ.
struct Divergence {
  std::uint32_t event = 0;
  bool at_end = true;
  std::string buffer;
  Role role = Role::scratch;
  std::uint32_t rank = 0, other_rank = 0;
  std::uint32_t parameter = 0;
  std::uint64_t element = 0;
  std::uint64_t bits = 0, other_bits = 0;
  double value = 0, other_value = 0;
  Dtype dtype = Dtype::float32;
  std::uint64_t elements = 0;  // that differ
};

class AgreementJudge final : public TraceSink {
 public:
  explicit AgreementJudge(const Timeline& timeline) : timeline_(timeline), world_(timeline.world_size), slowest_(timeline.world_size) {}

  void observe(const Observation& observation) override;
  void event_done(std::uint32_t rank, std::uint32_t event) override;

  const std::vector<Divergence>& divergences() const { return divergences_; }

 private:
  struct Stretch {
    std::uint32_t rank, parameter;
    std::uint64_t offset, numel;
    Dtype dtype;
    std::vector<std::byte> bytes;
  };
  struct Key {
    std::uint32_t event;
    bool at_end;
    std::string buffer;
    auto operator<=>(const Key&) const = default;
  };

  bool must_agree(const Observation& observation) const;
  void hold_against(const Observation& observation, const ObservedPiece& piece, const Stretch& stretch);

  const Timeline& timeline_;
  std::uint32_t world_;
  SlowestRank slowest_;
  std::map<Key, std::vector<Stretch>> waiting_;  // dropped once every rank is past the event
  std::vector<Divergence> divergences_;
};

}  // namespace gradledger::ref
