// Norms that were compared with a bound in which a whole norm would hide. Silence about them would read as if they were right.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "sim/trace/observation.h"

namespace gradledger::ref {

class HiddenNorms {
 public:
  // What a rank reports in an event was compared with the norm that is due, not negative; bound: of their difference. Where it is as large as that
  // norm, a reported 0 would have passed.
  void compared(std::uint32_t event, std::uint32_t rank, StepFact fact, double due, double bound);
  // Of another pass, or of another judge: what any of them can tell is told.
  void add(const HiddenNorms& more);
  // One for each quantity of which something is hidden.
  std::vector<std::string> sentences() const;

 private:
  using Key = std::tuple<StepFact, std::uint32_t, std::uint32_t>;  // event, rank

  void note(const Key& key, bool hides);

  std::map<Key, bool> hidden_;  // whether none that compared it could tell
};

}  // namespace gradledger::ref
