// docs/scenario-format.md against the schema, the limits, the reader's defaults and the command.
#include <regex>
#include <set>

#include "ref/oracle.h"
#include "sim/base/limits.h"
#include "sim/numeric/dtype_names.h"
#include "sim/scenario/schema.h"
#include "tests/docs/command.h"
#include "tests/docs/markdown.h"
#include "tests/scenario/documents.h"
#include "verbs/session.h"

namespace gradledger::testing {
namespace {

const Document& format_page() {
  static const Document document = read_document(source_folder / "docs/scenario-format.md");
  return document;
}

// ---- the schema, key by key -------------------------------------------------------------------------------------------------------------

// A key of some object; `where` is the object's path: "engine.config.bf16", "" at the top, "backward" of an event.
struct Key {
  std::string where, key;
  const json* node;
  bool required;
};

void keys_below(const json& node, const std::string& where, std::vector<Key>& out) {
  if (!node.is_object()) return;
  if (node.contains("items")) keys_below(node["items"], where, out);
  if (node.contains("oneOf"))
    for (const json& alternative : node["oneOf"]) keys_below(alternative, where, out);
  if (!node.contains("properties")) return;
  const json required = node.value("required", json::array());
  for (const auto& [key, inner] : node["properties"].items()) {
    out.push_back({where, key, &inner, std::find(required.begin(), required.end(), key) != required.end()});
    keys_below(inner, where.empty() || where == "script" ? key : where + "." + key, out);
  }
}

const std::vector<Key>& all_keys() {
  static const std::vector<Key> keys = [] {
    std::vector<Key> out;
    keys_below(scenario_schema(), "", out);
    for (const auto& [part, where] : {std::pair{"deepspeed_config", "engine.config"}, std::pair{"item", "script"}}) keys_below(scenario_schema()["definitions"][part], where, out);
    return out;
  }();
  return keys;
}

// The section of an object, or of the one around it.
const Section* section_of(std::string where, bool* exact = nullptr) {
  if (exact) *exact = true;
  while (!where.empty()) {
    if (const Section* found = format_page().section("`" + where + "`")) return found;
    if (exact) *exact = false;
    const std::size_t dot = where.rfind('.');
    where = dot == std::string::npos ? "" : where.substr(0, dot);
  }
  return format_page().section("Top level");
}

const Cells* row_of(const Section& section, const std::string& key) {
  for (const Cells& row : section.rows)
    if (row.at(0) == "`" + key + "`") return &row;
  return nullptr;
}

TEST(scenario_format_page, names_every_key_in_the_section_of_its_object) {
  EXPECT_GT(all_keys().size(), 100u);
  for (const Key& key : all_keys()) {
    bool exact = false;
    const Section* section = section_of(key.where, &exact);
    ASSERT_TRUE(section);
    EXPECT_NE(section->text.find("`" + key.key + "`"), std::string::npos) << key.where << " " << key.key;
    if (exact) {
      EXPECT_TRUE(row_of(*section, key.key)) << key.where << " " << key.key;
    }
  }
}

TEST(scenario_format_page, has_no_row_for_a_key_that_there_is_not) {
  std::set<std::string> known;
  for (const Key& key : all_keys()) known.insert("`" + key.key + "`");
  std::size_t rows = 0;
  for (const Section& section : format_page().sections)
    for (const Cells& row : section.rows) {
      if (row.size() != 5 || !row[0].starts_with("`")) continue;
      ++rows;
      EXPECT_TRUE(known.contains(row[0])) << section.heading << " " << row[0];
    }
  EXPECT_GT(rows, 100u);
}

TEST(scenario_format_page, says_which_keys_are_required) {
  std::size_t required = 0;
  for (const Key& key : all_keys()) {
    bool exact = false;
    const Section* section = section_of(key.where, &exact);
    const Cells* row = exact ? row_of(*section, key.key) : nullptr;
    if (!row) continue;
    EXPECT_EQ(row->at(2) == "required", key.required) << key.where << " " << key.key;
    required += key.required;
  }
  EXPECT_GT(required, 15u);
}

bool has_number(const std::string& text, const json& number) {
  const auto has_token = [&](const std::string& token) { return std::regex_search(text, std::regex("(^|[^0-9.e])" + token + "($|[^0-9.e])")); };
  const double value = number.get<double>();
  if (has_token(std::to_string(static_cast<std::int64_t>(value)))) return true;
  int exponent = 0;
  double rest = value;
  for (; rest >= 10 && std::fmod(rest, 10) == 0; rest /= 10) ++exponent;
  return rest == 1 && has_token("1e" + std::to_string(exponent));
}

std::vector<json> bounds_of(const json& node) {
  std::vector<json> out;
  for (const char* bound : {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"})
    if (node.contains(bound)) out.push_back(node[bound]);
  for (const json& alternative : node.value("oneOf", json::array()))
    if (!alternative.contains("properties"))
      for (const json& bound : bounds_of(alternative)) out.push_back(bound);
  if (node.contains("items") && !node["items"].contains("properties") && node.value("type", "") == "array" && !node["items"].contains("items"))
    for (const json& bound : bounds_of(node["items"])) out.push_back(bound);
  return out;
}

TEST(scenario_format_page, gives_every_bound_of_the_schema) {
  std::size_t bounds = 0;
  for (const Key& key : all_keys()) {
    const Section* section = section_of(key.where);
    const Cells* row = row_of(*section, key.key);
    if (!row || row->size() != 5 || key.node->contains("properties")) continue;
    // Names in lists are bounded as names are.
    const bool names = key.key == "uses";
    for (const json& bound : bounds_of(*key.node)) {
      if (names && bound == limits::name_length_max) continue;
      ++bounds;
      EXPECT_TRUE(has_number(row->at(1) + " " + row->at(3), bound)) << key.where << " " << key.key << ": " << bound;
    }
  }
  EXPECT_GT(bounds, 80u);
}

TEST(scenario_format_page, gives_every_word_that_a_key_may_hold) {
  std::size_t words = 0;
  for (const Key& key : all_keys()) {
    // Where a word has other names too, a section of their own has those.
    std::vector<json> values = key.node->value(key.node->contains("examples") ? "examples" : "enum", json::array());
    if (!key.node->contains("enum")) values.clear();
    for (const json& alternative : key.node->value("oneOf", json::array()))
      for (const json& value : alternative.value("enum", json::array())) values.push_back(value);
    if (key.key == "class") continue;  // docs/findings.md has them
    for (const json& value : values) {
      ++words;
      EXPECT_NE(section_of(key.where == "script" ? key.key : key.where)->text.find("`" + value.dump() + "`"), std::string::npos) << key.where << " " << key.key << " " << value;
    }
  }
  EXPECT_GT(words, 30u);
}

TEST(scenario_format_page, has_every_name_of_a_dtype) {
  const Section* section = format_page().section("Names of dtypes");
  ASSERT_TRUE(section);
  std::size_t names = 0;
  for (const json& value : scenario_schema()["properties"]["model_dtype"]["enum"]) {
    const std::string name = value.get<std::string>(), ours(name_of(*gradient_dtype_of(name)));
    const auto row = std::find_if(section->rows.begin(), section->rows.end(), [&](const Cells& r) { return r.at(0) == "`\"" + ours + "\"`"; });
    ASSERT_NE(row, section->rows.end()) << ours;
    EXPECT_NE((name == ours ? row->at(0) : row->at(1)).find("`" + value.dump() + "`"), std::string::npos) << name;
    ++names;
  }
  std::size_t listed = 0;
  for (const Cells& row : section->rows) listed += 1 + static_cast<std::size_t>(std::count(row.at(1).begin(), row.at(1).end(), ',')) + 1;
  EXPECT_EQ(listed, names);
}

// ---- defaults: the documented value, written down, changes nothing ----------------------------------------------------------------------

json document_with(const std::string& where, const std::string& key, const json* value) {
  json document = small_document();
  document["gradients"] = {{"kind", "probe"}};
  if (where.empty()) document.erase("gradients");
  if (where.starts_with("engine.optimizer")) document["engine"]["optimizer"] = {{"type", "SGD"}};
  if (where.starts_with("engine.config.optimizer")) document["engine"]["config"]["optimizer"] = {{"type", "SGD"}};
  std::string pointer = where.empty() ? "" : "/" + std::regex_replace(where, std::regex("\\."), "/");
  if (where == "backward" || where == "parameters") pointer = where == "backward" ? "/script/0/backward" : "/parameters/0";
  const std::pair<const char*, json> events[] = {{"overflow", {{"micro_batch", 0}}}, {"set_gradient", {{"parameter", document["parameters"][0]["name"]}, {"times", 2}}},
                                                 {"raise", json::object()},          {"scale_gradients", {{"by", 2}}},
                                                 {"clip", {{"max_norm", 1}}},        {"all_reduce", json::object()},
                                                 {"finalize", json::object()},       {"zero_grad", {{"of", "engine"}}}};
  for (const auto& [event, body] : events) {
    if (where != event) continue;
    if (where == "overflow") document["script"].push_back({{"backward", json::object()}});
    if (where == "scale_gradients") document["contract"]["divide_by"] = 1;
    document["script"].push_back({{event, body}});
    pointer = "/script/" + std::to_string(document["script"].size() - 1) + "/" + event;
  }
  if (where == "step") pointer = "/script/1/step";
  if (where == "expect.memory") {
    document["expect"]["memory"] = json::array({{{"at_most_peak", 1}}});
    pointer = "/expect/memory/0";
  }
  json& parent = document[json::json_pointer(pointer)];
  if (parent.is_null()) parent = json::object();
  if (value) parent[key] = *value;
  else parent.erase(key);
  return document;
}

TEST(scenario_format_page, gives_the_defaults_of_the_reader) {
  std::size_t tried = 0;
  for (const Key& key : all_keys()) {
    bool exact = false;
    const Section* section = section_of(key.where, &exact);
    const Cells* row = exact ? row_of(*section, key.key) : nullptr;
    if (!row || row->size() != 5 || !row->at(2).starts_with("`")) continue;
    const json by_default = json::parse(code_in(row->at(2)).at(0), nullptr, false);
    ASSERT_FALSE(by_default.is_discarded()) << key.where << " " << key.key << ": " << row->at(2);
    const auto silent = read_scenario(document_with(key.where, key.key, nullptr).dump(), "."), spoken = read_scenario(document_with(key.where, key.key, &by_default).dump(), ".");
    ASSERT_TRUE(silent) << key.where << " " << key.key << ": " << silent.error().text();
    ASSERT_TRUE(spoken) << key.where << " " << key.key << ": " << spoken.error().text();
    EXPECT_TRUE(*silent == *spoken) << key.where << " " << key.key << " is not " << by_default << " by default";
    ++tried;
  }
  EXPECT_GT(tried, 40u);
}

TEST(scenario_format_page, says_what_each_optimizer_learns_with_by_default) {
  const Cells* row = row_of(*format_page().section("`engine.optimizer`"), "lr");
  ASSERT_TRUE(row);
  const auto rate = [](const char* type) {
    json document = small_document();
    document["engine"]["optimizer"] = {{"type", type}};
    return read(document)->engine.optimizer.learning_rate;
  };
  EXPECT_EQ(row->at(2), "1.0 for SGD, 0.02 for Muon, 0.001 for the others");
  EXPECT_EQ(rate("Muon"), 0.02);
  EXPECT_EQ(rate("SGD"), 1.0);
  EXPECT_EQ(rate("Adam"), 0.001);
  EXPECT_EQ(rate("AdamW"), 0.001);
}

// ---- limits and memory --------------------------------------------------------------------------------------------------------------------

TEST(scenario_format_page, says_how_many_contributions_are_decoded) {
  const std::string number = std::to_string(ref::OracleOptions{}.decode_max);
  EXPECT_TRUE(has_row(format_page(), {"contributions that a ledger decodes", number}));
  EXPECT_NE(format_page().section("Limits")->text.find("Past " + number + " contributions"), std::string::npos);
}

TEST(scenario_format_page, gives_the_memory_that_the_command_computes) {
  const std::vector<Cells>& rows = format_page().section("Memory")->rows;
  EXPECT_GT(rows.size(), 2u);
  for (const Cells& row : rows) {
    Scenario s;
    s.model_dtype = *gradient_dtype_of(row.at(0));
    deepspeed_config(s).grad_accum_dtype = gradient_dtype_of(row.at(1));
    deepspeed_config(s).communication_data_type = gradient_dtype_of(row.at(2));
    s.engine.optimizer.type = row.at(3) == "SGD" ? OptimizerType::sgd : row.at(3) == "Adam" ? OptimizerType::adam : OptimizerType::adamw;
    s.world_size = static_cast<std::uint32_t>(std::stoul(row.at(4)));
    s.parameters = {{"p", 1000, std::nullopt}};
    EXPECT_EQ(verbs::bytes_needed(s), 1000 * std::stoull(row.at(5)) + 2 * s.world_size * std::stoull(row.at(6))) << row.at(0) << " " << row.at(4);
  }
}

// The formula as it is printed, with numbers for its words.
TEST(scenario_format_page, gives_the_formula_that_the_command_computes) {
  std::string formula;
  for (const Fence& fence : format_page().fences)
    if (fence.text.starts_with("bytes = ")) formula = fence.text;
  ASSERT_EQ(formula, "bytes = held x world x (5 x model + 2 x accumulation + wire + 16 + moments) + elements x (144 x world + 120)\n");
  std::size_t tried = 0;
  for (Dtype model : {Dtype::float32, Dtype::bfloat16})
    for (Dtype accumulation : {Dtype::float32, Dtype::bfloat16})
      for (Dtype wire : {Dtype::float32, Dtype::float16})
        for (OptimizerType type : {OptimizerType::sgd, OptimizerType::adamw})
          for (std::uint32_t world : {1u, 5u, 128u}) {
            Scenario s;
            s.model_dtype = model;
            deepspeed_config(s).grad_accum_dtype = accumulation;
            deepspeed_config(s).communication_data_type = wire;
            s.engine.optimizer.type = type;
            s.world_size = world;
            s.parameters = {{"p", 5, std::nullopt}, {"q", 3, std::nullopt}, {"r", 2, std::nullopt}};
            const std::uint64_t moments = type == OptimizerType::sgd ? 0 : 8, of_rank = 5 * size_of(model) + 2 * size_of(accumulation) + size_of(wire) + 16 + moments;
            for (const bool cut : {false, true}) {  // at stage 3 each parameter is filled by itself
              deepspeed_config(s).zero.stage = cut ? 3 : 0;
              const std::uint64_t held = 10u + (cut ? 3 : 2) * world;
              EXPECT_EQ(verbs::bytes_needed(s), held * world * of_rank + 10u * (144 * world + 120));
            }
            ++tried;
          }
  EXPECT_EQ(tried, 48u);
}

TEST(scenario_format_page, gives_the_memory_of_a_network) {
  EXPECT_NE(format_page().section("Memory")->text.find("`elements x (40 + 4 x world)` and 16 MiB on top"), std::string::npos);
  const Scenario s = *read(every_key_of_a_network());
  Scenario without = s;
  without.gradients.mlp.reset();
  EXPECT_EQ(verbs::bytes_needed(s) - verbs::bytes_needed(without), s.numel() * (40 + 4 * s.world_size) + (16u << 20));
}

// ---- examples -----------------------------------------------------------------------------------------------------------------------------

// Every block of JSON under its name, in one folder, as a reader would save them.
std::vector<std::filesystem::path> saved_examples(const std::string& document, const TemporaryFolder& folder) {
  std::vector<std::filesystem::path> out;
  for (const Fence& fence : read_document(source_folder / document).fences) {
    if (fence.language != "json") continue;
    const std::string name = fence.name.empty() ? "example-" + std::to_string(out.size()) + ".json" : fence.name;
    out.push_back(folder.write(name, fence.text));
  }
  return out;
}

TEST(examples, of_the_pages_run_and_those_with_expectations_meet_them) {
  std::size_t ran = 0, gated = 0;
  for (const char* document : {"README.md", "docs/scenario-format.md"}) {
    const TemporaryFolder folder;
    std::size_t here = 0;
    for (const std::filesystem::path& file : saved_examples(document, folder)) {
      const json example = json::parse(text_of(file), nullptr, false);
      ASSERT_FALSE(example.is_discarded()) << document << ": " << file.filename();
      if (file.string().ends_with(".gradients.json")) continue;
      const auto scenario = load_scenario(file);
      ASSERT_TRUE(scenario) << document << ": " << scenario.error().text();
      ++here;
      ++ran;
      if (!example.contains("expect")) {
        const int code = run_command({"replay", "--summary", file.string()}).code;
        EXPECT_TRUE(code == 0 || code == 1) << document << ": " << file.filename() << " exits with " << code;
        continue;
      }
      ++gated;
      const Ran outcome = run_command({"gate", file.string()});
      EXPECT_EQ(outcome.code, 0) << document << ": " << outcome.output;
    }
    EXPECT_GT(here, 0u) << document;
  }
  EXPECT_GE(ran, 5u);
  EXPECT_GE(gated, 3u);
}

TEST(examples, of_an_error_have_the_form_of_errors) {
  std::string shown;
  for (const Fence& fence : format_page().fences)
    if (fence.text.starts_with("gradledger: FILE")) shown = fence.text;
  const InputError error = error_of(read(small_document_with("/script/0/backward/ranks", json::array({0, 2}))));
  EXPECT_TRUE(std::regex_match(shown, std::regex("(gradledger: FILE:[0-9]+:[0-9]+: (/[a-z_0-9]+)+: [^\n]*; expected [^\n]*\n)+"))) << shown;
  EXPECT_TRUE(error.text().starts_with(error.where + ": ")) << error.text();
  EXPECT_NE(error.message.find("; expected "), std::string::npos) << error.message;
}

}  // namespace
}  // namespace gradledger::testing
