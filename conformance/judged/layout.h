// What DeepSpeed's recorded buffers are and which elements of which parameters they hold, from their names and the configuration alone. A recording
// gives a name and a list of numbers; here is what the framework documents of it. No engine is asked.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/scenario/scenario.h"
#include "sim/scenario/timeline.h"
#include "sim/trace/role.h"

namespace gradledger::conform {

// Neighbouring elements of one parameter; of none: padding.
struct Stretch {
  std::int32_t parameter = -1;
  std::uint64_t offset = 0, numel = 0;

  bool operator==(const Stretch&) const = default;
};

struct BufferMeaning {
  Role role = Role::scratch;
  std::vector<Stretch> stretches;
  bool scaled = true;  // by the loss scale
  bool on_host = false;
};

// How ranks divide what they step, and what param.grad is for. Some releases leave a stage that was asked for aside.
enum class Division : std::uint8_t {
  none,            // every rank steps everything
  flat,            // ZeRO's flat partitions: stages 1 and 2
  bf16_optimizer,  // likewise; gradients are taken out of param.grad as they come
  sharded,         // stage 3: each parameter by itself
};

class RecordedLayout {
 public:
  RecordedLayout(const Scenario& scenario, const Timeline& timeline, Division division);

  // A buffer of `numel` elements after an event. Of a name that is not known, or with another number of elements than its name asks for: scratch.
  BufferMeaning of(const std::string& name, std::uint32_t rank, std::uint32_t event, std::size_t numel) const;

  // The elements whose weights the rank's own optimizer steps.
  std::vector<Stretch> stepped_by(std::uint32_t rank) const;

 private:
  std::vector<Stretch> whole() const;
  std::vector<Stretch> partition(std::uint32_t rank) const;
  std::vector<Stretch> owned_part(std::uint32_t parameter, std::uint32_t rank) const;
  std::vector<Stretch> shard(std::uint32_t parameter, std::uint32_t rank) const;
  std::vector<Stretch> sub_group(std::uint32_t group, std::uint32_t rank) const;
  Role role_of_gradient(std::uint32_t event) const;

  const Scenario& scenario_;
  const Timeline& timeline_;
  Division division_;
  std::uint64_t partition_ = 0;       // elements of a rank's flat partition, padding included
  std::vector<std::uint32_t> order_;  // of the parameters in the flat buffer
};

}  // namespace gradledger::conform
