#include "verbs/command.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "sim/base/files.h"

namespace gradledger::verbs {
namespace {

bool is_text(const std::string& word) {
  try {
    static_cast<void>(nlohmann::json(word).dump());
  } catch (const nlohmann::json::type_error&) {
    return false;  // no UTF-8
  }
  return std::none_of(word.begin(), word.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

}  // namespace

std::string shell_word(const std::string& path) {
  const std::string word = path.starts_with('-') ? "./" + path : path;
  constexpr std::string_view plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-./:=@%+,";
  if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) return word;
  const bool text = is_text(word);
  std::string out = text ? "'" : "$'";
  for (unsigned char c : word) {
    if (text) out += c == '\'' ? "'\\''" : std::string(1, static_cast<char>(c));
    else if (c == '\'' || c == '\\') out += std::string("\\") + static_cast<char>(c);
    else if (c < 0x20 || c >= 0x7f) out += fmt::format("\\x{:02x}", c);
    else out += static_cast<char>(c);
  }
  return out + "'";
}

std::string file_word(const std::filesystem::path& path) { return is_standard_input(path) ? "-" : shell_word(path.string()); }

std::string overrides_words(const std::vector<Override>& overrides) {
  std::string out;
  for (const Override& one : overrides) out += fmt::format(" {} {}", one.option, shell_word(one.argument));
  return out;
}

std::string producer_words(const Options& options) {
  std::string out;
  if (options.producer == "gpu") out += fmt::format(" --producer {} --ranks {}", options.producer, options.ranks);
  else if (options.producer.starts_with("program:")) out += " --producer " + shell_word(options.producer);
  else if (options.producer != "host") out += fmt::format(" --producer {} --python {}", shell_word(options.producer), shell_word(options.python));
  if (options.backend != "gradledger") out += " --backend " + options.backend;
  if (options.deliver != "eager") out += " --deliver " + options.deliver;
  if (!options.streams.empty()) out += " --streams " + options.streams;
  return out;
}

std::string repeat_command(const std::vector<std::filesystem::path>& paths, const Options& options) {
  std::string out = "gradledger replay";
  for (const std::filesystem::path& path : paths) out += " " + file_word(path);
  out += overrides_words(options.overrides);
  out += fmt::format(" --seed {}", options.seed);
  if (options.accounting) out += " --accounting";
  if (options.schedule != "seeded") out += " --schedule " + shell_word(options.schedule);
  if (options.schedule_seed) out += fmt::format(" --schedule-seed {}", *options.schedule_seed);
  if (options.full_ledger) out += " --ledger";
  if (options.summary) out += " --summary";
  if (options.executor != "auto") out += " --executor " + options.executor;
  out += producer_words(options);
  if (!options.compare.empty()) out += " --compare " + options.compare;
  if (options.memory_limit != limits::memory_bytes_default) out += fmt::format(" --memory-limit {}", options.memory_limit);
  return out;
}

std::string judge_command(const std::vector<std::string>& files, const std::string& run, const Options& options) {
  std::string out = "gradledger judge";
  for (const std::string& file : files) out += " " + file_word(file);
  if (!run.empty()) out += " --run " + shell_word(run);
  if (options.summary) out += " --summary";
  if (options.memory_limit != limits::memory_bytes_default) out += fmt::format(" --memory-limit {}", options.memory_limit);
  return out;
}

std::string race_command(const std::filesystem::path& path, const Options& options, const ref::Finding& finding) {
  if (!finding.race || !finding.race->schedule_seed) return "";
  Options visible = options;
  visible.schedule = "seeded";
  visible.schedule_seed = finding.race->schedule_seed;
  return repeat_command({path}, visible);
}

}  // namespace gradledger::verbs
