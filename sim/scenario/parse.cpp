#include "sim/scenario/parse.h"

#include <algorithm>
#include <set>

#include "sim/base/limits.h"
#include "sim/numeric/dtype_names.h"
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

// Reads what passed the schema of a document; what a schema cannot say is checked here. A part is read where it and those that it speaks of are
// right, so that what is wrong elsewhere does not hide what is wrong in it.
class Reader {
 public:
  // errors: what is known to be wrong, to which more is added.
  Reader(const json& document, const std::filesystem::path& directory, ConfigReaders readers, ErrorList& errors)
      : document_(document), directory_(directory), readers_(readers), errors_(errors) {}

  Scenario read(const std::vector<InputError>& against_schema) {
    for (const InputError& error : against_schema) {
      // An event that is wrong hides no other.
      if (error.where.starts_with("/script/")) wrong_events_.push_back(error.where);
      else wrong_.insert(part_of(error.where));
    }
    for (const json& key : scenario_schema()["required"])
      if (!document_.contains(key.get<std::string>())) wrong_.insert(key.get<std::string>());
    const Part parts[] = {{"name", {}, &Reader::read_name},
                          {"note", {"source", "twin_of", "allow_open"}, &Reader::read_notes},
                          {"world_size", {}, &Reader::read_world_size},
                          {"layout", {"world_size"}, &Reader::read_layout},
                          {"groups", {"world_size"}, &Reader::read_groups},
                          {"parameters", {}, &Reader::read_parameters},
                          {"engine", {"world_size", "layout", "parameters"}, &Reader::read_engine},
                          {"covers", {"engine"}, &Reader::read_covers},
                          {"model_dtype", {"engine"}, &Reader::read_model_dtype},
                          {"tokens", {"world_size"}, &Reader::read_tokens},
                          {"contract", {}, &Reader::read_contract},
                          {"script", {"after_error", "world_size", "parameters", "layout", "groups", "contract"}, &Reader::read_script},
                          {"gradients", {"world_size", "parameters"}, &Reader::read_gradients},
                          {"expect", {"world_size"}, &Reader::read_expect}};
    for (const Part& part : parts) read_part(part);
    return std::move(out_);
  }

 private:
  struct Part {
    std::string key;
    std::vector<std::string> needs;  // other keys
    void (Reader::*read)();
  };

  static std::string part_of(const std::string& pointer) { return pointer.empty() ? "" : pointer.substr(1, pointer.find('/', 1) - 1); }

  void read_part(const Part& part) {
    const auto is_wrong = [&](const std::string& key) { return wrong_.contains(key); };
    if (is_wrong(part.key) || std::any_of(part.needs.begin(), part.needs.end(), is_wrong)) {
      if (part.key == "engine") {
        if (document_.contains("engine")) config_alone(document_["engine"], readers_, errors_);
        wrong_.insert("layout");
      }
      wrong_.insert(part.key);
      return;
    }
    const std::size_t before = errors_.size();
    (this->*part.read)();
    if (errors_.size() > before) wrong_.insert(part.key);
  }

  // Whether it is right; what is wrong with it is told.
  template <class T>
  bool take(Result<T> read, T& into) {
    if (read) into = std::move(read).value();
    else errors_.add(read.error());
    return read.ok();
  }
  void tell(const Problem& problem) {
    if (problem) errors_.add(*problem);
  }

  void read_name() {
    out_.name = document_["name"];
    if (!printable(out_.name)) errors_.add(InputError{"/name", "holds a control character; expected a name that can be printed"});
  }

  void read_notes() {
    out_.note = document_.value("note", "");
    out_.source = document_.value("source", std::vector<std::string>{});
    out_.twin_of = document_.value("twin_of", "");
    out_.allow_open = document_.value("allow_open", false);
  }

  void read_world_size() { out_.world_size = document_["world_size"]; }

  void read_layout() {
    RankLayout layout;
    if (document_.contains("layout") && take(layout_from_json(document_["layout"], out_.world_size), layout)) out_.layout = std::move(layout);
  }

  // Into how many parts a parameter is cut, its groups say.
  void read_parameters() {
    const bool unknown = wrong_.contains("layout") || wrong_.contains("groups");
    out_.parameters = parameters_from_json(document_["parameters"], directory_, unknown ? nullptr : &out_, errors_);
    if (unknown && document_["parameters"].dump().find("_over\"") != std::string::npos) wrong_.insert("parameters");
  }

