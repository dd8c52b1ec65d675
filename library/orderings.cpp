#include "gradledger/orderings.h"

#include <algorithm>
#include <deque>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <rapidcheck/Random.h>

#include "library/local_ranks.h"
#include "library/moves.h"
#include "library/parts.h"
#include "search/shrink/shape.h"
#include "search/shrink/shrink.h"
#include "sim/base/hash.h"
#include "sim/frameworks/drawing.h"
#include "sim/load.h"

namespace gradledger::library {
namespace {

std::set<ref::FindingClass> classes_of(const ref::Verdict& verdict) {
  std::set<ref::FindingClass> out;
  for (const ref::Finding& f : verdict.findings) out.insert(f.finding);
  return out;
}

// Backwards that follow each other as one entry, as people write them.
void pack(std::vector<ScriptItem>& items) {
  std::vector<ScriptItem> out;
  for (ScriptItem& item : items) {
    pack(item.items);
    if (!out.empty() && item.kind == ScriptKind::backward) {
      ScriptItem more = item;
      more.micro_batches = out.back().micro_batches;
      if (more == out.back()) {
        ++out.back().micro_batches;
        continue;
      }
    }
    out.push_back(std::move(item));
  }
  items = std::move(out);
}

// Scripts, and what a wrapper makes of them.
class Search {
 public:
  Search(const api::Scenario& base, const api::Abilities& abilities, driver::DriverRanks& ranks, const api::Orderings& asked)
      : base_(Access::parts(base)), abilities_(abilities), ranks_(ranks), asked_(asked), options_{asked.seed, asked.memory_limit, asked.headers} {
    if (std::find(asked.micro_batches.begin(), asked.micro_batches.end(), 0u) != asked.micro_batches.end())
      throw api::BadInput("Orderings::micro_batches has a window of none; expected numbers from 1");
    rules_ = rules_of(base_.scenario.contract, base_.zero_grad_is_stated, abilities.events, asked.micro_batches);
    if (rules_.most() > micro_batches_max)
      throw api::BadInput(fmt::format("{}: {} micro-batches in a window; expected at most {}", asked.micro_batches.empty() ? "/contract/divide_by" : "Orderings::micro_batches",
                                      rules_.most(), micro_batches_max));
  }

  api::OrderingsReport drawn() {
    if (asked_.windows_max == 0 || asked_.windows_max > windows_max)
      throw api::BadInput(fmt::format("Orderings::windows_max is {}; expected a number from 1 to {}", asked_.windows_max, windows_max));
    for (std::uint32_t number = 0; number < asked_.cases; ++number) look_at(draw(number), fmt::format("script {} drawn from seed {}", number, asked_.seed));
    out_.repeat = fmt::format("{} scripts drawn from seed {}", asked_.cases, asked_.seed);
    return finished();
  }

  // By breadth, so that what is found first is shortest. What goes wrong is not continued.
  api::OrderingsReport explored(std::uint32_t events_max) {
    std::deque<std::pair<std::vector<Move>, Stand>> open{{{}, Stand()}};
    std::uint64_t number = 0;
    for (; !open.empty(); open.pop_front()) {
      const auto& [so_far, stand] = open.front();
      for (const Move move : moves) {
        Stand next = stand;
        if (!next.take(move, rules_)) continue;
        std::vector<Move> longer = so_far;
        longer.push_back(move);
        if (next.closed() && !look_at(with_script(script_of(longer)), fmt::format("script {} of an exploration", number++))) continue;
        if (longer.size() >= events_max) continue;
        if (open.size() == open_max)
          throw api::BadInput(
              fmt::format("events_max is {}: more than {} sequences of {} events can go on; expected fewer events, or smaller windows", events_max, open_max, longer.size()));
        open.emplace_back(std::move(longer), next);
      }
    }
    out_.complete = out_.tried > 0 && out_.refused == 0 && out_.not_judged == 0;
    out_.repeat = fmt::format("every script of up to {} events", events_max);
    return finished();
  }

 private:
  Scenario with_script(std::vector<ScriptItem> script) const {
    Scenario out = base_.scenario;
    out.script = std::move(script);
    out.expect = {};
    out.note.clear();  // of the script that it had
    return out;
  }

