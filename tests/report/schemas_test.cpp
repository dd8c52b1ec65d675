// The schemas of docs/schemas: what they ask for of records, and that they ask for it.
#include <set>

#include "report/schemas.h"
#include "tests/report/made_by_hand.h"
#include "tests/support/schema_check.h"

namespace gradledger::testing {
namespace {

using nlohmann::json;

// The others: what a team writes and the command reads, in which keys may be left out, and a file of many lines.
bool is_of_a_record(const report::EmbeddedSchema& schema) { return schema.name != "baseline" && schema.name != "trace-file"; }

// Every object of a schema is closed, wants all of its keys, and says of each what it is.
void expect_whole(const json& node, const std::string& where) {
  if (node.is_object() && node.contains("properties") && node["properties"].is_object() && node.contains("required")) {
    std::set<std::string> required, named;
    for (const json& key : node["required"]) required.insert(key);
    for (const auto& [key, value] : node["properties"].items()) {
      named.insert(key);
      EXPECT_TRUE(value.contains("description") || value.contains("$ref")) << where << " " << key;
    }
    EXPECT_EQ(required, named) << where;
    EXPECT_EQ(node.value("additionalProperties", true), false) << where;
  }
  if (!node.is_structured()) return;
  for (const auto& [key, inner] : node.items()) expect_whole(inner, where + "/" + key);
}

TEST(schemas, are_closed_want_every_key_and_say_what_each_is) {
  std::size_t records = 0;
  for (const report::EmbeddedSchema& schema : report::embedded_schemas()) {
    EXPECT_FALSE(report::title_of(schema).empty());
    const json document = json::parse(schema.text);
    EXPECT_EQ(document["$schema"], "http://json-schema.org/draft-07/schema#") << schema.name;
    if (schema.name == "baseline") continue;
    expect_whole(document, std::string(schema.name));
    if (schema.name == "common" || !is_of_a_record(schema)) continue;
    ++records;
    EXPECT_EQ(document["properties"]["record"]["const"], schema.name) << "a record has the name of its schema";
    for (const char* key : {"schema_version", "tool", "command"}) EXPECT_TRUE(document["properties"].contains(key)) << schema.name;
  }
  EXPECT_GT(records, 15u);
}

TEST(schemas, define_no_name_twice) {
  std::set<std::string> shared;
  const auto names_of = [](std::string_view text) {
    std::set<std::string> out;
    const json definitions = json::parse(text).value("definitions", json::object());
    for (const auto& [name, value] : definitions.items()) out.insert(name);
    return out;
  };
  for (const report::EmbeddedSchema& schema : report::embedded_schemas())
    if (schema.name == "common") shared = names_of(schema.text);
  EXPECT_GT(shared.size(), 10u);
  for (const report::EmbeddedSchema& schema : report::embedded_schemas())
    for (const std::string& name : names_of(schema.text)) EXPECT_TRUE(schema.name == "common" || !shared.contains(name)) << schema.name << " " << name;
}

TEST(schemas, that_are_printed_need_no_other_file) {
  for (const report::EmbeddedSchema& schema : report::embedded_schemas()) {
    const auto text = report::schema_text(schema.name);
    ASSERT_TRUE(text);
    EXPECT_EQ(text->find(".schema.json#"), std::string::npos) << schema.name;
  }
  EXPECT_FALSE(report::schema_text("papyrus"));
}

TEST(schemas, know_the_classes_of_findings_that_there_are) {
  std::set<std::string> known, listed;
  for (const ref::FindingClassInfo& info : ref::finding_classes()) known.insert(std::string(info.name));
  const json common = json::parse(*report::schema_text("common"));
  for (const json& name : common["definitions"]["class"]["enum"]) listed.insert(name);
  EXPECT_EQ(listed, known);
}

report::Report report_with_everything() {
  report::Report out = report_by_hand();
  out.findings[0].race = ref::Race{};
  out.findings[0].race->schedule_seed = 11;
  out.findings[0].race_command = "gradledger replay a.json --schedule-seed 11";
  out.findings[0].quantity = ref::Quantity{"global_grad_norm", 1, 2, 0};
  out.findings[0].alike = {{2, 1, 0}};
  out.findings[0].at = {3, 5};
  out.one_pass = true;
  return out;
}

// A value of each kind, as JSON shows it.
std::vector<json> records_by_hand() {
  const report::Report report = report_with_everything();
  std::string text = shown("json", report);
  const auto show = [&](const auto& value) { text += shown("json", value); };
  report::GateRow row;
  row.scenario = row.file = "a";
  row.unmet = {"not expected"};
  row.findings = report.findings;
  row.parameters = report.parameters;
  row.accepted = {{"wrong-scale", "known", "2027-01-31"}};
  show(row);
  report::FoundRow found;
  found.status = "new";
  found.finding = "discarded-gradient";
  found.engine = "zero1";
  found.detail = report.findings[0];
  found.detail->worst.reset();
  found.scenario.parameters.resize(2);
  show(found);
  show(report::FoundRow{.status = "not taken", .sentence = "cannot"});
  report::AuditReport audit;
  audit.ranks = audit.micro_batches = audit.windows = 1;
  audit.filled = {{"a.json", "/x", "1", "a default"}};
  audit.effects = {{"lost", "all", 1, 2}};
  audit.releases = {{"deepspeed", "0.18.6", "loses", true, true, true}};
  audit.advice = {{"upgrade", "clean", true}};
  audit.matrices = {{"of", {"a"}, {{"row", {"cell"}}}}};
  audit.findings = report.findings;
  audit.parameters = report.parameters;
  show(audit);
  show(report::ProducersReport{.command = "c", .scenario = "s", .file = "f", .compare = "host,gpu"});
  show(report::NotJudgedRow{"run", "0.18.6", "why"});
  show(report::FuzzReport{.command = "c", .shard = "0/1", .broken = {{17, "it broke", "gradledger fuzz --case 17", {}}}});
  report::Summary summary;
  summary.add(report);
  summary.seed = 7;
  show(report::error_row({"a.json:3:5: /script/1", "is wrong"}, 2));
  show(summary);
  return objects_of(text);
}

// Maps, whose keys are anybody's, and what another schema is of.
bool is_open(const std::string& key) {
  return std::set<std::string>{"behaviours", "not_judged", "collectives_by_rank_and_step", "classes", "scenario", "rows", "counts"}.contains(key);
}

// Calls `change` with each object within a record that the schema closes.
template <class Change>
void for_each_closed(json& node, const Change& change) {
  if (node.is_object()) change(node);
  if (!node.is_structured()) return;
  for (auto& [key, inner] : node.items())
    if (!is_open(key)) for_each_closed(inner, change);
}

TEST(records, fit_the_schemas_of_their_names) {
  std::set<std::string> names;
  for (const json& record : records_by_hand()) {
    EXPECT_EQ(record_errors(record), "") << record.dump(1);
    names.insert(record["record"]);
  }
  EXPECT_EQ(names.size(), 10u);
}

TEST(records, do_not_fit_with_a_key_less_a_key_more_or_a_value_of_another_type) {
  std::size_t refused = 0;
  for (json record : records_by_hand()) {
    const SchemaCheck& check = *schema_of(record["record"]);
    const std::string name = record["record"];
    for_each_closed(record, [&](json& object) {
      const json whole = object;
      for (const auto& [key, value] : whole.items()) {
        object.erase(key);
        EXPECT_FALSE(check.fits(record)) << name << ": without " << key << " in " << whole.dump();
        object = whole;
        object[key] = json{{"no", "such"}};
        if (!is_open(key)) {
          EXPECT_FALSE(check.fits(record)) << name << ": an object as " << key;
        }
        object = whole;
        ++refused;
      }
      object["a_field_that_nobody_documented"] = 1;
      EXPECT_FALSE(check.fits(record)) << name << ": with one more in " << whole.dump();
      object = whole;
    });
    EXPECT_TRUE(check.fits(record)) << name << ": put back";
  }
  EXPECT_GT(refused, 200u);
}

TEST(an_error, has_its_place_in_parts) {
  const auto parts = [](const InputError& error) {
    const json all = json::parse(shown("json", report::error_row(error, 2)));
    return json::array({all["file"], all["line"], all["column"], all["pointer"], all["option"], all["message"]});
  };
  const json none;
  EXPECT_EQ(parts({"a.json:3:11: /world_size", "is 4"}), json::array({"a.json", 3, 11, "/world_size", none, "is 4"}));
  EXPECT_EQ(parts({"a: b/c.json:3:11", "ends"}), json::array({"a: b/c.json", 3, 11, none, none, "ends"}));
  EXPECT_EQ(parts({"runs.jsonl:7", "lacks a name"}), json::array({"runs.jsonl", 7, none, none, none, "lacks a name"}));
  EXPECT_EQ(parts({"runs.jsonl:7: /ops/2", "is 1"}), json::array({"runs.jsonl", 7, none, "/ops/2", none, "is 1"}));
  EXPECT_EQ(parts({"/tmp/a.json", "cannot be read"}), json::array({"/tmp/a.json", none, none, none, none, "cannot be read"}));
  EXPECT_EQ(parts({"--seed", "is -1"}), json::array({none, none, none, none, "--seed", "is -1"}));
  EXPECT_EQ(parts({"", "--seed: is -1"}), json::array({none, none, none, none, "--seed", "is -1"}));
  EXPECT_EQ(parts({"", "-x excludes --update"}), json::array({none, none, none, none, none, "-x excludes --update"}));
  EXPECT_EQ(parts({"PATH", "is required"}), json::array({none, none, none, none, "PATH", "is required"}));
  EXPECT_EQ(parts({"", "out of memory"}), json::array({none, none, none, none, none, "out of memory"}));
}

}  // namespace
}  // namespace gradledger::testing
