#include "sim/scenario/parse.h"

#include <algorithm>
#include <set>

#include "sim/base/limits.h"
#include "sim/scenario/catalogue.h"
#include "sim/scenario/engine_json.h"
#include "sim/scenario/gradients_json.h"
#include "sim/scenario/json_reader.h"
#include "sim/scenario/layout.h"
#include "sim/scenario/loop_json.h"
#include "sim/scenario/parameters_json.h"
#include "sim/scenario/schema.h"
#include "sim/scenario/script_json.h"

namespace gradledger {
namespace {

using nlohmann::json;
using Problem = std::optional<InputError>;

// Reads a document that passed the schema; what a schema cannot say is checked here.
class Reader {
 public:
  Reader(const json& document, const std::filesystem::path& directory, ConfigReaders readers) : document_(document), directory_(directory), readers_(readers) {}

  Result<Scenario> read() {
    using Step = Problem (Reader::*)();
    for (Step step : {&Reader::read_world, &Reader::read_engine, &Reader::read_contract, &Reader::read_script, &Reader::read_gradients, &Reader::read_expect})
      if (Problem problem = (this->*step)()) return *problem;
    return std::move(out_);
  }

 private:
  Problem read_world() {
    out_.name = document_["name"];
    if (!printable(out_.name)) return InputError{"/name", "holds a control character; expected a name that can be printed"};
    out_.note = document_.value("note", "");
    out_.source = document_.value("source", std::vector<std::string>{});
    out_.covers = document_.value("covers", std::vector<std::string>{});
    out_.twin_of = document_.value("twin_of", "");
    out_.allow_open = document_.value("allow_open", false);
    out_.world_size = document_["world_size"];
    auto parameters = parameters_from_json(document_["parameters"]);
    if (!parameters) return parameters.error();
    out_.parameters = std::move(parameters).value();
    return std::nullopt;
  }

  Problem covers_problem() const {
    const auto of_the_framework = readers_.named(out_.engine.framework)->catalogue();
    std::set<std::string> seen;
    for (std::size_t i = 0; i < out_.covers.size(); ++i) {
      const std::string where = "/covers/" + std::to_string(i);
      if (const auto entry = entry_named(out_.covers[i], where, {of_the_framework, loop_defects()}); !entry) return entry.error();
      if (!seen.insert(out_.covers[i]).second) return InputError{where, "names " + json(out_.covers[i]).dump() + " again; expected each entry once"};
    }
    return std::nullopt;
  }

  Problem read_engine() {
    auto engine = engine_from_json(document_["engine"], out_.world_size, out_.parameters, readers_);
    if (!engine) return engine.error();
    out_.engine = std::move(engine).value();
    if (Problem problem = covers_problem()) return problem;
    if (Problem problem = layout_problem(out_)) return problem;
    return settle_model_dtype();
  }

  Problem settle_model_dtype() {
    std::optional<Dtype> stated;
    if (document_.contains("model_dtype")) stated = gradient_dtype_named(document_["model_dtype"].get<std::string>());
    const auto dtype = readers_.named(out_.engine.framework)->model_dtype(out_.engine.config, document_["engine"]["config"], stated);
    if (!dtype) return dtype.error();
    out_.model_dtype = *dtype;
    return std::nullopt;
  }

  Problem read_contract() {
    if (document_.contains("tokens")) {
      auto tokens = tokens_from_json(document_["tokens"], out_.world_size, directory_);
      if (!tokens) return tokens.error();
      out_.tokens = std::move(tokens).value();
    }
    if (document_.contains("groups"))
      if (Problem problem = groups_from_json(document_["groups"], out_)) return problem;
    if (!document_.contains("contract")) return std::nullopt;
    auto contract = contract_from_json(document_["contract"]);
    if (!contract) return contract.error();
    out_.contract = std::move(contract).value();
    return std::nullopt;
  }

  // ---- script -----------------------------------------------------------------------------------------------------------------------

  Problem read_script() {
    if (document_.value("after_error", "stop") == "go_on") out_.after_error = AfterError::go_on;
    auto script = script_from_json(document_["script"], out_, *readers_.named(out_.engine.framework));
    if (!script) return script.error();
    out_.script = std::move(script).value();
    return std::nullopt;
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
          return InputError{"/expect/values/" + std::to_string(i) + "/rank",
                            "lies outside a world of " + std::to_string(out_.world_size) + "; expected ranks from 0 to " + std::to_string(out_.world_size - 1)};
        out_.expect.values.push_back({v["event"], v["rank"], v["buffer"], v["values"].get<std::vector<double>>()});
      }
    }
    if (expect.contains("comparison")) out_.expect.comparison = ExpectedComparison{expect["comparison"]["with"], expect["comparison"]["applied"] == "agree"};
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
      if (expect.contains(key)) return InputError{std::string("/expect/") + key, "needs a judgement, and \"accounting_only\" rules it out; expected one of the two"};
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
      if (finding.contains(key) && !(*into = fraction(finding[key]))) return InputError{where + "/" + key, "cannot be read; expected a number, or a fraction such as \"3/8\""};
    out_.expect.findings.push_back(std::move(expected));
    return std::nullopt;
  }

  const json& document_;
  const std::filesystem::path& directory_;
  ConfigReaders readers_;
  Scenario out_;
};

}  // namespace

Result<Scenario> parse_scenario(std::string_view text, const std::filesystem::path& directory, ConfigReaders readers) {
  const auto document = read_json(text);
  if (!document) return document.error();
  if (auto problem = check_against_schema(*document)) return *problem;
  return Reader(*document, directory, readers).read();
}

}  // namespace gradledger
