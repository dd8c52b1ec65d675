#include "audit/audit.h"

#include <algorithm>
#include <array>
#include <map>

#include <fmt/format.h>

#include "audit/advice.h"
#include "audit/meaning.h"
#include "audit/sweep.h"
#include "search/blame/way_out.h"
#include "sim/load.h"

namespace gradledger::audit {
namespace {

using report::AuditOutcome;
using report::AuditReport;

void say_what_was_read(const Setup& setup, AuditReport& out) {
  out.framework = std::string(setup.framework->title());
  out.release = setup.as_of;
  out.loop = setup.loop ? std::string(setup.loop->name) : "script";
  out.loop_says = setup.loop ? std::string(setup.loop->says) : "the script of a scenario";
  out.optimizer = setup.optimizer_name;
  out.packages = setup.packages;
  out.ranks = setup.ranks;
  out.model = setup.model;
  out.filled = setup.filled;
  out.ignored = setup.ignored;
  out.unknown = setup.unknown;
  out.notes = setup.notes;
  for (const std::string& what : setup.not_modelled) out.not_judged.push_back(what + ", which is not modelled (--leave-out POINTER answers without it)");
  constexpr std::array<std::string_view, 9> weigh_tokens{"hf-trainer", "verl", "open-instruct", "open-instruct-finetune", "nemo-rl", "torchtitan", "torchtune", "trl", "grpo"};
  const bool counts = setup.loop && std::find(weigh_tokens.begin(), weigh_tokens.end(), setup.loop->name) != weigh_tokens.end();
  if (counts && !setup.uneven_tokens) out.not_judged.emplace_back("micro-batches with different numbers of tokens: here all have the same (--tokens uneven)");
  const bool epochs = setup.loop && has_epochs(*setup.loop);
  if (epochs && setup.setting.last_window == 0) out.not_judged.emplace_back("a shorter window at the end of an epoch (--last-window N)");
  for (const std::string& what : setup.not_judged) out.not_judged.push_back(what);
  if (package_of(*setup.framework) == "torch") out.not_judged.emplace_back("clipping by the loop itself");
}

// One of each class; further ones are counted.
void say_findings(const Setup& setup, Replayer& replayer, const Answer& answer, bool on_numbers, AuditReport& out) {
  std::vector<ref::Finding> findings = answer.verdict->findings;
  const Scenario& scenario = *answer.scenario;
  const auto timeline = make_timeline(scenario);
  const search::Judge judge = [&](const Scenario& other, const Timeline& its) { return replayer.judge_quickly(other, its); };
  if (setup.framework->simulated()) {
    search::assign_blame(scenario, *timeline, findings, judge);
    // One of a class and window says it for all.
    std::vector<ref::Finding> first;
    std::map<ref::FindingClass, std::size_t> at;
    for (const ref::Finding& f : findings)
      if (at.try_emplace(f.finding, first.size()).second) first.push_back(f);
    search::find_known_defects(scenario, *timeline, first, judge, on_numbers ? search::Judge{} : judge);
    for (ref::Finding& f : findings) f.known = first[at.at(f.finding)].known;
  }
  std::map<ref::FindingClass, std::size_t> shown;
  for (const ref::Finding& f : findings) {
    const auto [at, fresh] = shown.try_emplace(f.finding, out.findings.size());
    if (!fresh) {
      ++out.findings[at->second].occurrences;
      continue;
    }
    out.findings.push_back({f, timeline->pointers[timeline->events[f.event].item], {}, ""});
  }
}

// The releases around the set-up's own that are affected.
void date(const std::vector<AtRelease>& at, AuditReport& out) {
  const auto current = std::find_if(at.begin(), at.end(), [](const AtRelease& r) { return r.current; });
  if (current == at.end() || !current->answer.affected()) return;
  auto first = current, fixed = current;
  while (first != at.begin() && std::prev(first)->answer.affected()) --first;
  while (fixed != at.end() && fixed->answer.affected()) ++fixed;
  out.since = first->first + (first == at.begin() ? " or before" : "");
  out.fixed = fixed == at.end() ? "no release that is known" : fixed->first;
}

void matrices(const Setup& setup, Replayer& replayer, const std::vector<AtRelease>& releases, Sweep sweep, AuditReport& out) {
  if (sweep == Sweep::none) return;
  if (sweep != Sweep::stages && !releases.empty() && sweep != Sweep::all) out.matrices.push_back(releases_matrix(package_of(*setup.framework), releases));
  if (sweep != Sweep::stages && setup.loop)
    for (const loops::LoopPackage& package : setup.loop->packages)
      out.matrices.push_back(releases_matrix(std::string(package.name), at_packages(setup, std::string(package.name), replayer)));
  if (sweep != Sweep::releases && !setup.framework->user_config()->stages(setup.config).empty()) out.matrices.push_back(stages_matrix(setup, replayer, sweep == Sweep::all));
}

}  // namespace

Audited audit(const Setup& setup, const verbs::Options& options, Sweep sweep) {
  Audited out;
  AuditReport& report = out.report;
  say_what_was_read(setup, report);
  Replayer replayer(setup, options);
  const Answer answer = replayer.answer(variant_of(setup), false);
  out.refused = answer.refused;
  if (!out.refused.empty()) return out;
  out.scenario = *answer.scenario;
  report.engine = std::string(engine_name(*answer.scenario));
  report.described = setup.framework->described(*answer.scenario);
  report.scenario = answer.scenario->name;
  report.seed = options.seed;
  for (const Parameter& p : answer.scenario->parameters) report.parameters.push_back(p.name);
  const auto timeline = make_timeline(*answer.scenario);
  report.windows = timeline->steps;
  report.micro_batches = timeline->micro_batches.empty() ? 0 : timeline->micro_batches[0][0];
  report.verdict = answer.text();
  report.effects = answer.effects.list;
  const bool wholly = setup.not_modelled.empty() && answer.clean();
  report.outcome = answer.affected() ? AuditOutcome::affected : wholly ? AuditOutcome::not_affected : AuditOutcome::not_judged;
  if (answer.refused.empty()) report.not_judged.insert(report.not_judged.end(), answer.verdict->left_out.begin(), answer.verdict->left_out.end());
  if (!answer.judged()) report.not_judged.insert(report.not_judged.begin(), "the whole run: " + answer.verdict->coverage.nothing);

  const std::vector<AtRelease> releases = at_releases(setup, replayer);
  report.releases = merged(package_of(*setup.framework), releases);
  if (answer.affected()) {
    report.meaning = meaning_of(answer.effects, *answer.scenario, *timeline, setup.optimizer_name);
    say_findings(setup, replayer, answer, verbs::bytes_needed(*answer.scenario) <= options.memory_limit, report);
    date(releases, report);
    report.advice = advice_for(setup, replayer, releases);
  }
  matrices(setup, replayer, releases, sweep, report);
  report.judged_runs = replayer.judged();
  report.runs_alike = replayer.alike();
  return out;
}

}  // namespace gradledger::audit