  // Limits on what is asked for.
  static constexpr std::uint32_t micro_batches_max = 4096, windows_max = 1024;
  static constexpr std::size_t open_max = std::size_t{1} << 20;  // sequences of an exploration that are kept to go on from

  static constexpr std::size_t events_soon_long = 16;

  // Case `number` of the seed, whatever was drawn before.
  Scenario draw(std::uint32_t number) const {
    Draws draws{rc::Random(hash_keys({asked_.seed, number}))};
    const bool syncs = draws.one_in(2), clears = draws.one_in(2), unused = draws.one_in(2);
    const std::uint32_t windows = 1 + draws.below(asked_.windows_max);
    std::vector<Move> all;
    Stand stand;
    for (std::uint32_t closed = 0; closed < windows;) {
      std::vector<Move> able;
      for (const Move move : moves) {
        if (move == Move::backward_in_no_sync && !syncs) continue;
        // Each may begin a window anew: few are enough, and scripts stay short.
        if (move == Move::zero_grad && (!clears || all.size() > events_soon_long || !draws.one_in(4))) continue;
        Stand next = stand;
        if (next.take(move, rules_)) able.push_back(move);
      }
      const Move move = able[draws.below(static_cast<std::uint32_t>(able.size()))];
      stand.take(move, rules_);
      all.push_back(move);
      closed += move != Move::zero_grad && stand.closed() && (move == Move::step || move == Move::update);
    }
    Scenario out = with_script(script_of(all));
    if (unused) leave_out_parameters(draws, out.script, out);
    if (out.groups.empty() && !out.tokens.stated() && draws.one_in(4)) out.world_size = 1 + draws.below(out.world_size);
    return out;
  }

  static void leave_out_parameters(Draws& draws, std::vector<ScriptItem>& items, const Scenario& scenario) {
    for (ScriptItem& item : items) {
      leave_out_parameters(draws, item.items, scenario);
      if (item.kind != ScriptKind::backward || scenario.parameters.size() < 2 || !draws.one_in(3)) continue;
      const std::uint32_t left_out = draws.below(static_cast<std::uint32_t>(scenario.parameters.size()));
      for (std::uint32_t p = 0; p < scenario.parameters.size(); ++p)
        if (p != left_out && scenario.parameters[p].has_gradient()) item.uses.push_back(scenario.parameters[p].name);
    }
  }

  // Whether nothing is wrong with it. What no reader of files would take is passed over, and so is what the wrapper has nothing for; both are counted.
  bool look_at(const Scenario& scenario, const std::string& which) {
    const auto timeline = make_timeline(scenario);
    if (!timeline) {
      refuse(timeline.error().text());
      return true;
    }
    try {
      const ref::Verdict verdict = judged(scenario, *timeline);
      if (!verdict.judged()) {
        ++out_.not_judged;
        return true;
      }
      ++out_.tried;
      for (const ref::FindingClass finding : classes_of(verdict))
        if (known_.insert(finding).second) shrink(scenario, finding);
      return verdict.findings.empty();
    } catch (const Refusal& refused) {
      refuse(refused.what());
      return true;
    } catch (const api::BrokenRun& broken) {
      throw api::BrokenRun(fmt::format("{}\nin {}: {}", broken.what(), which, short_of(scenario)));
    }
  }

  void refuse(const std::string& why) {
    ++out_.refused;
    refusal_ = why;
  }

  // A wrapper that throws when it is made for what the contract allows has failed: one that cannot do it says NotSupported.
  ref::Verdict judged(const Scenario& scenario, const Timeline& timeline, bool full_ledger = false) {
    try {
      return judge(scenario, timeline, ranks_, options_, full_ledger);
    } catch (const Refusal& refused) {
      if (!refused.when_made()) throw;
      ref::Finding finding;
      finding.finding = ref::FindingClass::engine_error;
      finding.sentence =
          fmt::format("the wrapper cannot be made for a world of {}: it threw {}. One that does not take the scenario throws NotSupported.", scenario.world_size, refused.what());
      ref::Verdict out;
      out.findings.push_back(std::move(finding));
      return out;
    }
  }

