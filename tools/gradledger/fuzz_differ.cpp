#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "search/campaign/canary.h"
#include "search/campaign/differ.h"
#include "search/draw/loops.h"
#include "search/shrink/shape.h"
#include "sim/frameworks/history.h"
#include "sim/frameworks/search_space.h"
#include "sim/load.h"
#include "sim/scenario/spelling.h"
#include "tools/gradledger/devices.h"
#include "tools/gradledger/exit_codes.h"
#include "tools/gradledger/fuzz.h"
#include "tools/gradledger/interruption.h"
#include "tools/gradledger/output.h"
#include "tools/gradledger/progress.h"
#include "tools/gradledger/verbs.h"

namespace gradledger::tool {
namespace {

struct Sides {
  std::vector<search::Side> sides;
  std::unique_ptr<Devices> devices;
};

std::optional<InputError> add_producer(const std::string& name, const Options& options, Sides& out) {
  search::Side side{.name = name, .apply = [](Scenario&) {}};
  if (name == "gpu") {
    Options gpu = options;
    gpu.producer = "gpu";
    auto made = make_devices(gpu);
    if (!made) return made.error();
    out.devices = std::move(std::move(made).value().devices);
    side.devices = out.devices.get();
  }
  out.sides.push_back(std::move(side));
  return std::nullopt;
}

std::vector<std::string> known_sides() {
  std::vector<std::string> out{"host", "gpu", "head"};
  for (const Framework* framework : frameworks())
    if (framework->search_space())
      for (const search::Variant& variant : framework->search_space()->variants()) out.emplace_back(variant.name);
  return out;
}

// A producer, an engine, or a point in the history of the code.
Result<Sides> sides_from(const Options& options, const FuzzOptions& fuzz, const Framework& framework, bool plain_loops) {
  const auto is_point = [&](const std::string& name) { return framework.history() && framework.history()->contains_all_of(name, name); };
  Sides out;
  std::set<std::string> names;
  for (const std::string& name : comma_separated(fuzz.differ)) {
    if (!names.insert(name).second) return InputError{"--differ", "names \"" + name + "\" twice; expected sides that are not the same"};
    if (name == "host" || name == "gpu") {
      if (auto error = add_producer(name, options, out)) return *error;
    } else if (const auto variant = search::variant_named(name, "--differ")) {
      search::Side& side = out.sides.emplace_back(search::Side{.name = name, .apply = (*variant)->apply});
      if (plain_loops) side.apply = [engine = *variant](Scenario& s) { search::run_loop_on(*engine, s); };
    } else if (is_point(name)) {
      out.sides.push_back({.name = name, .apply = [name](Scenario& s) { s.engine.as_of.base = name; }});
    } else {
      return InputError{"--differ", "\"" + name + "\" is no release, change, engine or producer; expected as 0.18.9, \"before DeepSpeed#7981\", zero2-offload, host or gpu" +
                                        suggestion(name, known_sides())};
    }
  }
  if (out.sides.size() < 2) return InputError{"--differ", "names one side; expected two or more, comma-separated"};
  return out;
}

// What the sides name: engines, and the first that is none.
struct Named {
  std::vector<const search::Variant*> engines;
  std::string other;
};

Named named_by(const FuzzOptions& fuzz) {
  Named out;
  for (const std::string& name : comma_separated(fuzz.differ)) {
    if (const auto variant = search::variant_named(name, "--differ")) out.engines.push_back(*variant);
    else if (out.other.empty()) out.other = name;
  }
  return out;
}

// Sides of several frameworks get the same loop, written as each documents it. Else configurations are drawn of the framework whose engines the sides
// name. Errors: a side is no engine, or an option is of another framework.
std::optional<InputError> choose_what_is_drawn(const FuzzOptions& fuzz, search::Profile& profile) {
  const Named named = named_by(fuzz);
  if (named.engines.empty()) return std::nullopt;
  const Framework& framework = search::framework_of(*named.engines.front());
  profile.plain_loops = std::any_of(named.engines.begin(), named.engines.end(), [&](const search::Variant* v) { return &search::framework_of(*v) != &framework; });
  if (!profile.plain_loops) {
    if (&search::framework_of(profile) == &framework) return std::nullopt;
    if (!fuzz.engines.empty())
      return InputError{"--engine",
                        fmt::format("names {}, and --differ names {}, which are of two frameworks; expected engines of one", fuzz.engines.front(), named.engines.front()->name)};
    if (const auto as_of = as_of_from(framework, fuzz.as_of, fuzz.switches); !as_of) return as_of.error();
    for (const search::Variant& variant : framework.search_space()->variants()) profile.variants.push_back(&variant);
    return std::nullopt;
  }
  if (!named.other.empty())
    return InputError{"--differ", "names engines of several frameworks, and \"" + named.other + "\" beside them; expected engines alone, as ddp,fsdp2,zero3"};
  if (!fuzz.engines.empty()) return InputError{"--engine", "goes with sides of one framework; expected it left out, as --differ names the engines"};
  if (fuzz.as_of != "head" || !fuzz.switches.empty())
    return InputError{fuzz.switches.empty() ? "--as-of" : "--switch", "is of one framework, and --differ names engines of several; expected it left out"};
  return std::nullopt;
}

// What a gate over the file is to expect.
void expect_what_is_reported(Scenario& scenario, const Options& options, Devices* devices) {
  search::CampaignOptions how;
  how.seed = options.seed;
  how.devices = devices;
  std::set<std::string_view> classes;
  const auto timeline = make_timeline(scenario);
  const ref::Verdict verdict = search::judge_case(scenario, *timeline, how);
  scenario.allow_open = !verdict.judged();
  for (const ref::Finding& f : verdict.findings) classes.insert(name_of(f.finding));
  for (const std::string_view name : classes) scenario.expect.findings.emplace_back().finding = name;
}

// One file a side, apart from the findings of campaigns: what they say of one state of the code is nothing to replay at another.
Result<std::vector<std::string>> write(const search::DifferFound& found, const std::vector<search::Side>& sides, FindingsFolder& folder, const Options& options,
                                       const FuzzOptions& fuzz) {
  std::vector<std::string> paths;
  const std::string command = fmt::format("gradledger fuzz{} --differ {}", drawn_by(options, fuzz), shell_word(fuzz.differ));
  for (const std::size_t side : {found.parting.one, found.parting.other}) {
    Scenario scenario = found.scenario;
    sides[side].apply(scenario);
    std::string slug = sides[side].name;
    for (char& c : slug)
      if (!std::isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '-') c = '_';
    scenario.name = "differ-" + search::short_hash(found.shape + found.parting.text) + "-" + slug;
    scenario.note = fmt::format("Found by {}, case {}: {}. Draw it again: {} --case {}", command, found.number, found.explanation, command, found.number);
    expect_what_is_reported(scenario, options, sides[side].devices);
    const auto same = [&](Scenario there) {
      there.name = scenario.name;
      there.note = scenario.note;
      return there == scenario;
    };
    const auto kept = folder.keep(scenario, same);
    if (!kept) return kept.error();
    paths.push_back(kept->path.string());
  }
  return paths;
}

int refused(const InputError& error) {
  complain(error);
  return error.unavailable ? unavailable : bad_input;
}

}  // namespace

int fuzz_differ(const Options& options, const FuzzOptions& fuzz, const Output& out) {
  auto drawn = campaign_options(options, fuzz);
  if (!drawn) return refused(drawn.error());
  search::CampaignOptions campaign = std::move(drawn).value();
  if (const auto error = choose_what_is_drawn(fuzz, campaign.profile)) return refused(*error);
  auto sides = sides_from(options, fuzz, framework_of(campaign.profile), campaign.profile.plain_loops);
  if (!sides) return refused(sides.error());
  FindingsFolder folder(std::filesystem::path(fuzz.findings) / differ_folder);
  folder.scenarios();
  Progress progress("comparing");
  std::optional<InputError> not_written;
  bool headed = false;
  const auto head = [&] {
    if (!std::exchange(headed, true)) out.head(repeat_command(options, fuzz));
  };
  search::DifferWatch watch;
  watch.found = [&](const search::DifferFound& found) {
    const auto paths = write(found, sides->sides, folder, options, fuzz);
    if (!paths) not_written = paths.error();
    const search::Parting& parting = found.parting;
    progress.aside([&] {
      head();
      out.print(report::DifferenceRow{sides->sides[parting.one].name, sides->sides[parting.other].name, found.number, found.shape, found.explanation,
                                      paths ? *paths : std::vector<std::string>{"not written"}});
    });
  };
  watch.progress = [&](const search::DifferState& s) { progress.set(fmt::format("{} cases, {} compared, {} differ", s.cases, s.compared, s.differing)); };
  campaign.stop = [over = campaign.stop] { return Interruption::signal() != 0 || Output::failed() || over(); };
  const search::DifferState state = search::run_differ(campaign, sides->sides, watch);
  if (state.compared == 0 && Interruption::signal() == 0) {
    complain({"--differ", fmt::format("of {} cases none could be compared; expected sides that serve the same configurations", state.cases)});
    return bad_input;
  }
  const auto canary = search::cases_until_differ_canary(options.seed);
  progress.aside(head);
  report::DifferSummary summary{.command = repeat_command(options, fuzz), .cases = state.cases, .compared = state.compared};
  summary.differing = state.differing;
  summary.unlike = state.found.size();
  summary.canary = canary;
  if (state.stopped) summary.ended_by = Interruption::signal() != 0 ? Interruption::name() : Output::failed() ? "standard output" : "--time";
  progress.aside([&] { out.print(summary); });
  if (not_written) return refused(*not_written);
  if (!canary) {
    complain({"", "the canary, a fault that must make a difference, made none; what this campaign says means nothing"}, internal_error);
    return internal_error;
  }
  return Interruption::exit_code_or(state.found.empty() ? clean : findings);
}

}  // namespace gradledger::tool
