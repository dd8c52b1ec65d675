#include "tools/gradledger/explore.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>

#include <fmt/format.h>

#include "sim/frameworks/search_space.h"
#include "sim/load.h"
#include "sim/scenario/layout.h"
#include "tools/gradledger/call.h"
#include "tools/gradledger/exit_codes.h"
#include "tools/gradledger/fuzz.h"
#include "tools/gradledger/interruption.h"
#include "tools/gradledger/launcher.h"
#include "tools/gradledger/mpi.h"
#include "tools/gradledger/output.h"
#include "tools/gradledger/progress.h"
#include "tools/gradledger/verbs.h"

namespace gradledger::tool {
namespace {

struct World {
  std::string name;  // of the engine
  search::ExploreOptions options;
};

Result<std::vector<search::Letter>> letters_of(const ExploreVerb& verb, const Scenario& world) {
  const std::vector<std::string> words = verb.alphabet.empty() ? search_space_of(world).alphabet(world) : comma_separated(verb.alphabet);
  std::vector<search::Letter> out;
  for (const std::string& word : words) {
    const auto letter = search::letter_from(word, world.world_size, "--alphabet", search_space_of(world).letters(world));
    if (!letter) return letter.error();
    out.push_back(*letter);
  }
  constexpr std::size_t letters_max = 64;
  if (out.size() > letters_max) return InputError{"--alphabet", fmt::format("has {} events; expected at most {}", out.size(), letters_max)};
  return out;
}

// Two parameters whose partitions are equal on every rank.
Scenario small_world(const ExploreVerb& verb, const AsOf& as_of, const search::Variant& variant) {
  Scenario out;
  out.name = std::string(variant.name);
  out.world_size = verb.world_size;
  for (const char* name : {"w0", "w1"}) {
    Parameter p;
    p.name = name;
    p.numel = 2 * verb.world_size;
    out.parameters.push_back(std::move(p));
  }
  out.engine.as_of = as_of;
  variant.apply(out);
  tuning_of(out).clip(out, 0.0);
  return out;
}

Result<World> world_of(Scenario scenario, const Options& options, const ExploreVerb& verb) {
  ScriptItem step;
  step.kind = ScriptKind::step;
  scenario.script = {step};
  scenario.expect = {};
  if (const auto error = layout_problem(scenario)) return *error;
  if (const auto error = admission_error(scenario)) return *error;
  auto letters = letters_of(verb, scenario);
  if (!letters) return letters.error();
  World out{search::engine_of(scenario), {}};
  // Engines of loops that own their windows do not say what decides their future: every sequence is run.
  out.options.merge_states = search_space_of(scenario).calls(scenario)->manages_windows();
  out.options.world = std::move(scenario);
  out.options.alphabet = std::move(letters).value();
  out.options.length = verb.length;
  out.options.states_max = verb.states_max;
  out.options.seed = options.seed;
  out.options.jobs = options.driver ? 1 : verb.jobs;
  out.options.driver = options.driver;
  out.options.as_documented = !verb.any_script;
  return out;
}

// in_file: all that is wrong with FILE, where it is that.
Result<std::vector<World>> worlds_of(const Options& options, const ExploreVerb& verb, std::vector<InputError>& in_file) {
  std::vector<World> out;
  if (!verb.file.empty()) {
    const auto loaded = load(verb.file, options, Use::search, &in_file);
    if (!loaded) return loaded.error();
    if (auto error = not_searched(**loaded)) return *error;
    auto world = world_of((*loaded)->scenario, options, verb);
    if (!world) return world.error();
    out.push_back(std::move(world).value());
    return out;
  }
  auto named = variants_from(verb.engines);
  if (!named) return named.error();
  if (verb.world_size % verb.tensor_parallel != 0)
    return InputError{"--tensor-parallel", fmt::format("is {}, which does not divide the {} ranks of --world-size", verb.tensor_parallel, verb.world_size)};
  std::vector<const search::Variant*> chosen = std::move(named).value();
  for (const search::Variant& variant : search::variants())
    if (verb.engines.empty()) chosen.push_back(&variant);
  const Framework& framework = search::framework_of(*chosen.front());
  const std::string point = verb.as_of.empty() ? "head" : verb.as_of;
  const auto as_of = options.driver ? as_of_installed(framework, *options.driver, point, verb.switches) : as_of_from(framework, point, verb.switches);
  if (!as_of) return as_of.error();
  for (const search::Variant* variant : chosen) {
    Scenario small = small_world(verb, *as_of, *variant);
    if (verb.tensor_parallel > 1 && !search_space_of(small).share(small, verb.tensor_parallel))
      return InputError{"--tensor-parallel",
                        fmt::format("is of wrappers that add up what such ranks have of a gradient, as ddp and fsdp2, which --engine names; {} is none of them", variant->name)};
    auto world = world_of(std::move(small), options, verb);
    if (!world && world.error().where == "--alphabet") return world.error();
    if (!world) return InputError{"--engine", std::string(variant->name) + ": " + world.error().text()};
    out.push_back(std::move(world).value());
  }
  return out;
}

report::ExploreReport report_of(const World& world, const search::ExploreResult& r, double seconds) {
  report::ExploreReport out;
  out.engine = world.name;
  out.as_of = world.options.world.engine.as_of.base;
  for (const search::Found& f : r.found) out.found.push_back(found_row(f, "", "", world.options.seed));
  out.complete = r.complete;
  out.symmetric = r.symmetric;
  out.length = world.options.length;
  out.depth = r.depth;
  out.states = r.states;
  out.transitions = r.transitions;
  out.merged = r.merged;
  out.mirrored = r.mirrored;
  out.refused = r.refused;
  out.undocumented = r.undocumented;
  out.not_run = r.not_run;
  out.wrong = r.wrong;
  out.compared = r.elements;
  out.seconds = seconds;
  return out;
}

}  // namespace

std::string repeat_command(const Options& options, const ExploreVerb& verb) {
  const ExploreVerb otherwise;
  std::string out = fmt::format("gradledger explore --seed {}", options.seed);
  if (!verb.file.empty()) out += " " + file_word(verb.file) + verbs::overrides_words(options.overrides);
  for (const std::string& engine : verb.engines) out += " --engine " + engine;
  if (verb.file.empty() && !verb.as_of.empty()) out += " --as-of " + shell_word(verb.as_of);
  for (const std::string& text : verb.switches) out += " --switch " + shell_word(text);
  if (verb.world_size != otherwise.world_size) out += fmt::format(" --world-size {}", verb.world_size);
  if (verb.tensor_parallel != otherwise.tensor_parallel) out += fmt::format(" --tensor-parallel {}", verb.tensor_parallel);
  if (!verb.alphabet.empty()) out += " --alphabet " + shell_word(verb.alphabet);
  if (verb.any_script) out += " --any-script";
  if (verb.streams) out += " --streams";
  else out += fmt::format(" --length {}", verb.length);
  if (verb.states_max != otherwise.states_max) out += fmt::format(" --states-max {}", verb.states_max);
  if (verb.time_s) out += fmt::format(" --time {}", *verb.time_s);
  if (options.memory_limit != limits::memory_bytes_default) out += fmt::format(" --memory-limit {}", options.memory_limit);
  if (options.producer != "host") out += fmt::format(" --producer {} --python {}", shell_word(options.producer), shell_word(options.python));
  return out;
}

namespace {

using Exchange = search::Exchange;

// Null without --mpi. Where there are several processes, all explore and know the same, and the first prints it.
Result<std::unique_ptr<Exchange>> others(const Options& options, const ExploreVerb& verb, const Output& out) {
  if (!verb.mpi) return std::unique_ptr<Exchange>();
  auto joined = join_mpi(std::chrono::seconds(options.deadline_s));
  if (!joined) {
    const auto place = launched([](const char* name) -> const char* { return std::getenv(name); });
    out.be_silent(place && place->number > 0);
    return joined.error();
  }
  const Exchange& exchange = **joined;
  out.be_silent(exchange.number() > 0);
  out.record(report::ShardRow{"explore", exchange.number(), exchange.size(), "MPI", {}, options.repeat, options.seed, std::nullopt});
  return joined;
}

// Some of the processes are gone. What all knew of the levels before is printed by the first that is left.
void tell_lost(const search::ExploreResult& result, const Exchange& exchange, const Output& out) {
  std::uint32_t first = 0;
  while (std::find(result.lost.begin(), result.lost.end(), first) != result.lost.end()) ++first;
  out.be_silent(exchange.number() != first);
}

class Exploration {
 public:
  Exploration(const Options& options, const ExploreVerb& verb, const Output& out, Exchange* exchange) : options_(options), verb_(verb), out_(out), exchange_(exchange) {
    if (!exchange || exchange->number() == 0) progress_.emplace("exploring");
  }

