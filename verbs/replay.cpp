#include "verbs/replay.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

#include "ref/facts.h"
#include "report/of_verdict.h"
#include "sim/frameworks/framework.h"
#include "sim/scenario/identity.h"
#include "verbs/command.h"
#include "verbs/findings.h"
#include "verbs/installed.h"

namespace gradledger::verbs {
namespace {

using report::EventLine;
using report::Report;

void say_what_ran(const Loaded& loaded, const Options& options, Report& out) {
  const Scenario& s = loaded.scenario;
  out.command = repeat_command({loaded.path}, options);
  out.scenario = s.name;
  out.file = loaded.path.string();
  out.note = s.note;
  out.framework = std::string(framework_of(s).id());
  out.engine = loaded.engine;
  out.described = framework_of(s).described(s);
  out.as_of = s.engine.as_of;
  out.world_size = s.world_size;
  out.parameters = parameter_names(s);
  out.elements = s.numel();
  out.model_dtype = s.model_dtype;
  out.producer = producer_text(options);
  out.seed = options.seed;
  out.identity = content_identity(s);
  for (const Plant& plant : loaded.timeline.planted)
    out.planted.push_back({plant.value, s.parameters[plant.parameter].name, loaded.timeline.contribution(plant.backward, plant.rank)});
  out.in_short = options.summary;
  out.overrides = loaded.overrides;
  out.open = loaded.timeline.open_window;
}

// What a rank's books say of an event: which buffers are out of balance, at its end or within it.
using Wrong = std::vector<std::pair<bool, std::string_view>>;

std::shared_ptr<const EventLine::Record> marked(const EventLine::Record& record, const Wrong& wrong) {
  auto out = std::make_shared<EventLine::Record>(record);
  for (EventLine::Buffer& b : out->buffers) b.wrong = std::find(wrong.begin(), wrong.end(), std::pair(b.at_end, std::string_view(b.name))) != wrong.end();
  return out;
}

// Ranks that did and held the same, and of which the same is wrong.
std::vector<EventLine> event_lines(const Loaded& loaded, const ref::Verdict& verdict, EventWatch& watch) {
  std::map<std::pair<const EventLine::Record*, Wrong>, std::shared_ptr<const EventLine::Record>> known;  // looked up alone, never walked through
  std::vector<EventLine> out;
  auto key = verdict.unbalanced.begin();
  for (const auto& [event, all] : watch.lines()) {
    std::map<std::uint32_t, Wrong> wrong;  // by rank
    for (; key != verdict.unbalanced.end() && key->event <= event; ++key)
      if (key->event == event) wrong[key->rank].emplace_back(key->at_end, key->buffer);
    const std::string described = loaded.timeline.describe(event), what = described.substr(described.find(": ") + 2);
    const std::size_t first = out.size();
    for (const EventWatch::Alike& alike : all) {
      std::map<Wrong, std::vector<std::uint32_t>> ranks;
      if (wrong.empty()) ranks[{}] = alike.ranks;
      else
        for (const std::uint32_t rank : alike.ranks) {
          const auto found = wrong.find(rank);
          ranks[found == wrong.end() ? Wrong{} : found->second].push_back(rank);
        }
      for (auto& [what_is, of] : ranks) {
        auto& record = known[{alike.record.get(), what_is}];
        if (!record) record = what_is.empty() ? alike.record : marked(*alike.record, what_is);
        out.push_back({event, std::move(of), what, record});
      }
    }
    std::sort(out.begin() + static_cast<std::ptrdiff_t>(first), out.end(), [](const EventLine& a, const EventLine& b) { return a.ranks.front() < b.ranks.front(); });
  }
  return out;
}

}  // namespace

Report report_of(const Loaded& loaded, const Options& options, const ref::Verdict& verdict, EventWatch& lines) {
  Report out;
  say_what_ran(loaded, options, out);
  if (!options.summary) out.events = event_lines(loaded, verdict, lines);
  out.findings = findings_of(loaded, options, verdict.findings);
  report::take_verdict(verdict, out);
  return out;
}

Report replay(const Loaded& loaded, const Options& options, TraceSink* watch) {
  EventWatch lines;
  ref::Tee sinks;
  sinks.add(&lines);
  sinks.add(watch);
  std::vector<std::string> notes;
  ref::Verdict verdict = judge(loaded, options, watch ? static_cast<TraceSink*>(&sinks) : &lines, &notes);
  explain(loaded, options, verdict);
  Report out = report_of(loaded, options, verdict, lines);
  out.driver_notes = std::move(notes);
  return out;
}

}  // namespace gradledger::verbs
