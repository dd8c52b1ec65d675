#include <chrono>

#include <fmt/format.h>

#include "tools/gradledger/fuzz.h"
#include "tools/gradledger/numbers.h"
#include "tools/gradledger/verbs.h"

namespace gradledger::tool {

Result<std::vector<const search::Variant*>> variants_from(const std::vector<std::string>& names) {
  std::vector<const search::Variant*> out;
  for (const std::string& name : names) {
    const auto variant = search::variant_named(name, "--engine");
    if (!variant) return variant.error();
    if (!out.empty() && &search::framework_of(**variant) != &search::framework_of(*out.front()))
      return InputError{"--engine", fmt::format("names {} and {}, which are of two frameworks; expected engines of one", out.front()->name, name)};
    out.push_back(*variant);
  }
  return out;
}

Result<AsOf> as_of_from(const Framework& framework, const std::string& base, const std::vector<std::string>& switches) {
  AsOf out{base, {}};
  for (const std::string& text : switches) {
    const std::size_t at = text.find('=');
    if (at == std::string::npos) return InputError{"--switch", "\"" + text + "\" sets nothing; expected name=value"};
    out.switches[text.substr(0, at)] = text.substr(at + 1);
  }
  if (const auto error = framework.as_of_problem(out)) {
    const bool of_base = error->where == "/engine/as_of" || error->where == "/engine/as_of/base";
    return InputError{of_base || switches.empty() ? "--as-of" : "--switch", error->message};
  }
  say_what_is_taken_as("--as-of", framework, base);
  return out;
}

Result<AsOf> as_of_installed(const Framework& framework, driver::DriverRanks& driver, const std::string& base, const std::vector<std::string>& switches) {
  if (base != "head" || !switches.empty())
    return InputError{switches.empty() ? "--as-of" : "--switch", "goes with the simulator: a real framework is of the release that is installed"};
  const driver::DriverHello& hello = driver.hello();
  if (!hello.frameworks.contains(std::string(framework.id())))
    return InputError{"--producer", fmt::format("driver {} does not serve {}, whose configurations are drawn", hello.driver, framework.id())};
  const AsOf out = framework.installed(hello.versions).value_or(AsOf{});
  if (const auto error = framework.as_of_problem(out)) return InputError{"--producer", error->message};
  return out;
}

std::vector<std::string> comma_separated(const std::string& text) {
  std::vector<std::string> out(1);
  for (const char c : text) {
    if (c == ',') out.emplace_back();
    else out.back() += c;
  }
  return out;
}

Result<search::CampaignOptions> campaign_options(const Options& options, const FuzzOptions& fuzz) {
  search::CampaignOptions out;
  auto engines = variants_from(fuzz.engines);
  if (!engines) return engines.error();
  out.profile.variants = std::move(engines).value();
  auto as_of =
      options.driver ? as_of_installed(framework_of(out.profile), *options.driver, fuzz.as_of, fuzz.switches) : as_of_from(framework_of(out.profile), fuzz.as_of, fuzz.switches);
  if (!as_of) return as_of.error();
  out.profile.as_of = *as_of;
  out.profile.as_documented = !fuzz.any_script;
  const auto shard = shard_from(fuzz.shard);
  if (!shard) return shard.error();
  std::tie(out.shard, out.shards) = *shard;
  out.seed = options.seed;
  out.jobs = options.devices || options.driver ? 1 : fuzz.jobs;
  out.devices = options.devices;
  out.driver = options.driver;
  constexpr std::uint64_t endless = 1ull << 40;
  out.cases = fuzz.cases.value_or(fuzz.time_s ? endless : options.driver ? cases_default_driver : cases_default);
  if (fuzz.only) {
    out.first = *fuzz.only;
    out.cases = 1;
  }
  if (fuzz.time_s) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(*fuzz.time_s);
    out.stop = [end] { return std::chrono::steady_clock::now() >= end; };
  }
  return out;
}

std::string drawn_by(const Options& options, const FuzzOptions& fuzz) {
  std::string out = fmt::format(" --seed {}", options.seed);
  for (const std::string& engine : fuzz.engines) out += " --engine " + engine;
  if (fuzz.as_of != "head") out += " --as-of " + shell_word(fuzz.as_of);
  for (const std::string& text : fuzz.switches) out += " --switch " + shell_word(text);
  if (fuzz.any_script) out += " --any-script";
  return out + verbs::producer_words(options);
}

std::optional<InputError> no_case_taken(const search::CampaignOptions& campaign) {
  const std::uint64_t ahead = (campaign.shard + campaign.shards - campaign.first % campaign.shards) % campaign.shards;
  if (ahead < campaign.cases) return std::nullopt;
  return InputError{"--shard", "takes none of the cases; expected more --cases or fewer shards"};
}

std::string repeat_command(const Options& options, const FuzzOptions& fuzz) {
  std::string out = "gradledger fuzz" + drawn_by(options, fuzz);
  if (fuzz.cases) out += fmt::format(" --cases {}", *fuzz.cases);
  if (fuzz.time_s) out += fmt::format(" --time {}", *fuzz.time_s);
  if (fuzz.only) out += fmt::format(" --case {}", *fuzz.only);
  if (fuzz.shard != "0/1") out += " --shard " + fuzz.shard;
  if (!fuzz.differ.empty()) out += " --differ " + shell_word(fuzz.differ);
  if (!fuzz.catalogue.empty()) out += " --catalogue " + shell_word(fuzz.catalogue);
  if (!fuzz.findings.empty() && fuzz.findings != findings_default) out += " --findings " + shell_word(fuzz.findings);
  return out;
}

}  // namespace gradledger::tool
