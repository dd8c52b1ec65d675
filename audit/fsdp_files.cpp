#include "audit/fsdp_files.h"

#include <algorithm>
#include <array>
#include <optional>
#include <sstream>

#include <fmt/format.h>

#include "loops/of_packages.h"
#include "sim/scenario/json_reader.h"
#include "sim/scenario/spelling.h"

namespace gradledger::audit {
namespace {

using nlohmann::json;

// accelerate/utils/constants.py, FSDP_SHARDING_STRATEGY, in small letters as transformers' FSDPOption has them.
constexpr std::array<std::string_view, 5> strategies{"full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_zero2"};

// A release that decides what a file means, and how it is known.
struct Decides {
  std::string release, says;  // says: "transformers 5.24.0 (the newest that was read)"
  bool since(std::string_view first) const { return loops::at_least(release, first); }
};

Decides decides(const loops::Releases& releases, const std::vector<loops::LoopPackage>& packages, std::string_view name) {
  const std::string key(name);
  if (const auto found = releases.find(key); found != releases.end()) return {found->second, key + " " + found->second};
  const auto package = std::find_if(packages.begin(), packages.end(), [&](const loops::LoopPackage& p) { return p.name == name; });
  const std::string newest(package->newest);
  return {newest, fmt::format("{} {} (assumed, the newest that was read)", key, newest)};
}

// A section while it is made what the plugin of accelerate gets.
class Section {
 public:
  Section(const Document& file, std::string below, json values, Given& out) : file_(file), below_(std::move(below)), values_(std::move(values)), out_(out) {}

  // As it stands in the file: with "fsdp_" before it, or without. Empty: in neither way.
  std::string key_of(const std::string& name) const {
    for (const std::string& key : {"fsdp_" + name, name})
      if (values_.contains(key) && !values_[key].is_null()) return key;
    return "";
  }
  const json& operator[](const std::string& key) const { return values_[key]; }

  void fill(const std::string& name, const json& value, const std::string& why) {
    if (!key_of(name).empty()) return;
    set(name, value);
    out_.filled.push_back({"/" + name, value.is_string() ? value.get<std::string>() : value.dump(), why});
  }
  // Another place of the file says it.
  void set(const std::string& name, const json& value) { values_[name] = value; }
  // Keys that whoever reads the file leaves alone.
  void drop(const std::string& name, const std::string& who) {
    const std::string key = key_of(name);
    if (key.empty()) return;
    out_.notes.push_back(fmt::format("{} does not read {} of fsdp_config, which is left out.", who, key));
    out_.ignored.push_back(below_ + "/" + pointer_token(key));
    values_.erase(key);
  }

  // What it names, 1 or 2; nothing where it names none or, with an error, something else.
  std::optional<int> version() {
    const std::string key = key_of("version");
    if (key.empty()) return std::nullopt;
    for (const int known : {1, 2})
      if (values_[key] == known || values_[key] == std::to_string(known)) return known;
    out_.errors.push_back({file_.where(below_ + "/" + key), "is " + values_[key].dump() + "; expected 1, FullyShardedDataParallel, or 2, fully_shard"});
    return std::nullopt;
  }

  void give(int version) {
    for (const char* key : {"version", "fsdp_version"}) values_.erase(key);
    out_.framework = version == 2 ? "fsdp2" : "fsdp1";
    out_.config = Document{file_.file, std::move(values_), {}};
    for (const auto& [pointer, place] : file_.places)
      if (pointer.starts_with(below_ + "/")) out_.config->places[pointer.substr(below_.size())] = place;
  }