  static std::string short_of(Scenario scenario) {
    pack(scenario.script);
    return search::shape_of(scenario);
  }

  void shrink(const Scenario& scenario, ref::FindingClass finding) {
    const auto shows = [&](const Scenario& smaller) {
      const auto timeline = make_timeline(smaller);
      if (!timeline || !keeps_to(rules_, smaller.script)) return false;
      try {
        return classes_of(judged(smaller, *timeline)).contains(finding);
      } catch (const api::Error&) {
        return false;
      }
    };
    search::Shrunk small = search::shrink(scenario, shows, {.tried_max = asked_.tries_max});
    pack(small.scenario.script);
    Timeline timeline = make_timeline(small.scenario).value();
    const ref::Verdict verdict = judged(small.scenario, timeline, true);
    for (const ref::FindingClass too : classes_of(verdict)) known_.insert(too);  // one script shows them
    api::detail::ScenarioParts parts{std::move(small.scenario), std::move(timeline), base_.zero_grad_is_stated, ""};
    api::Report report = report_of(parts, abilities_.name, options_, verdict);
    out_.failures.push_back({Access::scenario(std::move(parts)), std::move(report), short_of(scenario), small.minimal});
  }

  api::OrderingsReport finished() {
    if (out_.tried == 0 && !refusal_.empty()) throw api::NotRun(refusal_);
    if (out_.tried == 0) throw api::BadInput("no script was judged; expected a contract with windows that the wrapper can run, and enough cases or events for one");
    return std::move(out_);
  }

  const api::detail::ScenarioParts& base_;
  const api::Abilities& abilities_;
  driver::DriverRanks& ranks_;
  const api::Orderings& asked_;
  api::Options options_;
  Rules rules_;
  std::set<ref::FindingClass> known_;
  std::string refusal_;
  api::OrderingsReport out_;
};

}  // namespace
}  // namespace gradledger::library

namespace gradledger::api {

OrderingsReport check_orderings(const Scenario& scenario, const Ranks& wrapper, const Orderings& orderings) {
  library::LocalRanks ranks(wrapper, orderings.seed);
  return library::Search(scenario, wrapper.abilities, ranks, orderings).drawn();
}

OrderingsReport check_orderings(const Scenario& scenario, const Worlds& wrapper, const Orderings& orderings) {
  library::LocalWorld world(wrapper);
  return library::Search(scenario, wrapper.abilities, world, orderings).drawn();
}

OrderingsReport explore_orderings(const Scenario& scenario, const Ranks& wrapper, std::uint32_t events_max, const Orderings& orderings) {
  library::LocalRanks ranks(wrapper, orderings.seed);
  return library::Search(scenario, wrapper.abilities, ranks, orderings).explored(events_max);
}

OrderingsReport explore_orderings(const Scenario& scenario, const Worlds& wrapper, std::uint32_t events_max, const Orderings& orderings) {
  library::LocalWorld world(wrapper);
  return library::Search(scenario, wrapper.abilities, world, orderings).explored(events_max);
}

std::ostream& operator<<(std::ostream& out, const OrderingsReport& report) {
  const std::string_view verdict = report.tried == 0 ? "which says nothing" : report.clean() ? "and all are right" : "and some are not right";
  out << fmt::format("{}: {} were judged, {}", report.repeat, report.tried, verdict);
  if (report.refused > 0) out << fmt::format("; {} were refused", report.refused);
  if (report.not_judged > 0) out << fmt::format("; {} had nothing to judge", report.not_judged);
  out << "\n";
  for (const Failure& failure : report.failures) {
    out << fmt::format("\n{}{}\n", failure.scenario.script(), failure.minimal ? "" : " (there may be a smaller one: the limit of tries was reached)");
    if (failure.drawn != failure.scenario.script()) out << "made from: " << failure.drawn << "\n";
    out << failure.report.text << "as a scenario:\n" << failure.scenario.json() << "\n";
  }
  return out;
}

}  // namespace gradledger::api
