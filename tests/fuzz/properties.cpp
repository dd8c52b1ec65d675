#include "tests/fuzz/properties.h"

#include "sim/load.h"
#include "sim/scenario/json_reader.h"
#include "sim/scenario/parse.h"

namespace gradledger::fuzz {
namespace {

using nlohmann::json;

void check_error(const InputError& error) {
  ensures(!error.message.empty(), "every error says what is wrong");
  // Neither words nor place break a JSON report.
  static_cast<void>(json(error.text()).dump(-1, ' ', false, json::error_handler_t::replace));
  if (error.where.starts_with('/') && error.where.find(':') == std::string::npos) static_cast<void>(json::json_pointer(error.where));
}

void check_timeline(const Scenario& scenario, const json& document) {
  const auto timeline = make_timeline(scenario);
  ensures(timeline.ok(), "a scenario that was read has a timeline");
  ensures(timeline->steps >= 1 && timeline->micro_batches.size() == timeline->steps, "a timeline has its windows");
  ensures(timeline->dropped_at.size() == timeline->backwards.size(), "each backward is dropped somewhere or never");
  for (const std::string& pointer : timeline->pointers) ensures(document.contains(json::json_pointer(pointer)), "an event points into its document");
  for (const Event& event : timeline->events) ensures(event.item < timeline->pointers.size() && event.step < timeline->steps, "an event lies in a window");
  for (const Backward& backward : timeline->backwards)
    for (std::uint32_t r = 0; r < scenario.world_size; ++r)
      ensures(backward.micro_batch[r] == no_contribution || backward.micro_batch[r] < timeline->micro_batches[backward.step][r], "micro-batches are counted");
}

void check_round_trip(const Scenario& scenario) {
  const std::string text = serialise(scenario);
  const auto again = read_scenario(text, "/nowhere");
  ensures(again.ok(), "what was serialised can be read");
  ensures(*again == scenario, "what was serialised comes back as it was");
  ensures(serialise(*again) == text, "a scenario has one text");
}

}  // namespace

void check_scenario(std::string_view bytes) {
  const auto document = read_json(bytes);
  const auto scenario = read_scenario(bytes, "/nowhere");
  if (!document) {
    check_error(document.error());
    ensures(!scenario.ok(), "a scenario is JSON");  // its error may be another one: all of a file are told, and the first by its place
    return;
  }
  if (!scenario) return check_error(scenario.error());
  check_timeline(*scenario, *document);
  check_round_trip(*scenario);
}

void check_predicate(std::string_view bytes) {
  const auto predicate = Predicate::parse(bytes, "/here");
  if (!predicate) {
    ensures(predicate.error().where == "/here", "an error of a condition is at its place");
    return check_error(predicate.error());
  }
  ensures(predicate->text() == bytes, "a condition keeps its text");
  const std::string text(bytes);
  const auto twice = Predicate::parse(text + " and " + text, "/here");
  const auto always = Predicate::parse("", "/here");
  for (std::uint32_t micro_batches : {1u, 2u, 5u}) {
    for (std::uint32_t m = 0; m < micro_batches; ++m) {
      for (std::uint32_t r : {0u, 1u, 4294967295u}) {
        const Contribution c{m, r, m};
        ensures(always->holds(c, micro_batches), "no condition holds always");
        if (twice) ensures(twice->holds(c, micro_batches) == predicate->holds(c, micro_batches), "a condition twice is the condition");
      }
    }
  }
}

}  // namespace gradledger::fuzz