 private:
  const Document& file_;
  std::string below_;
  json values_;
  Given& out_;
};

bool is_section(const Document& file, const json& section, const std::string& below, Given& out) {
  if (!section.is_object()) out.errors.push_back({file.where(below), "is " + section.dump() + "; expected an object of keys"});
  return section.is_object();
}

void say_version(int version, const std::string& key, const std::string& who, Given& out) {
  out.notes.push_back(fmt::format("fsdp_config names no {}: {}, as {} takes it.", key, version == 1 ? "FSDP1" : "FSDP2", who));
}

struct FsdpWords {
  std::string strategy;  // empty: none
  bool offload = false, auto_wrap = false;
};

// What `fsdp` of a Trainer says: "full_shard auto_wrap", or a list of such.
FsdpWords words_of(const Document& file, const json& given, int version, Given& out) {
  std::string text;
  for (const json& word : given.is_array() ? given : json::array({given})) text += word.is_string() ? word.get<std::string>() + " " : "";
  const std::size_t offered = version == 2 ? 2 : strategies.size();
  std::vector<std::string> known{"offload", "auto_wrap"};
  known.insert(known.begin(), strategies.begin(), strategies.begin() + static_cast<std::ptrdiff_t>(offered));
  std::istringstream each(text);
  FsdpWords read;
  for (std::string word; each >> word;) {
    if (std::find(known.begin(), known.end(), word) == known.end())
      out.errors.push_back({file.where("/fsdp"), fmt::format("has \"{}\", which FSDP{} has not; expected {}{}", word, version, fmt::join(known, ", "), suggestion(word, known))});
    else if (word == "offload") read.offload = true;
    else if (word == "auto_wrap") read.auto_wrap = true;
    else read.strategy = word;
  }
  return read;
}

// transformers/training_args.py, _process_fsdp_args, at 4.45.2, 4.57.6, 5.0.0 to 5.12.0, 5.23.0 and 5.24.0: what version 1 gets of words and section.
void words_of_version_1(const FsdpWords& words, const Decides& transformers, Section& section) {
  section.drop("sharding_strategy", transformers.says);
  section.drop("offload_params", transformers.says);
  if (!words.strategy.empty()) section.set(transformers.since("5.4") ? "reshard_after_forward" : "sharding_strategy", words.strategy);
  if (!transformers.since("5.10")) {
    section.drop("cpu_offload", transformers.says);
    section.drop("auto_wrap_policy", transformers.says);
    if (!words.auto_wrap) section.fill("auto_wrap_policy", "NO_WRAP", "fsdp has no auto_wrap");
  }
  if (words.offload && section.key_of("cpu_offload").empty()) section.set("cpu_offload", true);
  section.fill("use_orig_params", true, "as a Trainer has it");
  section.fill("backward_prefetch", "NO_PREFETCH", "as a Trainer has it");
}

void words_of_version_2(const FsdpWords& words, Section& section) {
  if (words.strategy == "shard_grad_op" && section.key_of("reshard_after_forward").empty()) section.set("reshard_after_forward", false);
  if (words.offload && section.key_of("cpu_offload").empty()) section.set("cpu_offload", true);
}

}  // namespace

// commands/launch.py: what its arguments default to, at 0.34.2 to 1.15.0; utils/dataclasses.py, FullyShardedDataParallelPlugin: version 1 where none is
// named, and no other one before 1.6.
void take_launched_fsdp(const Document& file, const json& given, const loops::Releases& releases, Given& out) {
  const std::string below = "/fsdp_config";
  if (!is_section(file, given, below, out)) return;
  Section section(file, below, given, out);
  const std::size_t errors = out.errors.size();
  const std::optional<int> said = section.version();
  if (out.errors.size() > errors) return;
  if (!said) say_version(1, "fsdp_version", decides(releases, loops::accelerate_packages(), "accelerate").says, out);
  if (said.value_or(1) == 1) {
    section.fill("use_orig_params", true, "as accelerate launch has it");
    section.fill("backward_prefetch", "NO_PREFETCH", "as accelerate launch has it");
    section.fill("auto_wrap_policy", "NO_WRAP", "as accelerate launch has it");
  }
  section.give(said.value_or(1));
}

// Before 5.0 a Trainer does not read the version, and takes that of accelerate; since 5.10 it defaults to 2.
void take_trained_fsdp(const Document& file, const json& words, const Document& section_file, const std::string& below, const json& given, const loops::Releases& releases,
                       Given& out) {
  if (!is_section(section_file, given, below, out)) return;
  const Decides transformers = decides(releases, loops::trainer_packages(), "transformers");
  Section section(section_file, below, given, out);
  const std::size_t errors = out.errors.size();
  const std::optional<int> said = section.version();
  if (out.errors.size() > errors) return;
  const bool reads = transformers.since("5.0");
  const int version = reads && said ? *said : transformers.since("5.10") ? 2 : 1;
  if (!said) say_version(version, "version", transformers.says, out);
  else if (*said != version)
    out.notes.push_back(fmt::format("{} does not read the version of fsdp_config: FSDP1, unless FSDP_VERSION is 2 in the environment.", transformers.says));
  const FsdpWords read = words_of(file, words, version, out);
  if (version == 1) words_of_version_1(read, transformers, section);
  else words_of_version_2(read, section);
  section.give(version);
}

}  // namespace gradledger::audit
