// Holds an accounting against the bytes that a scenario expects.
#include <fmt/format.h>

#include "ref/facts.h"
#include "sim/scenario/json_reader.h"
#include "verbs/expectations.h"
#include "verbs/expected_values.h"

namespace gradledger::verbs {
namespace {

using report::Problem;
using report::unmet_expectation;

bool expects_bytes(const Expect& expect) {
  for (const auto& [purpose, expected] : expect.collectives)
    if (expected.bytes_per_step || expected.at_most_bytes_per_step) return true;
  return !expect.memory.empty();
}

std::optional<Purpose> purpose_named(const std::string& name) {
  for (Purpose purpose : {Purpose::gradient, Purpose::norm, Purpose::overflow, Purpose::parameter, Purpose::user, Purpose::control})
    if (name_of(purpose) == name) return purpose;
  return std::nullopt;
}

class BytesMatcher {
 public:
  BytesMatcher(const Loaded& loaded, const Accounting& accounting) : expect_(loaded.scenario.expect), accounting_(accounting) {}

  std::vector<Problem> run() {
    if (accounting_.windows_closed == 0 && expects_bytes(expect_)) return {{"no window is closed by a step, so there is nothing to count", unmet_expectation, "/script"}};
    for (const auto& [purpose, expected] : expect_.collectives) payload(purpose, expected);
    for (const ExpectedMemory& expected : expect_.memory) memory(expected);
    return std::move(out_);
  }

 private:
  void add(const std::string& pointer, std::string text) { out_.emplace_back(std::move(text), unmet_expectation, pointer); }

  // The first window and rank that differs, of each expectation.
  void payload(const std::string& name, const ExpectedCollectives& expected) {
    const auto purpose = purpose_named(name);
    expects(purpose.has_value(), "the schema names the purposes");
    const std::string here = "/expect/collectives/" + pointer_token(name);
    for (std::uint32_t r = 0; r < accounting_.ranks.size(); ++r)
      for (std::uint32_t step = 0; step < accounting_.windows_closed; ++step) {
        const std::uint64_t bytes = accounting_.ranks[r].windows[step].total(*purpose).bytes;
        const std::string what = fmt::format("rank {} sends {} bytes in {} collectives in step {}", r, bytes, name, step);
        if (expected.bytes_per_step && bytes != *expected.bytes_per_step) return add(here, fmt::format("{}, expected {}", what, *expected.bytes_per_step));
        if (expected.at_most_bytes_per_step && bytes > *expected.at_most_bytes_per_step)
          return add(here, fmt::format("{}, expected at most {}", what, *expected.at_most_bytes_per_step));
      }
  }

  void memory(const ExpectedMemory& expected) {
    const auto kind = memory_kind_named(expected.of);
    expects(kind.has_value(), "the schema names what memory is for");
    const std::size_t space = expected.space == name_of(MemorySpace::host) ? 1 : 0;
    bool happened = false;
    for (std::uint32_t r = 0; r < accounting_.ranks.size(); ++r) {
      if (expected.rank && *expected.rank != r) continue;
      for (std::uint32_t step = 0; step < accounting_.windows_closed; ++step) {
        std::optional<SpaceAccount> held;  // of the phases that are meant
        for (std::size_t p = 0; p < phase_count; ++p) {
          const PhaseAccount& phase = accounting_.ranks[r].windows[step].phases[p];
          if (!phase.happened || (!expected.phase.empty() && expected.phase != name_of(static_cast<Phase>(p)))) continue;
          if (!held) held = phase.space[space];
          else held->peak[*kind] = std::max(held->peak[*kind], phase.space[space].peak[*kind]);
        }
        if (!held) continue;
        happened = true;
        if (compare(expected, r, step, held->resident[*kind], expected.resident, expected.at_most_resident, "holds") ||
            compare(expected, r, step, held->peak[*kind], expected.peak, expected.at_most_peak, "holds at its peak"))
          return;
      }
    }
    if (!happened) add("/expect/memory", fmt::format("no closed window has the phase {}", expected.phase));
  }

  bool compare(const ExpectedMemory& expected, std::uint32_t rank, std::uint32_t step, std::uint64_t bytes, const std::optional<std::uint64_t>& exactly,
               const std::optional<std::uint64_t>& at_most, const char* verb) {
    const bool differs = exactly && bytes != *exactly, exceeds = at_most && bytes > *at_most;
    if (!differs && !exceeds) return false;
    const std::string when = expected.phase.empty() ? "" : fmt::format(", phase {}", expected.phase);
    add("/expect/memory", fmt::format("rank {} {} {} bytes of {} on the {} in step {}{}, expected {}{}", rank, verb, bytes, expected.of, expected.space, step, when,
                                      differs ? "" : "at most ", differs ? *exactly : *at_most));
    return true;
  }

  const Expect& expect_;
  const Accounting& accounting_;
  std::vector<Problem> out_;
};

}  // namespace

std::vector<Problem> unmet(const Loaded& loaded, const Accounting& accounting) { return BytesMatcher(loaded, accounting).run(); }

std::vector<Problem> unmet(const Loaded& loaded, const Held& held) {
  std::vector<Problem> out = unmet(loaded, held.verdict);
  for (const std::string& line : held.unmet_values) out.emplace_back(line, unmet_expectation, "/expect/values");
  if (held.accounting)
    for (Problem& problem : unmet(loaded, *held.accounting)) out.push_back(std::move(problem));
  return out;
}

Held run_for_expectations(const Loaded& loaded, const Options& options) {
  ExpectedValuesSink values(loaded.scenario.expect.values);
  std::optional<AccountingSink> accounting;
  ref::Tee watch;
  if (!loaded.scenario.expect.values.empty()) watch.add(&values);
  if (expects_bytes(loaded.scenario.expect)) watch.add(&accounting.emplace(loaded.scenario, loaded.timeline));
  const bool watched = accounting || !loaded.scenario.expect.values.empty();
  Held held{judge(loaded, options, watched ? &watch : nullptr), {}, values.unmet()};
  if (accounting) held.accounting = accounting->take();
  return held;
}

std::vector<Problem> unmet_in_dry_run(const Loaded& loaded, const Options& options) {
  ref::FactsSink facts(loaded.scenario, loaded.timeline);
  const Accounting accounting = account(loaded, options, &facts);
  ref::Verdict shown;  // counts and allocations; there are no findings, and none are expected
  shown.facts = facts.take({});
  std::vector<Problem> out = unmet(loaded, shown);
  for (Problem& problem : unmet(loaded, accounting)) out.push_back(std::move(problem));
  if (accounting.stopped) out.push_back("stopped: " + *accounting.stopped);
  return out;
}

}  // namespace gradledger::verbs
