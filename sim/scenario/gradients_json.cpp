#include "sim/scenario/gradients_json.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "sim/base/files.h"
#include "sim/scenario/json_reader.h"
#include "sim/scenario/mlp_json.h"
#include "sim/scenario/schema.h"

namespace gradledger {
namespace {

using nlohmann::json;
using Problem = std::optional<InputError>;

constexpr const char* table_rule = "/properties/gradients/properties/micro_batches";

// A table of values: by micro-batch, then by rank, then by parameter.
class TableReader {
 public:
  explicit TableReader(const Scenario& scenario) : scenario_(scenario) {}

  Problem read(const json& table, const std::string& where) {
    for (std::size_t m = 0; m < table.size(); ++m) {
      const std::string at = where + "/" + std::to_string(m);
      if (table[m].size() != scenario_.world_size)
        return InputError{at, "has entries for " + std::to_string(table[m].size()) + " ranks; expected one for each of " + std::to_string(scenario_.world_size)};
      values_.emplace_back();
      for (std::size_t r = 0; r < table[m].size(); ++r) {
        values_.back().emplace_back();
        if (Problem problem = read_rank(table[m][r], at + "/" + std::to_string(r))) return problem;
      }
    }
    return std::nullopt;
  }

  GivenValues take() { return std::move(values_); }

 private:
  // Parts follow each other as in the whole.
  Problem read_rank(const json& entry, const std::string& where) {
    std::size_t entries = 0;
    for (const Parameter& p : scenario_.parameters) {
      if (p.part && p.part->number > 0) continue;
      ++entries;
      if (!entry.contains(p.name)) return InputError{where, "lacks the gradient of parameter " + json(p.name).dump() + "; expected one for each parameter"};
      if (Problem problem = read_elements(entry[p.name], p, where + "/" + pointer_token(p.name))) return problem;
    }
    if (entry.size() == entries) return std::nullopt;
    for (const auto& gradient : entry.items()) {
      const std::string& name = gradient.key();
      if (std::none_of(scenario_.parameters.begin(), scenario_.parameters.end(), [&](const Parameter& p) { return p.name == name; }))
        return InputError{where + "/" + pointer_token(name), "names no parameter; expected the " + std::to_string(entries) + " of /parameters"};
    }
    return std::nullopt;
  }

  Problem read_elements(const json& elements, const Parameter& parameter, const std::string& where) {
    const std::uint64_t numel = parameter.numel * (parameter.part ? parameter.part->count : 1);
    if (elements.size() != numel) return InputError{where, "has " + std::to_string(elements.size()) + " elements; expected " + std::to_string(numel)};
    std::vector<double>& into = values_.back().back();
    for (std::size_t i = 0; i < elements.size(); ++i) {
      const json& element = elements[i];
      const double value = element.is_number() ? element.get<double>()
                           : element == "inf"  ? std::numeric_limits<double>::infinity()
                           : element == "-inf" ? -std::numeric_limits<double>::infinity()
                                               : std::numeric_limits<double>::quiet_NaN();
      if (element.is_number() && static_cast<double>(static_cast<float>(value)) != value)
        return InputError{where + "/" + std::to_string(i), "is no fp32 value; expected one that fp32 holds exactly"};
      into.push_back(value);
    }
    return std::nullopt;
  }

  const Scenario& scenario_;
  GivenValues values_;
};

Problem read_table(const json& table, const std::string& where, const Scenario& scenario, Gradients& out) {
  TableReader reader(scenario);
  if (Problem problem = reader.read(table, where)) return problem;
  out.values = std::make_shared<GivenValues>(reader.take());
  return std::nullopt;
}

// A file is held against the same rules as the inline form.
Problem read_table_file(const std::filesystem::path& directory, const Scenario& scenario, Gradients& out) {
  const auto text = read_file(directory / out.file);
  if (!text) return InputError{"/gradients/file", text.error().text()};
  const auto table = read_json(*text);
  if (!table) return InputError{"/gradients/file", out.file + ": " + table.error().text()};
  const std::string where = "/gradients/file, " + out.file + ":";
  if (Problem problem = check_against_part(table_rule, *table, where)) return problem;
  return read_table(*table, where, scenario, out);
}

}  // namespace

Result<Gradients> gradients_from_json(const json& gradients, const Scenario& scenario, const std::filesystem::path& directory) {
  Gradients out;
  const std::string kind = gradients["kind"];
  out.kind = kind == "probe"         ? GradientKind::probe
             : kind == "normal"      ? GradientKind::normal
             : kind == "adversarial" ? GradientKind::adversarial
             : kind == "mlp"         ? GradientKind::mlp
                                     : GradientKind::values;
  out.seed = gradients.value("seed", std::uint64_t{0});
  out.samples_per_micro_batch = gradients.value("samples_per_micro_batch", 1u);
  const bool inline_values = gradients.contains("micro_batches"), from_file = gradients.contains("file");
  if (out.kind != GradientKind::mlp)
    for (const char* key : {"activation", "layers"})
      if (gradients.contains(key)) return InputError{std::string("/gradients/") + key, "describes a network; expected it with kind \"mlp\" alone"};
  if (out.kind != GradientKind::values) {
    if (inline_values || from_file) return InputError{"/gradients/kind", "is \"" + kind + "\", but values are given; expected \"values\""};
    if (out.kind != GradientKind::mlp) return out;
    auto mlp = mlp_from_json(gradients, scenario);
    if (!mlp) return mlp.error();
    out.mlp = std::move(mlp).value();
    return out;
  }
  if (gradients.contains("samples_per_micro_batch"))
    return InputError{"/gradients/samples_per_micro_batch", "goes with random data; expected it without kind \"values\", which gives each micro-batch's gradient itself"};
  if (inline_values == from_file) return InputError{"/gradients", "of kind \"values\" need either micro_batches or file, and not both"};
  Problem problem;
  if (inline_values) {
    problem = read_table(gradients["micro_batches"], "/gradients/micro_batches", scenario, out);
  } else {
    out.file = gradients["file"];
    problem = read_table_file(directory, scenario, out);
  }
  if (problem) return *problem;
  return out;
}

}  // namespace gradledger
