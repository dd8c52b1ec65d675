#include "verbs/trace_files.h"

#include <fmt/format.h>

#include "report/version/version.h"
#include "sim/engine/engine.h"
#include "sim/frameworks/framework.h"
#include "sim/load.h"
#include "verbs/new_file.h"

namespace gradledger::verbs {
namespace {

constexpr const char* simulator = "host";

}  // namespace

bool LoadedTrace::simulated() const { return origin.driver == simulator; }

std::string origin_text(const conform::TraceOrigin& origin) {
  std::string versions;
  for (const auto& [package, version] : origin.versions) versions += fmt::format("{}{} {}", versions.empty() ? "" : ", ", package, version);
  return origin.driver + (versions.empty() ? "" : " (" + versions + ")");
}

namespace {

conform::TraceOrigin origin_of(const Options& options) {
  if (options.driver) return {options.driver->hello().driver, options.driver->hello().versions, options.seed};
  return {options.producer, {{"gradledger", std::string(report::version().number)}}, options.seed};
}

// What a real framework took need not be what an engine here would take.
Result<Scenario> scenario_of(const conform::TraceHead& head) {
  const std::string text = head.scenario.dump();
  return head.origin.driver == simulator ? read_scenario(text, "") : parse_whole_scenario(text, "");
}

}  // namespace

ref::OracleOptions oracle_of_trace(std::uint64_t seed) {
  ref::OracleOptions out;
  out.seed = out.schedule.seed = seed;
  return out;
}

Result<WrittenTrace> write_trace(const Loaded& loaded, const Options& options, const std::string& file) {
  std::optional<PendingFile> pending;  // a run may break off, and half a trace is none
  if (!is_written_through(file)) {
    auto made = PendingFile::at(file);
    if (!made) return made.error();
    pending = std::move(made).value();
  }
  const auto of_file = [&](const InputError& error) { return InputError{file, error.message}; };
  auto created = LineWriter::create(pending ? pending->writable() : std::filesystem::path(file), file);
  if (!created) return of_file(created.error());
  const auto producer = make_producer(loaded, options);
  const conform::TraceOrigin origin = origin_of(options);
  conform::RecordingProducer recording(*producer, loaded.scenario, loaded.timeline, origin, std::move(created).value());
  ref::judge(loaded.scenario, loaded.timeline, recording, oracle_of_trace(options.seed));
  if (const auto error = recording.close(driver_notes(*producer))) return of_file(*error);
  if (pending)
    if (const auto error = pending->take_place()) return *error;
  return WrittenTrace{origin_text(origin), recording.passes()};
}

Result<std::unique_ptr<LoadedTrace>> load_trace(const std::string& file, const Options& options) {
  auto opened = conform::TraceFile::open(file);
  if (!opened) return opened.error();
  conform::TraceFile trace = std::move(opened).value();
  const std::string where = trace.where() + ": /scenario";
  // What a trace is of comes with it; it does not choose what else is read here.
  for (const char* table : {"gradients", "tokens"})
    if (const auto at = trace.head().scenario.find(table); at != trace.head().scenario.end() && at->is_object() && at->contains("file"))
      return InputError{where + "/" + table + "/file", "names another file; expected what is in it"};
  auto scenario = scenario_of(trace.head());
  if (!scenario) return InputError{where + scenario.error().where, scenario.error().message, scenario.error().unavailable};
  const GradientKind kind = scenario->gradients.kind;
  if (trace.head().capabilities.one_pass && kind != GradientKind::values && kind != GradientKind::mlp)
    return InputError{where + "/gradients/kind",
                      "is of data that the oracle draws, and the trace says one_pass: a run that is over has the data that it had; expected \"values\" or \"mlp\""};
  auto out = std::make_unique<LoadedTrace>();
  Loaded& loaded = out->loaded;
  loaded.path = file;
  loaded.scenario = std::move(scenario).value();
  const std::uint64_t bytes = bytes_needed(loaded.scenario);
  if (bytes > options.memory_limit)
    return InputError{where + "/parameters", fmt::format("need up to {} bytes to be judged; expected at most --memory-limit, {} bytes", bytes, options.memory_limit), true};
  auto timeline = make_timeline(loaded.scenario);
  expects(timeline.ok(), "a scenario that was read has a timeline");
  loaded.timeline = std::move(timeline).value();
  out->origin = trace.head().origin;
  const auto selected = select_engine(loaded.scenario);
  loaded.engine = selected ? std::string((*selected)->name) : out->origin.driver;  // the model need not know what a real framework takes
  auto body = std::move(trace).passes(loaded.scenario, loaded.timeline, options.memory_limit - bytes);
  if (!body) return body.error();
  out->body = std::move(body).value();
  return out;
}

}  // namespace gradledger::verbs
