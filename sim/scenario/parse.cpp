#include "sim/scenario/parse.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "sim/base/limits.h"
#include "sim/scenario/catalogue.h"
#include "sim/scenario/config_json.h"
#include "sim/scenario/engine_json.h"
#include "sim/scenario/gradients_json.h"
#include "sim/scenario/json_reader.h"
#include "sim/scenario/layout.h"
#include "sim/scenario/parameters_json.h"
#include "sim/scenario/schema.h"
#include "sim/scenario/timeline.h"

namespace gradledger {
namespace {

using nlohmann::json;
using Problem = std::optional<InputError>;

// Reads a document that passed the schema; what a schema cannot say is checked here.
class Reader {
 public:
  Reader(const json& document, const std::filesystem::path& directory) : document_(document), directory_(directory) {}

  Result<Scenario> read() {
    using Step = Problem (Reader::*)();
    for (Step step : {&Reader::read_world, &Reader::read_engine, &Reader::read_contract, &Reader::read_script, &Reader::read_gradients,
                      &Reader::read_expect, &Reader::check_whole})
      if (Problem problem = (this->*step)()) return *problem;
    return std::move(out_);
  }

 private:
  Problem read_world() {
    out_.name = document_["name"];
    if (!printable(out_.name)) return InputError{"/name", "holds a control character; expected a name that can be printed"};
    out_.note = document_.value("note", "");
    out_.source = document_.value("source", std::vector<std::string>{});
    if (Problem problem = read_covers()) return problem;
    out_.twin_of = document_.value("twin_of", "");
    out_.world_size = document_["world_size"];
    auto parameters = parameters_from_json(document_["parameters"]);
    if (!parameters) return parameters.error();
    out_.parameters = std::move(parameters).value();
    for (const Parameter& parameter : out_.parameters) names_.emplace(parameter.name, parameter.has_gradient());
    return std::nullopt;
  }

  Problem read_covers() {
    out_.covers = document_.value("covers", std::vector<std::string>{});
    std::set<std::string> seen;
    for (std::size_t i = 0; i < out_.covers.size(); ++i) {
      const std::string where = "/covers/" + std::to_string(i);
      if (const auto entry = entry_named(out_.covers[i], where); !entry) return entry.error();
      if (!seen.insert(out_.covers[i]).second) return InputError{where, "names " + json(out_.covers[i]).dump() + " again; expected each entry once"};
    }
    return std::nullopt;
  }

  Problem read_engine() {
    auto engine = engine_from_json(document_["engine"], out_.world_size, out_.parameters);
    if (!engine) return engine.error();
    out_.engine = std::move(engine).value();
    if (Problem problem = layout_problem(out_)) return problem;
    return settle_model_dtype();
  }

  // model_dtype and the enabled sections say the same; either alone is enough.
  Problem settle_model_dtype() {
    DeepSpeedConfig& config = out_.engine.config;
    const json& given = document_["engine"]["config"];
    const Dtype configured = config.bf16.enabled ? Dtype::bfloat16 : config.fp16.enabled ? Dtype::float16 : Dtype::float32;
    out_.model_dtype = configured;
    if (!document_.contains("model_dtype")) return std::nullopt;
    const Dtype wanted = *gradient_dtype_named(document_["model_dtype"].get<std::string>());
    const auto unsaid = [&](const char* section) { return !given.contains(section) || !given[section].contains("enabled"); };
    if (configured == Dtype::float32 && wanted == Dtype::bfloat16 && unsaid("bf16")) config.bf16.enabled = true;
    else if (configured == Dtype::float32 && wanted == Dtype::float16 && unsaid("fp16")) config.fp16.enabled = true;
    else if (configured != wanted)
      return InputError{"/model_dtype", "is \"" + std::string(name_of(wanted)) + "\", but the bf16 and fp16 sections of /engine/config make it \"" +
                                            std::string(name_of(configured)) + "\""};
    out_.model_dtype = wanted;
    return std::nullopt;
  }

  Problem read_contract() {
    if (!document_.contains("contract")) return std::nullopt;
    const json& contract = document_["contract"];
    if (contract.value("window", "") == "every_step_call") out_.contract.window = Window::every_step_call;
    out_.contract.average_over_world = contract.value("average_over", "world") == "world";
    if (contract.contains("divide_by") && contract["divide_by"].is_number()) out_.contract.divide_by = contract["divide_by"];
    out_.contract.zero_grad_discards = contract.value("zero_grad", "discards") == "discards";
    return std::nullopt;
  }

  // ---- script -----------------------------------------------------------------------------------------------------------------------

  Problem read_script() {
    if (document_.value("after_error", "stop") == "go_on") out_.after_error = AfterError::go_on;
    return read_items(document_["script"], "/script", out_.script);
  }