  int run(const std::vector<World>& worlds) {
    int code = clean;
    for (const World& world : worlds) {
      const auto began = Clock::now();
      const search::ExploreResult result = explored(world);
      const bool lost = !result.why_lost.empty();
      if (lost) tell_lost(result, *exchange_, out_);
      if (result.elements == 0 && !lost && ended()) break;  // what was explored before is in the report
      if (result.elements == 0 && !lost) {
        complain({"--alphabet", "reaches no gradient: nothing was compared; expected a backward and a step among its events"});
        return bad_input;
      }
      aside([&] {
        if (&world == &worlds.front()) out_.head(repeat_command(options_, verb_));
        out_.print(report_of(world, result, std::chrono::duration<double>(Clock::now() - began).count()));
        if (lost)
          complain({"--mpi", fmt::format("{}: {}; its states from events {} on are lost, and what is reported is of all sequences of up to {}", world.name, result.why_lost,
                                         result.depth + 1, result.depth)},
                   broken_run);
      });
      if (lost) return broken_run;
      if (!result.complete || !result.found.empty()) code = findings;
      if (Interruption::signal() != 0) break;
    }
    return Interruption::exit_code_or(code);
  }

 private:
  using Clock = std::chrono::steady_clock;

  search::ExploreResult explored(const World& world) {
    search::ExploreOptions how = world.options;
    how.exchange = exchange_;
    how.stop = [this] { return ended(); };
    how.progress = [&](const search::ExploreResult& r) {
      if (progress_) progress_->set(fmt::format("{}: {} states, {} transitions, {} events deep, {} findings", world.name, r.states, r.transitions, r.depth, r.found.size()));
    };
    return search::explore(how);
  }

