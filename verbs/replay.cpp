#include "verbs/replay.h"

#include <algorithm>

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

std::vector<EventLine> event_lines(const Loaded& loaded, const ref::Verdict& verdict, const EventWatch& watch) {
  std::vector<EventLine> out;
  for (const auto& [place, seen] : watch.lines()) {
    EventLine line = seen;
    const std::string what = loaded.timeline.describe(line.event);
    line.what = what.substr(what.find(": ") + 2);
    for (EventLine::Buffer& b : line.buffers)
      b.wrong = std::binary_search(verdict.unbalanced.begin(), verdict.unbalanced.end(), ref::SnapshotKey{line.event, b.at_end, line.rank, b.name});
    out.push_back(std::move(line));
  }
  return out;
}

}  // namespace

Report report_of(const Loaded& loaded, const Options& options, const ref::Verdict& verdict, const EventWatch& lines) {
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
