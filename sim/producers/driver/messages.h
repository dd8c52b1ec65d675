// What a run says to a rank, and what it makes of the answers. Nothing of an answer is used before it has been checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "sim/base/result.h"
#include "sim/producers/driver/ranks.h"
#include "sim/scenario/scenario.h"
#include "sim/scenario/timeline.h"
#include "sim/trace/producer.h"

namespace gradledger::driver {

inline constexpr std::uint32_t protocol_version = 1;

// ---- to a rank --------------------------------------------------------------------------------------------------------------------------

// streams: ranks are to tell what they do on their streams.
nlohmann::json configure_message(const Scenario& scenario, const GradientSource& source, const RunOptions& options, std::uint64_t run, std::uint64_t seed, bool streams = false);

// What the protocol calls an event; a framework's own has its own name.
std::string event_name(const Event& event);

// Which of a rank's forwards and backwards belong together, since both ends of a pair are told of the data.
class RankScript {
 public:
  RankScript(const Scenario& scenario, const Timeline& timeline, std::uint32_t rank);

  // The events that the rank takes part in, in order.
  const std::vector<std::uint32_t>& events() const { return events_; }
  // With a backward's gradients, or those of the backward that a forward is of.
  nlohmann::json message(std::uint32_t event, const GradientSource& source) const;

 private:
  nlohmann::json arguments(std::uint32_t event) const;
  std::optional<std::uint32_t> ordinal_of(std::uint32_t event) const;
  // Of a forward whose backward this rank never runs: all that it has, in the order in which gradients would be ready.
  std::vector<std::uint32_t> all_uses() const;
  nlohmann::json gradients(std::optional<std::uint32_t> ordinal, const GradientSource& source) const;  // by parameter; zeros of a forward without a backward

  const Scenario& scenario_;
  const Timeline& timeline_;
  std::uint32_t rank_;
  std::vector<std::uint32_t> events_;
  std::map<std::uint32_t, std::uint32_t> backward_of_;  // event of a forward to the ordinal of its first backward
  std::map<std::uint32_t, std::uint32_t> forward_of_;   // event of a backward to that of its forward
};

// ---- from a rank ------------------------------------------------------------------------------------------------------------------------

struct ShownBuffer {
  std::string name;
  Role role = Role::scratch;
  MemorySpace space = MemorySpace::device;
  bool at_end = true;
  double scale = 1;
  std::vector<ObservedPiece> pieces;  // into data
  std::vector<std::uint8_t> data;
};  // moved, not copied: pieces point into the data

struct RaisedError {
  std::string type, text, traceback;
};

struct Done {
  std::uint32_t event = 0;
  std::optional<RaisedError> error;
  std::vector<ShownBuffer> buffers;
  std::vector<std::pair<StepFact, double>> facts;
  std::vector<std::vector<double>> errors;  // that pieces point to
};

// `message` is taken apart. Errors: keys, types, names or sizes that are not those of docs/driver-protocol.md.
Result<Done> done_from(nlohmann::json&& message, const Scenario& scenario);
Result<RaisedError> error_from(const nlohmann::json& error, const std::string& where);
Result<DriverHello> hello_from(const nlohmann::json& message);

// The end of an observation's life is the message's.
Observation observation_of(const ShownBuffer& buffer, std::uint32_t rank, std::uint32_t event);

// What a message of that type may have; an error where it has something else, or lacks what it must have.
std::optional<InputError> keys_problem(const nlohmann::json& message, const std::vector<std::string_view>& needed, const std::vector<std::string_view>& possible = {});

inline InputError wrong(const std::string& where, const std::string& what) { return {where, what}; }

}  // namespace gradledger::driver