  Problem read_items(const json& items, const std::string& where, std::vector<ScriptItem>& into) {
    for (std::size_t i = 0; i < items.size(); ++i) {
      const auto entry = items[i].begin();
      ScriptItem item;
      if (Problem problem = read_item(entry.key(), entry.value(), where + "/" + std::to_string(i), item)) return problem;
      into.push_back(std::move(item));
    }
    return std::nullopt;
  }

  Problem read_item(const std::string& key, const json& value, const std::string& where, ScriptItem& item) {
    const std::string here = where + "/" + key;
    if (value.is_object() && value.contains("ranks"))
      if (Problem problem = read_ranks(value["ranks"], here + "/ranks", item.ranks)) return problem;
    if (key == "forward") {
      item.kind = ScriptKind::forward;
    } else if (key == "backward") {
      return read_backward(value, here, item);
    } else if (key == "set_boundary") {
      item.kind = ScriptKind::set_boundary;
      item.boundary = value.is_boolean() ? value.get<bool>() : value["value"].get<bool>();
    } else if (key == "step") {
      item.kind = ScriptKind::step;
    } else if (key == "zero_grad") {
      const std::string of = value.is_string() ? value : value["of"];
      item.kind = of == "engine" ? ScriptKind::engine_zero_grad : ScriptKind::optimizer_zero_grad;
    } else if (key == "overflow") {
      return read_overflow(value, here, item);
    } else if (key == "no_sync") {
      item.kind = ScriptKind::no_sync;
      return read_items(value, here, item.items);
    } else if (key == "coalesce") {
      item.kind = ScriptKind::coalesce;
      return read_items(value, here, item.items);
    } else if (key == "raise") {
      item.kind = ScriptKind::raise;
      item.caught = value.value("caught", false);
    } else {
      item.kind = ScriptKind::repeat;
      item.times = value["times"];
      return read_items(value["of"], here + "/of", item.items);
    }
    return std::nullopt;
  }

  Problem read_backward(const json& value, const std::string& here, ScriptItem& item) {
    item.kind = ScriptKind::backward;
    item.micro_batches = value.value("micro_batches", 1u);
    if (value.contains("of")) item.of = value["of"];
    if (value.contains("micro_batch")) item.micro_batch = value["micro_batch"];
    item.scale_wrt_gas = value.value("scale_wrt_gas", true);
    item.phases = value.value("phases", 1u);
    item.direct = value.value("direct", false);
    if (item.of && item.micro_batches != 1)
      return InputError{here + "/micro_batches", "goes with backwards that run their own forward; expected it without \"of\""};
    if (value.contains("uses"))
      if (Problem problem = read_names(value["uses"], here + "/uses", item.uses)) return problem;
    for (const std::string& name : item.uses)
      if (!names_.at(name))
        return InputError{here + "/uses", "names " + json(name).dump() + ", which has no gradient of its own; expected parameters that are trainable and not tied to others"};
    if (!value.contains("order")) return std::nullopt;
    for (const auto& [key, names] : value["order"].items()) {
      std::uint32_t rank = 0;
      const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), rank);
      if (error != std::errc{} || end != key.data() + key.size() || rank >= out_.world_size || std::to_string(rank) != key)
        return InputError{here + "/order", "has the key " + json(key).dump() + "; expected ranks from 0 to " + std::to_string(out_.world_size - 1)};
      if (Problem problem = read_names(names, here + "/order/" + key, item.order[rank])) return problem;
    }
    return std::nullopt;
  }

  Problem read_names(const json& names, const std::string& where, std::vector<std::string>& into) {
    std::set<std::string> seen;
    for (std::size_t i = 0; i < names.size(); ++i) {
      const std::string name = names[i], at = where + "/" + std::to_string(i);
      if (Problem problem = check_named(name, at)) return problem;
      if (!seen.insert(name).second) return InputError{at, "names " + json(name).dump() + " again; expected each parameter once"};
      into.push_back(name);
    }
    return std::nullopt;
  }

  Problem read_overflow(const json& value, const std::string& here, ScriptItem& item) {
    item.kind = ScriptKind::overflow;
    item.micro_batch = value["micro_batch"];
    if (value.contains("rank")) {
      if (value.contains("ranks")) return InputError{here + "/rank", "is given, and so is ranks; expected one of the two"};
      const std::uint32_t rank = value["rank"];
      if (rank >= out_.world_size)
        return InputError{here + "/rank", "is rank " + std::to_string(rank) + " of a world of " + std::to_string(out_.world_size) +
                                              "; expected ranks from 0 to " + std::to_string(out_.world_size - 1)};
      if (out_.world_size > 1) item.ranks = {rank};
    }
    if (value.contains("parameter")) {
      item.uses.push_back(value["parameter"]);
      if (Problem problem = check_named(item.uses.front(), here + "/parameter")) return problem;
    }
    const std::string planted = value.value("value", "inf");
    item.planted = planted == "inf" ? PlantedValue::infinity : planted == "-inf" ? PlantedValue::minus_infinity : PlantedValue::not_a_number;
    return std::nullopt;
  }

