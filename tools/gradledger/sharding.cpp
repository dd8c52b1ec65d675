#include "tools/gradledger/sharding.h"

#include <cstdlib>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "tools/gradledger/call.h"
#include "tools/gradledger/launcher.h"
#include "tools/gradledger/numbers.h"

namespace gradledger::tool {
namespace {

struct Written {
  std::string option;
  std::string* name;
};

// The files that a run of the verb writes.
std::vector<Written> files_of(const std::string& verb, Options& options, FuzzOptions& fuzz, GateVerb& gate) {
  std::vector<Written> out{{"--records", &options.records}, {"--html", &options.html}, {"--driver-log", &options.driver_log}};
  for (auto& [name, file] : options.result_files)
    if (file != "-") out.push_back({"--" + name, &file});
  if (verb == "fuzz") out.push_back({"--findings", &fuzz.findings});
  if (verb == "gate" && gate.last_failed) out.push_back({"--state", &gate.state});
  std::erase_if(out, [](const Written& written) { return written.name->empty(); });
  return out;
}

bool fill_in(std::string& name, const std::string& shard) {
  const std::string placeholder = shard_placeholder;
  bool found = false;
  for (std::size_t at = name.find(placeholder); at != std::string::npos; at = name.find(placeholder, at + shard.size())) {
    name.replace(at, placeholder.size(), shard);
    found = true;
  }
  return found;
}

// What merge would refuse a night later.
std::optional<InputError> not_joined(const std::string& verb, const Options& options, const FuzzOptions& fuzz) {
  if (options.ranks == "launcher") return InputError{"--ranks", "launcher takes the processes for ranks of one run, and --shard auto for runs; expected one of the two"};
  if (verb != "fuzz") return std::nullopt;
  if (!fuzz.differ.empty()) return InputError{"--differ", "does not go with --shard auto, since its reports are not joined; expected --shard I/N"};
  if (options.producer != "host") return InputError{"--producer", "does not go with --shard auto, since campaigns of the simulator alone are joined; expected --shard I/N"};
  if (fuzz.resume) return InputError{"--resume", "does not go with --shard auto, since the report lacks what came before; expected --shard I/N"};
  return std::nullopt;
}

// A command that shows this again needs no launcher.
void say_shard(std::vector<std::string>& words, const std::string& shard) {
  for (std::size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
    if (words[i] == "--shard=auto") words[i] = "--shard=" + shard;
    else if (words[i] == "auto" && i > 0 && words[i - 1] == "--shard") words[i] = shard;
  }
}

report::DrawnFrom drawn_from(const FuzzOptions& fuzz) { return {fuzz.cases, fuzz.time_s, fuzz.only, fuzz.engines, fuzz.as_of, fuzz.switches, fuzz.any_script}; }

// Processes that share the states of one exploration print one report. Its records are written by each, and the head of these says which one it was.
std::optional<InputError> take_place_of_mpi(Options& options) {
  const auto environment = [](const char* name) -> const char* { return std::getenv(name); };
  const auto said = launched(environment);
  const Launched place = said ? *said : Launched{};  // MPI itself says who is there
  const bool filled = fill_in(options.records, fmt::format("{}-of-{}", place.number, place.of));
  if (!options.records.empty() && !filled && place.of > 1)
    return InputError{"--records", fmt::format("{} is one file for {} processes; expected {} in its name", options.records, place.of, shard_placeholder)};
  return std::nullopt;
}

}  // namespace

std::optional<InputError> take_sharding(const std::string& verb, std::vector<std::string>& words, Options& options, FuzzOptions& fuzz, GateVerb& gate, const ExploreVerb& explore) {
  if (verb == "explore") return explore.mpi ? take_place_of_mpi(options) : std::nullopt;
  if (verb != "fuzz" && verb != "gate") return std::nullopt;
  std::string& shard = verb == "fuzz" ? fuzz.shard : gate.shard;
  Launched place;
  const bool automatic = shard == "auto";
  if (automatic) {
    auto said = launched([](const char* name) -> const char* { return std::getenv(name); });
    if (!said) return said.error();
    if (const auto error = not_joined(verb, options, fuzz)) return error;
    place = std::move(said).value();
    shard = fmt::format("{}/{}", place.number, place.of);
    say_shard(words, shard);
    if (verb == "fuzz" && fuzz.findings == findings_default) fuzz.findings += std::string("-") + shard_placeholder;
  } else if (const auto said = shard_from(shard)) {
    std::tie(place.number, place.of) = *said;
  } else {
    return said.error();
  }
  const std::string part = fmt::format("{}-of-{}", place.number, place.of);
  for (const Written& written : files_of(verb, options, fuzz, gate))
    if (!fill_in(*written.name, part) && automatic && place.of > 1)
      return InputError{written.option, fmt::format("{} is one file for {} processes; expected {} in its name", *written.name, place.of, shard_placeholder)};
  if (!automatic && place.of == 1) return std::nullopt;
  options.of_a_launcher = automatic;
  options.shard = report::ShardRow{verb, place.number, place.of, place.launcher, std::move(place.variables), command_line(without_sharding(words)), options.seed, std::nullopt};
  if (verb == "fuzz" && !not_joined(verb, options, fuzz)) options.shard->draws = drawn_from(fuzz);
  return std::nullopt;
}

}  // namespace gradledger::tool
