#include "gradledger/scenario.h"

#include <ostream>

#include <nlohmann/json.hpp>

#include "library/parts.h"
#include "search/shrink/shape.h"
#include "sim/base/files.h"
#include "sim/load.h"
#include "sim/scenario/json_reader.h"
#include "sim/scenario/parse.h"

namespace gradledger::api {
namespace {

using nlohmann::json;

// A text that says nothing of a framework is of one of the user's own. Texts that are not JSON are left to whoever says what is wrong with them.
std::string with_engine(std::string_view text) {
  auto read = gradledger::read_json(text);
  if (!read || !read->is_object()) return std::string(text);
  json document = std::move(read).value();
  if (!document.contains("engine")) document["engine"] = json::object();
  json& engine = document["engine"];
  if (!engine.is_object()) return std::string(text);
  if (!engine.contains("framework")) engine["framework"] = "external";
  if (!engine.contains("config") && engine["framework"] == "external") engine["config"] = json::object();
  return document.dump();
}

bool states_zero_grad(const std::string& text) {
  const json document = json::parse(text);
  return document.contains("contract") && document["contract"].contains("zero_grad");
}

detail::ScenarioParts read(std::string_view text, const std::filesystem::path& file) {
  const std::string whole = with_engine(text);
  std::vector<gradledger::InputError> errors;
  auto scenario = gradledger::read_scenario(whole, file.parent_path(), {}, &errors);
  if (!scenario) {
    std::string all;
    for (const gradledger::InputError& error : errors) all += (all.empty() ? "" : "\n") + (file.empty() ? "" : file.string() + ": ") + error.text();
    throw BadInput(all);
  }
  auto timeline = gradledger::make_timeline(*scenario);
  if (!timeline) throw BadInput(timeline.error().text());
  return {std::move(scenario).value(), std::move(timeline).value(), states_zero_grad(whole), file.string()};
}

}  // namespace

Scenario::Scenario(std::string_view json) : parts_(std::make_shared<const detail::ScenarioParts>(read(json, {}))) {}

Scenario Scenario::load(const std::filesystem::path& path) {
  const auto text = gradledger::read_file(path);
  if (!text) throw BadInput(text.error().text());
  return detail::Access::scenario(read(*text, path));
}

const std::string& Scenario::name() const { return parts_->scenario.name; }
std::uint32_t Scenario::world_size() const { return parts_->scenario.world_size; }
std::string Scenario::script() const { return search::shape_of(parts_->scenario); }
std::string Scenario::json() const { return gradledger::to_json(parts_->scenario).dump(); }

std::ostream& operator<<(std::ostream& out, const Scenario& scenario) { return out << scenario.json(); }

}  // namespace gradledger::api
