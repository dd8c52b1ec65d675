#include "verbs/session.h"

#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gpu/ranks/thread_devices.h"
#include "ref/facts.h"
#include "search/blame/way_out.h"
#include "sim/engine/engine.h"
#include "sim/frameworks/framework.h"
#include "sim/judgement_bytes.h"
#include "sim/load.h"
#include "sim/base/files.h"
#include "sim/scenario/json_reader.h"
#include "sim/scenario/positions.h"
#include "sim/scenario/spelling.h"
#include "verbs/installed.h"

namespace gradledger::verbs {

std::uint64_t bytes_needed(const Scenario& scenario) { return judgement_bytes(scenario); }

std::string Loaded::place(const std::string& pointer) const {
  const InputError named = named_by_options({pointer, ""}, overrides);
  return named.where == pointer ? place_in(path, pointer) : named.where;
}

Options without_overrides(const Options& options) {
  Options out = options;
  out.overrides.clear();
  return out;
}

namespace {

// Values that are expected, or compared with those of another scenario.
bool expects_numbers(const Scenario& scenario) { return !scenario.expect.values.empty() || scenario.expect.comparison.has_value(); }

// Whether elements are held whatever their number.
bool needs_numbers(const Options& options) { return options.executor == "numeric" || options.driver || options.uses_devices() || !options.compare.empty(); }

Result<std::unique_ptr<Loaded>> admit(const std::filesystem::path& path, Result<Scenario> read, const Options& options, Use use) {
  auto out = std::make_unique<Loaded>();
  out->path = path;
  out->overrides = options.overrides;
  Result<Scenario> scenario = options.driver ? as_installed(std::move(read).value(), options.driver->hello()) : std::move(read);
  if (!scenario) return InputError{out->place(scenario.error().where), scenario.error().message};
  if (!options.driver && !framework_of(*scenario).simulated())
    return InputError{out->place("/engine/framework"),
                      "is \"" + scenario->engine.framework + "\", of which there is no engine here; expected --producer with a driver that runs it", true};
  const std::uint64_t bytes = bytes_needed(*scenario);
  const bool judged = use != Use::account && !(use == Use::gate && scenario->expect.accounting_only);
  const bool on_numbers = judged && (use == Use::search || needs_numbers(options) || expects_numbers(*scenario));
  if (on_numbers && bytes > options.memory_limit)
    return InputError{out->place("/parameters"),
                      fmt::format("need up to {} bytes to be judged; expected at most --memory-limit, {} bytes, or a replay with --accounting", bytes, options.memory_limit), true};
  if (judged && (options.driver || options.uses_devices()) && scenario->world_size > limits::real_ranks_max)
    return InputError{out->place("/world_size"), fmt::format("is {}; expected at most {} with --producer {}", scenario->world_size, limits::real_ranks_max, options.producer),
                      true};
  if (judged && options.uses_devices() && options.ranks == "threads" && scenario->world_size > gpu::thread_ranks_max)
    return InputError{
        out->place("/world_size"),
        fmt::format("is {}, more ranks than fit one process; expected at most {} with --ranks threads, or --ranks processes", scenario->world_size, gpu::thread_ranks_max), true};
  out->scenario = std::move(scenario).value();
  auto timeline = make_timeline(out->scenario);
  expects(timeline.ok() || options.driver, "an admitted scenario has a timeline");
  if (!timeline) return InputError{out->place(timeline.error().where), timeline.error().message};  // at the release that is installed
  out->timeline = std::move(timeline).value();
  const auto selected = select_engine(out->scenario);
  out->engine = selected ? std::string((*selected)->name) : options.producer;  // the model need not know what a real framework takes
  return out;
}

}  // namespace

Result<std::unique_ptr<Loaded>> load(const std::filesystem::path& path, const Options& options, Use use, std::vector<InputError>* all) {
  auto read = load_scenario(path, options.overrides, all);
  if (!read) return read.error();
  auto loaded = admit(path, std::move(read), options, use);
  if (!loaded && all) *all = {loaded.error()};
  return loaded;
}

ref::Executor executor_of(const Scenario& scenario, const Options& options) {
  if (options.executor == "numeric") return ref::Executor::numeric;
  if (expects_numbers(scenario)) return ref::Executor::both;
  if (options.executor == "symbolic") return ref::Executor::symbolic;
  return needs_numbers(options) || bytes_needed(scenario) <= options.memory_limit ? ref::Executor::both : ref::Executor::symbolic;
}

std::uint64_t program_bytes_max(const Loaded& loaded, const Options& options) {
  return executor_of(loaded.scenario, options) == ref::Executor::symbolic ? options.memory_limit : options.memory_limit - bytes_needed(loaded.scenario);
}

InputError programs_too_large(const Loaded& loaded, const Options& options) {
  return {loaded.place("/script"),
          fmt::format("makes programs on {} ranks for which --memory-limit, {} MiB, is too small; expected fewer events or parameters, or a larger limit",
                      loaded.scenario.world_size, options.memory_limit >> 20),
          true};
}

Result<Schedule> schedule_from(const Options& options) {
  Schedule schedule;
  schedule.seed = options.schedule_seed.value_or(options.seed);
  if (options.schedule == "seeded") return schedule;
  if (options.schedule == "round-robin") {
    schedule.policy = Schedule::Policy::round_robin;
    return schedule;
  }
  const auto text = read_file(options.schedule);
  if (!text)
    return InputError{"--schedule", text.error().text() + "; expected seeded, round-robin or a file written by --trace" + suggestion(options.schedule, {"seeded", "round-robin"})};
  schedule.policy = Schedule::Policy::replay;
  // The decisions are the last line of a trace.
  const std::size_t end = text->find_last_not_of("\n");
  const std::size_t begin = end == std::string::npos ? end : text->rfind('\n', end);
  const auto last = nlohmann::json::parse(text->substr(begin == std::string::npos ? 0 : begin + 1), nullptr, false);
  if (!last.is_object() || !last.contains("decisions") || !last["decisions"].is_array())
    return InputError{"--schedule", options.schedule + " holds no decisions; expected a file written by --trace"};
  for (const auto& decision : last["decisions"]) {
    if (!decision.is_number_unsigned() || decision > 0xFFFF) return InputError{"--schedule", options.schedule + " holds decisions that are not numbers of ranks or streams"};
    schedule.decisions.push_back(decision);
  }
  return schedule;
}

std::unique_ptr<Producer> make_producer(const Loaded& loaded, const Options& options) {
  if (options.driver) return std::make_unique<driver::DriverProducer>(loaded.scenario, loaded.timeline, *options.driver, options.seed);
  const Division division = options.backend == "nccl" ? Division::reciprocal : Division::quotient;  // as the framework that it is held against divides
  return gradledger::make_producer(loaded.scenario, loaded.timeline, {.division = division, .devices = options.devices, .program_bytes_max = program_bytes_max(loaded, options)});
}

std::vector<std::string> driver_notes(const Producer& producer) {
  const auto* real = dynamic_cast<const driver::DriverProducer*>(&producer);
  return real ? real->notes() : std::vector<std::string>();
}

ref::Verdict judge(const Loaded& loaded, const Options& options, TraceSink* watch, std::vector<std::string>* notes) {
  const auto producer = make_producer(loaded, options);
  ref::OracleOptions oracle;
  const auto schedule = schedule_from(options);
  expects(schedule.ok(), "the schedule was checked before");
  oracle.schedule = *schedule;
  oracle.seed = options.seed;
  oracle.full_ledger = options.full_ledger;
  if (!options.full_ledger) oracle.listed_cells_max = limits::listed_cells_max;
  oracle.executor = executor_of(loaded.scenario, options);
  oracle.watch = watch;
  ref::Verdict verdict = ref::judge(loaded.scenario, loaded.timeline, *producer, oracle);
  if (notes) *notes = driver_notes(*producer);
  return verdict;
}

void explain(const Loaded& loaded, const Options& options, ref::Verdict& verdict) {
  if (!framework_of(loaded.scenario).simulated() || admission_error(loaded.scenario)) return;
  const auto judge = [&](const Scenario& scenario, const Timeline& timeline, ref::Executor executor) {
    const auto producer = gradledger::make_producer(scenario, timeline, {.program_bytes_max = program_bytes_max(loaded, options)});
    ref::OracleOptions oracle;
    oracle.seed = options.seed;
    oracle.executor = executor;
    return ref::judge(scenario, timeline, *producer, oracle);
  };
  const search::Judge judge_other = [&](const Scenario& s, const Timeline& timeline) { return judge(s, timeline, executor_of(s, options)); };
  const search::Judge by_weights = [&](const Scenario& s, const Timeline& timeline) { return judge(s, timeline, ref::Executor::symbolic); };
  search::assign_blame(loaded.scenario, loaded.timeline, verdict.findings, judge_other);
  search::find_known_defects(loaded.scenario, loaded.timeline, verdict.findings, judge_other, by_weights);
}

namespace {

class NoGradients final : public GradientSource {
 public:
  void gradient(std::uint32_t, std::uint32_t, std::uint32_t, std::uint64_t, std::span<double>) const override { expects(false, "an accounting asks for no gradient"); }
};

// Of several sinks, of which none asks what rounds that repeat allocate.
class MemoryOfRounds final : public ref::Tee, public NeedsMemoryOfRounds {};

}  // namespace

Accounting account(const Loaded& loaded, const Options& options, TraceSink* watch, const std::function<void(std::span<const Rank>)>& look) {
  const std::uint64_t records = accounting_bytes(loaded.timeline);
  if (records > options.memory_limit / 2) throw ProgramsTooLarge(options.memory_limit);
  // The other half is for what is recorded of them, which is less.
  const auto producer = gradledger::make_producer(loaded.scenario, loaded.timeline, {.program_bytes_max = options.memory_limit / 2});
  AccountingSink accounting(loaded.scenario, loaded.timeline);
  MemoryOfRounds sinks;
  sinks.add(&accounting);
  sinks.add(watch);
  RunOptions run = accounting_run(loaded.scenario, loaded.timeline);
  if (look) run = {.observe_events = false, .linear = true, .dry = true, .check_streams = true};
  const auto schedule = schedule_from(options);
  expects(schedule.ok(), "the schedule was checked before");
  run.schedule = *schedule;
  producer->run(NoGradients(), run, sinks);
  if (look) look(producer->ranks());
  return accounting.take();
}

std::optional<InputError> not_searched(const Loaded& loaded) {
  const Framework& framework = framework_of(loaded.scenario);
  if (framework.search_space()) return std::nullopt;
  std::string searched;
  for (const Framework* f : frameworks())
    if (f->search_space()) searched += fmt::format("{}\"{}\"", searched.empty() ? "" : " or ", f->id());
  return InputError{loaded.place("/engine/framework"), fmt::format("is \"{}\", whose configurations the searches do not know yet; expected {}", framework.id(), searched)};
}

}  // namespace gradledger::verbs
