#include "audit/advice.h"

#include <algorithm>
#include <array>
#include <set>

#include <fmt/format.h>

#include "sim/frameworks/user_config.h"

namespace gradledger::audit {
namespace {

using report::AuditAdvice;

AuditAdvice tried(const std::string& says, const Answer& answer) { return {says, answer.refused.empty() ? answer.text() : "refused: " + answer.refused, answer.clean()}; }

// The nearest newer release that is clean, else the nearest older one.
void by_release(const std::string& title, const std::vector<AtRelease>& at, std::vector<AuditAdvice>& out) {
  const auto current = std::find_if(at.begin(), at.end(), [](const AtRelease& r) { return r.current; });
  if (current == at.end()) return;
  const auto is_clean = [](const AtRelease& r) { return r.answer.clean(); };
  const auto newer = std::find_if(std::next(current), at.end(), is_clean);
  if (newer != at.end()) {
    const auto worse = std::find_if_not(newer, at.end(), is_clean);
    const std::string until = worse == at.end() ? " or newer" : fmt::format(", but not {} ({})", worse->first, worse->answer.text());
    out.push_back(tried(fmt::format("upgrade {} to {}{}", title, newer->first, until), newer->answer));
    return;
  }
  if (std::next(current) != at.end()) out.push_back(tried(fmt::format("upgrade {} to {}", title, at.back().first), at.back().answer));
  const auto older = std::find_if(std::make_reverse_iterator(current), at.rend(), is_clean);
  if (older != at.rend()) out.push_back(tried(fmt::format("go back to {} {}", title, older->label.starts_with("from ") ? older->first : older->label), older->answer));
}

// Configurations that differ in one thing; then, of those that do not help, what differs in one thing more.
void by_configuration(const Setup& setup, Replayer& replayer, std::vector<AuditAdvice>& out) {
  constexpr std::size_t pairs_max = 16, helping_max = 3;
  const UserConfigReader& reader = *setup.framework->user_config();
  std::set<nlohmann::json> seen{setup.config};
  std::set<std::string> helps;
  std::vector<ConfigChange> others;
  const auto attempt = [&](const ConfigChange& change) {
    Variant variant = variant_of(setup);
    variant.config = change.config;
    seen.insert(change.config);
    return replayer.answer(variant);
  };
  for (const ConfigChange& change : reader.changes(setup.config)) {
    const Answer answer = attempt(change);
    out.push_back(tried(change.says, answer));
    if (answer.clean()) helps.insert(change.id);
    else if (answer.refused.empty()) others.push_back(change);
  }
  std::size_t pairs = 0, helping = 0;
  for (const ConfigChange& one : others)
    for (const ConfigChange& more : reader.changes(one.config)) {
      if (helps.contains(more.id) || seen.contains(more.config) || pairs == pairs_max || helping == helping_max) continue;
      ++pairs;
      const Answer answer = attempt(more);
      if (!answer.clean()) continue;
      ++helping;
      out.push_back(tried(one.says + ", and " + more.says, answer));
    }
}

// The same micro-batches in another order of calls. What an engine counts is told to count them.
void by_calls(const Setup& setup, Replayer& replayer, std::vector<AuditAdvice>& out) {
  if (!setup.loop || !setup.loop->own) return;
  constexpr std::array<std::string_view, 5> others{"deepspeed", "megatron", "manual", "coalesce", "no-sync"};
  for (const std::string_view name : others) {
    const loops::Loop* loop = loops::named(name);
    if (loop == setup.loop || !loop->runs_on(setup.framework->id())) continue;
    Variant variant = variant_of(setup);
    variant.loop = loop;
    setup.framework->user_config()->count_windows(variant.config, loop->counted_by_framework ? setup.setting.micro_batches : 1);
    const bool recounted = variant.config != setup.config && setup.framework->id() == "deepspeed";
    const std::string steps = recounted ? fmt::format(", with gradient_accumulation_steps {}", loop->counted_by_framework ? setup.setting.micro_batches : 1) : "";
    out.push_back(tried(fmt::format("write the loop as {}: {}{}", loop->name, loop->says, steps), replayer.answer(variant)));
  }
}

// Options of a package's loop that are not the framework's.
void by_options(const Setup& setup, Replayer& replayer, std::vector<AuditAdvice>& out) {
  const Variant own = variant_of(setup);
  const auto attempt = [&](const std::string& says, const auto& change) {
    Variant variant = own;
    change(variant);
    out.push_back(tried(says, replayer.answer(variant)));
  };
  if (own.sync_each_batch) attempt("leave out sync_each_batch", [](Variant& v) { v.sync_each_batch = false; });
  if (!setup.loop || setup.loop->name != "grpo") return;
  const bool whole = own.grpo.steps_per_generation == 0 || own.grpo.steps_per_generation == setup.setting.micro_batches;
  if (!whole) attempt(fmt::format("generate one window at a time: steps_per_generation {}", setup.setting.micro_batches), [](Variant& v) { v.grpo.steps_per_generation = 0; });
  if (own.grpo.loss != loops::GrpoLoss::dapo)
    attempt(whole ? "divide by the tokens of all: loss_type dapo" : "divide by the tokens of all, one window at a time: loss_type dapo, steps_per_generation as above",
            [](Variant& v) {
              v.grpo.loss = loops::GrpoLoss::dapo;
              v.grpo.steps_per_generation = 0;
            });
}

}  // namespace

std::vector<AuditAdvice> advice_for(const Setup& setup, Replayer& replayer, const std::vector<AtRelease>& releases) {
  std::vector<AuditAdvice> out;
  by_release(std::string(setup.framework->title()), releases, out);
  if (setup.loop)
    for (const loops::LoopPackage& package : setup.loop->packages) by_release(std::string(package.name), at_packages(setup, std::string(package.name), replayer), out);
  by_configuration(setup, replayer, out);
  by_calls(setup, replayer, out);
  by_options(setup, replayer, out);
  std::stable_partition(out.begin(), out.end(), [](const AuditAdvice& a) { return a.clean; });
  return out;
}

}  // namespace gradledger::audit