  Problem check_named(const std::string& name, const std::string& where) const {
    if (names_.contains(name)) return std::nullopt;
    return InputError{where, "names no parameter: " + json(name).dump() + "; expected one of " + parameter_names()};
  }

  Problem read_ranks(const json& ranks, const std::string& where, std::vector<std::uint32_t>& into) {
    into = ranks.get<std::vector<std::uint32_t>>();
    std::set<std::uint32_t> seen;
    for (std::size_t i = 0; i < into.size(); ++i) {
      const std::string at = where + "/" + std::to_string(i), name = "rank " + std::to_string(into[i]);
      if (into[i] >= out_.world_size)
        return InputError{at, "is " + name + " of a world of " + std::to_string(out_.world_size) + "; expected ranks from 0 to " + std::to_string(out_.world_size - 1)};
      if (!seen.insert(into[i]).second) return InputError{at, "names " + name + " again; expected each rank once"};
    }
    std::sort(into.begin(), into.end());
    if (into.size() == out_.world_size) into.clear();
    return std::nullopt;
  }

  std::string parameter_names() const {
    std::string out;
    for (std::size_t i = 0; i < out_.parameters.size() && i < 16; ++i) out += (i ? ", " : "") + json(out_.parameters[i].name).dump();
    return out_.parameters.size() > 16 ? out + ", ..." : out;
  }

  // ---- gradients ----------------------------------------------------------------------------------------------------------------------

  Problem read_gradients() {
    if (!document_.contains("gradients")) return std::nullopt;
    auto gradients = gradients_from_json(document_["gradients"], out_, directory_);
    if (!gradients) return gradients.error();
    out_.gradients = std::move(gradients).value();
    return std::nullopt;
  }

  // ---- expectations -------------------------------------------------------------------------------------------------------------------

  Problem read_expect() {
    if (!document_.contains("expect")) return std::nullopt;
    const json& expect = document_["expect"];
    for (std::size_t i = 0; expect.contains("findings") && i < expect["findings"].size(); ++i)
      if (Problem problem = read_expected_finding(expect["findings"][i], "/expect/findings/" + std::to_string(i))) return problem;
    if (expect.contains("collectives")) {
      for (const auto& [purpose, counts] : expect["collectives"].items()) {
        ExpectedCollectives& expected = out_.expect.collectives[purpose];
        if (counts.contains("per_step")) expected.per_step = counts["per_step"];
        if (counts.contains("at_most_per_step")) expected.at_most_per_step = counts["at_most_per_step"];
        if (counts.contains("bytes_per_step")) expected.bytes_per_step = counts["bytes_per_step"];
        if (counts.contains("at_most_bytes_per_step")) expected.at_most_bytes_per_step = counts["at_most_bytes_per_step"];
      }
    }
    out_.expect.not_allocated = expect.value("not_allocated", std::vector<std::string>{});
    if (expect.contains("values")) {
      for (std::size_t i = 0; i < expect["values"].size(); ++i) {
        const json& v = expect["values"][i];
        if (v["rank"] >= out_.world_size)
          return InputError{"/expect/values/" + std::to_string(i) + "/rank", "lies outside a world of " + std::to_string(out_.world_size) +
                                                                               "; expected ranks from 0 to " + std::to_string(out_.world_size - 1)};
        out_.expect.values.push_back({v["event"], v["rank"], v["buffer"], v["values"].get<std::vector<double>>()});
      }
    }
    if (expect.contains("comparison"))
      out_.expect.comparison = ExpectedComparison{expect["comparison"]["with"], expect["comparison"]["applied"] == "agree"};
    if (Problem problem = read_expected_memory(expect)) return problem;
    return read_accounting_only(expect);
  }

  Problem read_expected_memory(const json& expect) {
    for (std::size_t i = 0; expect.contains("memory") && i < expect["memory"].size(); ++i) {
      const json& given = expect["memory"][i];
      const std::string where = "/expect/memory/" + std::to_string(i);
      ExpectedMemory memory;
      memory.of = given.value("of", memory.of);
      memory.space = given.value("space", memory.space);
      memory.phase = given.value("phase", memory.phase);
      if (given.contains("rank")) memory.rank = given["rank"];
      if (memory.rank && *memory.rank >= out_.world_size)
        return InputError{where + "/rank", "lies outside a world of " + std::to_string(out_.world_size) + "; expected ranks from 0 to " + std::to_string(out_.world_size - 1)};
      for (auto [key, into] : {std::pair{"resident", &memory.resident}, std::pair{"at_most_resident", &memory.at_most_resident}, std::pair{"peak", &memory.peak},
                               std::pair{"at_most_peak", &memory.at_most_peak}})
        if (given.contains(key)) *into = given[key].get<std::uint64_t>();
      if (!memory.resident && !memory.at_most_resident && !memory.peak && !memory.at_most_peak)
        return InputError{where, "states no bytes; expected at least one of resident, at_most_resident, peak, at_most_peak"};
      if (memory.phase.empty() && (memory.resident || memory.at_most_resident))
        return InputError{where, "says what is resident, but not after which phase; expected \"phase\" too"};
      out_.expect.memory.push_back(std::move(memory));
    }
    return std::nullopt;
  }

