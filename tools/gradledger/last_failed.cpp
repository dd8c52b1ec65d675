#include "tools/gradledger/last_failed.h"

#include <nlohmann/json.hpp>

#include "sim/base/files.h"
#include "verbs/new_file.h"

namespace gradledger::tool {
namespace fs = std::filesystem;

Result<LastFailed> LastFailed::read(const fs::path& file) {
  LastFailed out;
  std::error_code failed;
  if (!fs::exists(file, failed)) return out;
  const auto text = read_file(file);
  if (!text) return InputError{"--state", text.error().text()};
  const auto json = nlohmann::json::parse(*text, nullptr, false);
  const InputError wrong{"--state", file.string() + " is no file of --last-failed; expected one, or none"};
  if (!json.is_object() || json.value("schema_version", 0) != 1 || !json.contains("failed") || !json["failed"].is_array()) return wrong;
  for (const auto& name : json["failed"]) {
    if (!name.is_string()) return wrong;
    out.failed_.insert(name.get<std::string>());
  }
  return out;
}

void LastFailed::learn(const report::GateReport& gate) {
  for (const report::GateRow& row : gate.rows) {
    if (row.failed()) failed_.insert(key(row.file));
    else failed_.erase(key(row.file));
  }
}

Result<bool> LastFailed::write(const fs::path& file) const {
  std::error_code failed;
  if (file.has_parent_path()) fs::create_directories(file.parent_path(), failed);
  const nlohmann::ordered_json out{{"schema_version", 1}, {"failed", failed_}};
  const auto handler = nlohmann::ordered_json::error_handler_t::replace;  // a name need not be UTF-8
  const auto written = verbs::replace_file(file, out.dump(2, ' ', false, handler) + "\n");
  if (!written) return InputError{"--state", written.error().text()};
  return written;
}

std::string LastFailed::key(const fs::path& scenario) {
  std::error_code failed;
  const fs::path out = fs::proximate(fs::absolute(scenario, failed).lexically_normal(), failed);
  return failed ? scenario.string() : out.string();
}

}  // namespace gradledger::tool