  void read_covers() {
    out_.covers = document_.value("covers", std::vector<std::string>{});
    const auto of_the_framework = readers_.named(out_.engine.framework)->catalogue();
    std::set<std::string> seen;
    for (std::size_t i = 0; i < out_.covers.size(); ++i) {
      const std::string where = "/covers/" + std::to_string(i);
      if (const auto entry = entry_named(out_.covers[i], where, {of_the_framework, loop_defects()}); !entry) errors_.add(entry.error());
      if (!seen.insert(out_.covers[i]).second) errors_.add({where, "names " + json(out_.covers[i]).dump() + " again; expected each entry once"});
    }
  }

  void read_engine() {
    out_.engine = engine_from_json(document_["engine"], out_.world_size, out_.layout, out_.parameters, readers_, errors_);
    const Problem problem = layout_problem(out_);
    tell(problem);
    if (problem || !readers_.named(out_.engine.framework)) wrong_.insert("layout");
  }

  void read_model_dtype() {
    std::optional<Dtype> stated;
    if (document_.contains("model_dtype")) stated = gradient_dtype_of(document_["model_dtype"].get<std::string>());
    take(readers_.named(out_.engine.framework)->model_dtype(out_.engine.config, document_["engine"]["config"], stated), out_.model_dtype);
  }

  void read_tokens() {
    if (document_.contains("tokens")) take(tokens_from_json(document_["tokens"], out_.world_size, directory_), out_.tokens);
  }

  void read_groups() {
    if (document_.contains("groups")) tell(groups_from_json(document_["groups"], out_));
  }

  void read_contract() {
    if (document_.contains("contract")) take(contract_from_json(document_["contract"]), out_.contract);
  }

  void read_script() {
    if (document_.value("after_error", "stop") == "go_on") out_.after_error = AfterError::go_on;
    out_.script = script_from_json(document_["script"], out_, *readers_.named(out_.engine.framework), wrong_events_, errors_);
  }

  void read_gradients() {
    if (document_.contains("gradients")) take(gradients_from_json(document_["gradients"], out_, directory_), out_.gradients);
  }

  // ---- expectations -------------------------------------------------------------------------------------------------------------------

  void read_expect() {
    if (!document_.contains("expect")) return;
    const json& expect = document_["expect"];
    for (std::size_t i = 0; expect.contains("findings") && i < expect["findings"].size(); ++i)
      tell(read_expected_finding(expect["findings"][i], "/expect/findings/" + std::to_string(i)));
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
    for (std::size_t i = 0; expect.contains("values") && i < expect["values"].size(); ++i) {
      const json& v = expect["values"][i];
      if (v["rank"] >= out_.world_size)
        errors_.add({"/expect/values/" + std::to_string(i) + "/rank",
                     "lies outside a world of " + std::to_string(out_.world_size) + "; expected ranks from 0 to " + std::to_string(out_.world_size - 1)});
      out_.expect.values.push_back({v["event"], v["rank"], v["buffer"], v["values"].get<std::vector<double>>()});
    }
    if (expect.contains("comparison")) out_.expect.comparison = ExpectedComparison{expect["comparison"]["with"], expect["comparison"]["applied"] == "agree"};
    for (std::size_t i = 0; expect.contains("memory") && i < expect["memory"].size(); ++i) tell(read_expected_memory(expect["memory"][i], "/expect/memory/" + std::to_string(i)));
    tell(read_accounting_only(expect));
  }

  Problem read_expected_memory(const json& given, const std::string& where) {
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
    if (memory.phase.empty() && (memory.resident || memory.at_most_resident)) return InputError{where, "says what is resident, but not after which phase; expected \"phase\" too"};
    out_.expect.memory.push_back(std::move(memory));
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
  ErrorList& errors_;
  std::vector<std::string> wrong_events_;  // pointers below /script
  std::set<std::string> wrong_;            // keys at which something is; "layout": where parameters lie
  Scenario out_;
};

}  // namespace

std::optional<Scenario> parse_scenario(std::string_view text, const std::filesystem::path& directory, ConfigReaders readers, std::vector<Override>& overrides, ErrorList& errors) {
  auto document = read_json(text, errors);
  if (!document) {
    errors.add(document.error());
    return std::nullopt;
  }
  json whole = std::move(document).value();
  override_document(whole, overrides, errors);
  const std::vector<InputError> against_schema = check_against_schema(whole);
  errors.add(against_schema);
  if (!whole.is_object() || errors.full()) return std::nullopt;
  Scenario scenario = Reader(whole, directory, readers, errors).read(against_schema);
  return errors.empty() ? std::optional(std::move(scenario)) : std::nullopt;
}

Result<Scenario> parse_scenario(std::string_view text, const std::filesystem::path& directory, ConfigReaders readers) {
  std::vector<Override> none;
  ErrorList errors;
  auto scenario = parse_scenario(text, directory, readers, none, errors);
  if (!scenario) return errors.front();
  return std::move(*scenario);
}

}  // namespace gradledger
