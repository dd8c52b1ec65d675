// All orders of the streams of all ranks that matter to the values, for one scenario: what every real timing could have done.
//
// No order takes from a stream what it may do next, so all complete orders hold the same steps, and differ in the values alone: where two
// streams of a rank meet in memory. Only there does the search branch; states that are equal are followed once. A report says complete
// only where no state was left out: a race that is met n times can leave 2^n values or more, however few the choices are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "sim/base/limits.h"
#include "sim/execution/collectives.h"
#include "sim/frameworks/framework.h"
#include "sim/program/program.h"
#include "sim/scenario/scenario.h"
#include "sim/scenario/timeline.h"
#include "sim/trace/observation.h"

namespace gradledger::search {

struct StreamOrderOptions {
  std::uint64_t seed = 0;  // of the gradients
  std::uint64_t states_max = limits::stream_states_max;
  // Where there are more states than that, another search follows at most so many of those that differ in values alone, and yet another a
  // quarter of it. 0: none.
  std::uint32_t variants_max = limits::stream_variants_max;
  std::uint64_t bytes_max = limits::stream_bytes_max;   // of all that the search holds
  std::uint64_t program_bytes_max = ~std::uint64_t{0};  // as of ProducerOptions
  std::uint32_t witnesses_max = limits::stream_witnesses_max;
  bool reduce = true;  // false: every order, states deduplicated
  CollectiveArithmetic arithmetic = CollectiveArithmetic::nccl_ring;
  std::function<bool()> stop = [] { return false; };        // asked at each state; ends the search as its limits do
  EngineFactory factory;                                    // empty: those of the scenario's framework
  std::function<void(std::uint32_t rank, Program&)> alter;  // what a test breaks in the recorded programs, if anything
};

// One step: the stream's next operation, of a collective first its contribution, then its delivery.
struct StreamDecision {
  std::uint16_t rank = 0;
  Stream stream = Stream::host;

  bool operator==(const StreamDecision&) const = default;
};

// What a complete order leaves behind.
struct StreamOutcome {
  std::uint64_t values = 0;  // gradients as updates took them, values that the host read or reported; the final weights and moments
  std::uint64_t memory = 0;  // these, and the final contents of every buffer

  bool operator==(const StreamOutcome&) const = default;
};

struct StreamWitness {
  StreamOutcome outcome;
  std::vector<StreamDecision> decisions;
};

// The check of happens-before and the search, held against each other.
enum class StreamAgreement : std::uint8_t {
  agree,                    // no race and one outcome, or a race and several
  race_without_difference,  // a race is reported and every order leaves the same
  difference_without_race,
  unknown,  // the search was not complete, or no order was
};
std::string_view name_of(StreamAgreement agreement);

struct StreamOrders {
  std::uint64_t states = 0;       // distinct, at which there was a choice, the first and the last ones counted too
  std::uint64_t transitions = 0;  // between them
  std::uint64_t rank_states = 0;  // distinct states of single ranks that were computed
  std::uint64_t depth = 0;        // steps of the longest order
  std::uint64_t choices_max = 0;  // of a state
  bool complete = false;          // the frontier was exhausted, no state left out
  // Likewise, but for states that differ from those that were followed in values alone: wherever the streams of all ranks can stand, every
  // choice was taken. Outcomes are some of all then.
  bool every_choice = false;
  std::uint64_t left_out = 0;  // such states
  bool deadlock = false;       // then in every order
  bool mismatch = false;       // ranks meet with different calls: nothing was searched
  bool receives_pass = false;  // some rank receives from another stage of a pipeline, and waits for nobody here
  std::uint64_t outcomes = 0;  // distinct in memory
  std::uint64_t outcomes_in_values = 0;
  std::vector<StreamWitness> witnesses;  // one for each of the first outcomes, those that differ in values first
  std::vector<RaceRecord> races;         // by the happens-before check, of the same programs
  StreamAgreement agreement = StreamAgreement::unknown;
};

// Preconditions: the scenario was admitted and the timeline is its own. The programs are those of a linear run without snapshots, so that
// only what the framework waits for orders anything. Throws ProgramsTooLarge.
StreamOrders explore_streams(const Scenario& scenario, const Timeline& timeline, const StreamOrderOptions& options = {});

struct StreamEnd {
  StreamOutcome outcome;
  std::vector<std::vector<std::vector<std::byte>>> memory;  // of each buffer, by rank
};

// Where an order leads; nothing where a decision may not be taken, or where the order is not complete.
std::optional<StreamEnd> replay_streams(const Scenario& scenario, const Timeline& timeline, const StreamOrderOptions& options, std::span<const StreamDecision> decisions);

}  // namespace gradledger::search
