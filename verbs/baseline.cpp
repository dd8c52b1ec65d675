#include "verbs/baseline.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "ref/finding.h"
#include "sim/base/files.h"
#include "sim/scenario/json_reader.h"
#include "sim/scenario/positions.h"

namespace gradledger::verbs {
namespace {

using nlohmann::json;

constexpr int schema_version = 1;

// Reads one entry; the first thing that is wrong is kept.
class EntryReader {
 public:
  EntryReader(const json& entry, std::string pointer) : entry_(entry), pointer_(std::move(pointer)) {}

  std::string text(const char* key) {
    if (!entry_.is_object()) fail("", "is no object; expected one with scenario, class, reason and expires");
    else if (!entry_.contains(key)) fail("", fmt::format("lacks \"{}\"", key));
    else if (!entry_[key].is_string() || entry_[key].get<std::string>().empty()) fail(key, "is no text; expected one that is not empty");
    return error_ ? "" : entry_[key].get<std::string>();
  }

  void fail(const std::string& key, const std::string& what) {
    if (!error_) error_ = InputError{pointer_ + (key.empty() ? "" : "/" + pointer_token(key)), what};
  }

  void refuse_others(const std::set<std::string>& known) {
    if (error_) return;
    for (const auto& [key, value] : entry_.items())
      if (!known.contains(key)) fail(key, fmt::format("is not a key here; expected {}", fmt::join(known, ", ")));
  }

  const std::optional<InputError>& error() const { return error_; }

 private:
  const json& entry_;
  std::string pointer_;
  std::optional<InputError> error_;
};

Result<AcceptedFinding> read_entry(const json& in, const std::string& pointer, const std::string& today) {
  EntryReader entry(in, pointer);
  AcceptedFinding out;
  out.scenario = entry.text("scenario");
  out.finding = entry.text("class");
  out.reason = entry.text("reason");
  out.expires = entry.text("expires");
  entry.refuse_others({"class", "expires", "reason", "scenario"});
  if (!entry.error() && !ref::finding_class_named(out.finding)) entry.fail("class", "\"" + out.finding + "\" is no class of findings; see gradledger list findings");
  if (!entry.error() && !is_date(out.expires)) entry.fail("expires", "\"" + out.expires + "\" is no date; expected one as 2027-01-31");
  if (entry.error()) return *entry.error();
  out.expired = out.expires < today;
  return out;
}

Result<Baseline> read(const std::string& text, const std::string& today) {
  const auto in = read_json(text);
  if (!in) return in.error();
  if (!in->is_object() || !in->contains("schema_version")) return InputError{"", "lacks \"schema_version\"; expected 1"};
  if ((*in)["schema_version"] != schema_version) return InputError{"/schema_version", fmt::format("is {}; expected 1", (*in)["schema_version"].dump())};
  if (!in->contains("accepted") || !(*in)["accepted"].is_array()) return InputError{"/accepted", "is no array; expected the accepted findings"};
  for (const auto& [key, value] : in->items())
    if (key != "schema_version" && key != "accepted" && key != "$schema") return InputError{"/" + pointer_token(key), "is not a key here; expected schema_version and accepted"};
  Baseline out;
  std::set<std::pair<std::string, std::string>> seen;
  for (std::size_t i = 0; i < (*in)["accepted"].size(); ++i) {
    const std::string pointer = fmt::format("/accepted/{}", i);
    auto entry = read_entry((*in)["accepted"][i], pointer, today);
    if (!entry) return entry.error();
    if (!seen.emplace(entry->scenario, entry->finding).second) return InputError{pointer, "is there twice; expected each class of a scenario once"};
    out.accepted.push_back(std::move(entry).value());
  }
  return out;
}

}  // namespace

bool is_date(std::string_view text) {
  if (text.size() != 10 || text[4] != '-' || text[7] != '-') return false;
  int numbers[3] = {0, 0, 0};
  for (std::size_t i = 0, part = 0; i < text.size(); ++i) {
    if (i == 4 || i == 7) {
      ++part;
      continue;
    }
    if (text[i] < '0' || text[i] > '9') return false;
    numbers[part] = 10 * numbers[part] + (text[i] - '0');
  }
  const auto [year, month, day] = numbers;
  if (year < 1 || month < 1 || month > 12 || day < 1) return false;
  constexpr int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  const bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
  return day <= days[month - 1] + (month == 2 && leap ? 1 : 0);
}

Result<Baseline> read_baseline(const std::filesystem::path& path, const std::string& today) {
  const auto text = read_file(path);
  if (!text) return InputError{"--baseline", text.error().text()};
  auto out = read(*text, today);
  if (!out) return InputError{"--baseline", InputError{place_in(path, *text, out.error().where), out.error().message}.text()};
  return out;
}

}  // namespace gradledger::verbs
