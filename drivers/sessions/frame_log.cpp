#include "drivers/sessions/frame_log.h"

#include <span>
#include <stdexcept>

#include <fmt/format.h>

#include "sim/base/hash.h"

namespace gradledger::driver {
namespace {

using nlohmann::json;

// With a short form of what people cannot read.
json shown(const json& value) {
  if (value.is_binary()) {
    const auto& bytes = value.get_binary();
    TraceHash hash;
    hash.add_bytes(std::as_bytes(std::span<const std::uint8_t>(bytes)));
    return {{"bytes", bytes.size()}, {"hash", fmt::format("{:016x}", hash.value())}};
  }
  if (!value.is_structured()) return value;
  json out = value.is_array() ? json::array() : json::object();
  if (value.is_array())
    for (const json& entry : value) out.push_back(shown(entry));
  else
    for (const auto& [key, entry] : value.items()) out[key] = shown(entry);
  return out;
}

}  // namespace

FrameLog::FrameLog(const std::string& path) : start_(std::chrono::steady_clock::now()) {
  if (path.empty()) return;
  file_.open(path, std::ios::trunc);
  if (!file_) throw std::runtime_error(path + " cannot be written");
}

void FrameLog::add(const std::string& from, const std::string& to, const std::string& kind, const json& message) {
  if (!file_.is_open()) return;
  const std::chrono::duration<double> at = std::chrono::steady_clock::now() - start_;
  const json line{{"at", at.count()}, {"from", from}, {"to", to}, {"kind", kind}, {"message", shown(message)}};
  file_ << line.dump(-1, ' ', false, json::error_handler_t::replace) << '\n' << std::flush;
  if (!file_) throw std::runtime_error("the log of frames cannot be written any more");
}

}  // namespace gradledger::driver