  bool ended() const { return Interruption::signal() != 0 || Output::failed() || (verb_.time_s && Clock::now() - start_ > std::chrono::seconds(*verb_.time_s)); }

  template <class Print>
  void aside(Print&& print) {
    if (progress_) progress_->aside(print);
    else print();
  }

  const Options& options_;
  const ExploreVerb& verb_;
  const Output& out_;
  Exchange* const exchange_;
  const Clock::time_point start_ = Clock::now();
  const Interruption interruption_;
  std::optional<Progress> progress_;
};

int explore_what_is_run(const Options& options, const ExploreVerb& verb, const Output& out) {
  if (verb.streams) return explore_streams_of(options, verb, out);
  auto exchange = others(options, verb, out);
  if (!exchange) {
    if (!out.silent()) complain(exchange.error());
    return unavailable;
  }
  std::vector<InputError> in_file;
  auto worlds = worlds_of(options, verb, in_file);
  if (!worlds) {
    if (out.silent()) return worlds.error().unavailable ? unavailable : bad_input;
    if (in_file.empty()) complain(worlds.error());
    else out.refuse(verb.file, in_file);
    return worlds.error().unavailable ? unavailable : bad_input;
  }
  const int code = Exploration(options, verb, out, exchange->get()).run(*worlds);
  out.keep(std::move(exchange).value());
  return code;
}

}  // namespace

int explore(const Options& options, const ExploreVerb& verb, const Output& out) {
  try {
    return explore_what_is_run(options, verb, out);
  } catch (const driver::NotRun& error) {  // a scenario of another framework than the driver's, or of what no release is
    if (!out.silent()) complain({verb.file, std::string("cannot be run: ") + error.what(), true});
    return unavailable;
  }
}

}  // namespace gradledger::tool
