// Runs words over an alphabet an event at a time. Ranks are values, so a word goes on from where the word before it, or its beginning, left them.
#pragma once

#include <cstdint>
#include <vector>

#include "search/campaign/screen.h"
#include "search/sequences/explore.h"
#include "search/sequences/words.h"
#include "sim/scenario/timeline.h"

namespace gradledger::search {

// What became of one event tried in one state.
struct Tried {
  enum class As : std::uint8_t { untried, refused, mirrored, undocumented, not_run, wrong, state };
  As as = As::untried;
  std::uint64_t alike = 0, elements = 0;
  StateKey key;
};

class Walker {
 public:
  // The options outlive it. symmetric: of words that differ by a renaming of ranks one is tried.
  Walker(const ExploreOptions& options, bool symmetric);

  // The letter behind the word. Precondition: the word came to a state, letter by letter. Fastest where words come in their order.
  Tried attempt(WordView word, std::uint8_t letter);

 private:
  void go_to(WordView word);
  Tried tried_here();
  void unroll();
  void make_room();
  void stand_at_end_of_path(Stand& stand) const;
  Look run(Stand& stand, const std::function<void(const Simulation&)>& after);
  void judge(Tried& tried);

  const ExploreOptions& options_;
  const bool symmetric_;
  std::unique_ptr<Calls> calls_;
  ref::ProbeRange range_;
  EngineFactory engines_;
  Scenario scenario_;  // with the script of the word at hand
  ScriptWriter writer_;
  Timeline timeline_;          // likewise; the engines of all ranks look at scenario and timeline
  Word word_;                  // the path, and the letter that is tried
  std::vector<Stand> stands_;  // after each letter of the path; of a real framework none
  Stand scratch_;
};

}  // namespace gradledger::search
