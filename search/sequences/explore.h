// Every sequence of events up to a length, each state once.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "search/sequences/alphabet.h"
#include "search/campaign/campaign.h"
#include "search/sequences/exchange.h"

namespace gradledger::search {

struct ExploreOptions {
  Scenario world;  // whose script is not looked at
  std::vector<Letter> alphabet;
  std::uint32_t length = 7;  // events
  std::uint64_t states_max = 4'000'000;
  bool as_documented = false;  // sequences that leave the documentation are not tried
  bool merge_states = true;    // false: every sequence is run, to check the merging
  std::uint64_t seed = 0;
  std::uint32_t jobs = 1;
  Exchange* exchange = nullptr;                       // not owned: with the processes that share it; empty: this one is alone
  driver::DriverRanks* driver = nullptr;              // not owned: a real framework. Its states cannot be told apart, so every sequence is run; one job
  std::function<bool()> stop = [] { return false; };  // asked before each sequence, by every thread
  std::function<void(const struct ExploreResult&)> progress = [](const ExploreResult&) {};  // now and then
};

struct ExploreResult {
  std::uint64_t states = 1;         // different ones, the start among them
  std::uint64_t transitions = 0;    // events tried in a state
  std::uint64_t refused = 0;        // that the framework does not take there
  std::uint64_t undocumented = 0;   // that leave the documentation there, and were not asked for
  std::uint64_t merged = 0;         // that led to a state met before
  std::uint64_t not_run = 0;        // that a real framework, or its driver, does not take
  std::uint64_t mirrored = 0;       // not tried: the same with ranks renamed
  std::uint64_t wrong = 0;          // after which something is wrong; such a sequence is not continued
  std::uint32_t depth = 0;          // events of the longest sequence run
  bool complete = false;            // no sequence up to `length` is left
  bool symmetric = false;           // ranks could be renamed
  std::uint64_t elements = 0;       // compared with the books
  std::vector<Found> found;         // shortest first; none that a shorter one of its class is a part of
  std::vector<std::uint32_t> lost;  // processes that are gone: all above is of the levels before
  std::string why_lost;             // empty: none is
};

// By breadth: what is found is as short as it can be. Precondition: the world is admitted with a script of one step.
ExploreResult explore(const ExploreOptions& options);

}  // namespace gradledger::search