  // Nothing that needs a judgement, and something that needs none.
  Problem read_accounting_only(const json& expect) {
    out_.expect.accounting_only = expect.value("accounting_only", false);
    if (!out_.expect.accounting_only) return std::nullopt;
    for (const char* key : {"findings", "values", "comparison"})
      if (expect.contains(key))
        return InputError{std::string("/expect/") + key, "needs a judgement, and \"accounting_only\" rules it out; expected one of the two"};
    const Expect& stated = out_.expect;
    if (stated.collectives.empty() && stated.memory.empty() && stated.not_allocated.empty())
      return InputError{"/expect/accounting_only", "leaves nothing to hold; expected collectives, memory or not_allocated beside it"};
    return std::nullopt;
  }

  Problem read_expected_finding(const json& finding, const std::string& where) {
    ExpectedFinding expected;
    expected.finding = finding["class"];
    if (finding.contains("contributions")) {
      auto predicate = Predicate::parse(finding["contributions"].get<std::string>(), where + "/contributions");
      if (!predicate) return predicate.error();
      expected.contributions = *predicate;
    }
    for (auto [key, into] : {std::pair{"own", &expected.own}, std::pair{"peer", &expected.peer}, std::pair{"lost_weight", &expected.lost_weight}})
      if (finding.contains(key) && !(*into = fraction(finding[key])))
        return InputError{where + "/" + key, "cannot be read; expected a number, or a fraction such as \"3/8\""};
    out_.expect.findings.push_back(std::move(expected));
    return std::nullopt;
  }

  // A number, or "3/8": digits, a slash, digits that are not all 0.
  static std::optional<double> fraction(const json& value) {
    if (value.is_number()) return value.get<double>();
    const std::string& text = value.get_ref<const std::string&>();
    const char* const end = text.data() + text.size();
    std::uint32_t numerator = 0, denominator = 0;
    const auto [slash, first] = std::from_chars(text.data(), end, numerator);
    if (first != std::errc{} || slash == end || *slash != '/') return std::nullopt;
    const auto [rest, second] = std::from_chars(slash + 1, end, denominator);
    if (second != std::errc{} || rest != end || denominator == 0) return std::nullopt;
    return static_cast<double>(numerator) / denominator;
  }

  // ---- the whole ----------------------------------------------------------------------------------------------------------------------

  Problem check_whole() {
    const auto timeline = make_timeline(out_);
    if (!timeline) return timeline.error();
    for (std::size_t i = 0; i < out_.expect.values.size(); ++i)
      if (out_.expect.values[i].event >= timeline->events.size())
        return InputError{"/expect/values/" + std::to_string(i) + "/event",
                          "lies past the script's last event, " + std::to_string(timeline->events.size() - 1)};
    if (out_.gradients.kind != GradientKind::values) return std::nullopt;
    for (const Backward& backward : timeline->backwards)
      for (std::uint32_t r = 0; r < out_.world_size; ++r)
        if (backward.micro_batch[r] != no_contribution && backward.data[r] >= out_.gradients.values->size())
          return InputError{timeline->pointers[timeline->events[backward.event].item],
                            "needs the gradient of micro-batch " + std::to_string(backward.data[r]) + ", but /gradients give " +
                                std::to_string(out_.gradients.values->size()) + " micro-batches; name one with \"micro_batch\""};
    return std::nullopt;
  }

  const json& document_;
  const std::filesystem::path& directory_;
  std::map<std::string, bool> names_;  // of the parameters, and whether they have a gradient of their own
  Scenario out_;
};

}  // namespace

Result<Scenario> parse_scenario(std::string_view text, const std::filesystem::path& directory) {
  const auto document = read_json(text);
  if (!document) return document.error();
  if (auto problem = check_against_schema(*document)) return *problem;
  return Reader(*document, directory).read();
}

Result<DeepSpeedConfig> parse_deepspeed_config(const nlohmann::json& config, std::uint32_t world_size, const std::string& where) {
  if (auto problem = check_against_part("/properties/engine/properties/config", config, where)) return *problem;
  return config_from_json(config, world_size, where);
}

}  // namespace gradledger
