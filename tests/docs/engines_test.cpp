// docs/engines.md and the pages of docs/engines hold the tables that the command lists, and the buffers that the engines really have.
#include <map>
#include <set>

#include "ref/probes.h"
#include "sim/frameworks/deepspeed/behaviour.h"
#include "sim/frameworks/deepspeed/history.h"
#include "sim/frameworks/deepspeed/settings.h"
#include "sim/frameworks/framework.h"
#include "sim/scenario/schema.h"
#include "tests/docs/command.h"
#include "tests/docs/markdown.h"
#include "tests/support/scenarios.h"

namespace gradledger::testing {
namespace {

// By name, "engines.md" for the first of them.
const Document& engines_page(const std::string& name) {
  static std::map<std::string, Document> read;
  const auto [at, is_new] = read.try_emplace(name);
  if (is_new) at->second = read_document(source_folder / "docs" / (name == "engines.md" ? name : "engines/" + name));
  return at->second;
}

const Section& section(const std::string& name, const std::string& heading) {
  const Section* found = engines_page(name).section(heading);
  expects(found != nullptr, "a section of a page on engines");
  return *found;
}

const char* const engine_pages[] = {"torch-optimizer.md", "fp16-optimizers.md", "bf16-optimizer.md", "zero-1-and-2.md", "zero-3.md"};

// Of DeepSpeed, whose pages these are; without the column that says so.
std::vector<Cells> listed_of_deepspeed(const std::string& what) {
  std::vector<Cells> out;
  for (Cells row : listed(what)) {
    const bool of_deepspeed = row.back() == "deepspeed";
    row.pop_back();
    if (of_deepspeed) out.push_back(std::move(row));
  }
  return out;
}

// ---- what is listed -----------------------------------------------------------------------------------------------------------------

TEST(engines_page, has_every_engine_and_every_switch_as_they_are_listed) {
  for (const Cells& row : listed("engines")) EXPECT_TRUE(has_row(engines_page("engines.md"), row)) << row[0];
  for (const Cells& row : listed_of_deepspeed("behaviours")) EXPECT_TRUE(has_row(engines_page("switches.md"), row)) << row[0];
  EXPECT_EQ(section("engines.md", "Engines").rows.size(), listed("engines").size());
  EXPECT_EQ(section("switches.md", "The switches").rows.size(), listed_of_deepspeed("behaviours").size());
}

TEST(engines_page, has_every_release_with_what_it_adds) {
  for (const Cells& row : listed_of_deepspeed("releases")) EXPECT_TRUE(has_row(engines_page("releases.md"), {row[0], row[1]})) << row[0] << " adds " << row[1];
  EXPECT_EQ(section("releases.md", "Releases").rows.size(), listed_of_deepspeed("releases").size());
}

// Of a release: "2.7.1" is 2, 7, 1.
std::vector<int> numbers_of(const std::string& release) {
  std::vector<int> out;
  std::istringstream parts(release);
  for (std::string part; std::getline(parts, part, '.');) out.push_back(std::stoi(part));
  return out;
}

// Every row of "By release" is a release or a switch as it is listed, or tells what comes of them, with scenarios of no later release.
TEST(pages_of_wrappers, have_what_each_release_adds_and_moves) {
  for (const std::string name : {"fsdp2", "ddp", "fsdp1"}) {
    const Document page = read_document(source_folder / "docs" / (name + ".md"));
    std::set<Cells> expected;
    for (const Cells& row : listed("releases"))
      if (row.back() == name) expected.insert({row[0], row[1], row[2]});
    for (const Cells& row : listed("behaviours"))
      if (row.back() == name) expected.insert({row[0], row[1], row[3]});
    EXPECT_GT(expected.size(), 2u) << name;
    for (const Cells& row : page.section("By release")->rows) {
      Cells plain = row;
      for (std::string& cell : plain) cell = without(cell, "`");
      if (expected.erase(plain)) continue;
      ASSERT_EQ(row.size(), 4u) << name << ": " << row[0];
      const std::vector<std::string> shown = code_in(row[2]);
      EXPECT_FALSE(shown.empty()) << row[1];
      for (const std::string& one : shown) {
        const auto scenario = load_scenario(source_folder / "scenarios" / name / (one + ".json"));
        ASSERT_TRUE(scenario) << one;
        EXPECT_LE(numbers_of(scenario->engine.as_of.base), numbers_of(row[0])) << one;
      }
    }
    for (const Cells& row : expected) ADD_FAILURE() << name << ".md lacks the row of " << row[0];
  }
}

TEST(engines_page, has_every_change_with_its_first_release) {
  for (const Cells& row : listed_of_deepspeed("changes")) EXPECT_TRUE(has_row(engines_page("releases.md"), row)) << row[0];
  EXPECT_EQ(section("releases.md", "Changes").rows.size(), changes().size());
}

TEST(engines_page, explains_only_switches_and_values_that_there_are) {
  std::set<std::string> known;
  for (const Cells& row : listed_of_deepspeed("behaviours")) known.insert(row[0]);
  std::size_t explained = 0;
  std::istringstream lines(section("switches.md", "The switches").text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("* `")) continue;
    ++explained;
    EXPECT_TRUE(known.contains(code_in(line).at(0))) << line;
  }
  EXPECT_GT(explained, 5u);
}

TEST(engines_page, speaks_of_configuration_keys_that_the_schema_has) {
  std::set<std::string> keys;
  const auto walk = [&](const auto& self, const nlohmann::json& node) -> void {
    if (!node.is_structured()) return;
    if (node.is_object() && node.contains("properties"))
      for (const auto& [key, unused] : node["properties"].items()) keys.insert(key);
    for (const auto& inner : node) self(self, inner);
  };
  walk(walk, scenario_schema()["definitions"]["deepspeed_config"]);
  std::size_t named = 0;
  for (const Cells& row : section("engines.md", "What of the configuration is read").rows)
    for (const std::string& key : code_in(row.at(0))) {
      ++named;
      EXPECT_TRUE(keys.contains(key)) << key;
    }
  EXPECT_GT(named, 10u);
}

// Values of every switch that a known release moved, each where it moved: "0.19.0 #7981 offload_keep: gate_id_or_not_boundary".
TEST(engines_pages, have_every_switch_that_moved_with_its_release) {
  std::map<std::string, Cells> change_of;
  for (const Cells& row : listed_of_deepspeed("changes")) change_of[row[0]] = row;
  std::set<std::string> moved, told;
  const std::regex value(R"re((\w+) \(`?([^`)]+)`?\))re");
  for (const Cells& row : listed_of_deepspeed("behaviours"))
    for (std::sregex_iterator at(row[1].begin(), row[1].end(), value), end; at != end; ++at) {
      const auto change = change_of.find((*at)[2]);
      if (change != change_of.end() && !change->second[1].starts_with("before ")) moved.insert((*at)[2].str() + " " + row[0] + ": " + (*at)[1].str());
    }
  std::vector<Section> sections{section("engines.md", "What moved in every engine")};
  for (const char* name : engine_pages) sections.push_back(section(name, "Which releases differ"));
  for (const Section& s : sections)
    for (const Cells& row : s.rows) {
      const std::string number = without(row.at(1), "`");
      ASSERT_TRUE(change_of.contains(number)) << number;
      EXPECT_EQ(row[0], change_of[number][1]) << number;
      EXPECT_EQ(row[2], change_of[number][2]) << number;
      std::istringstream cells(without(row.at(3), "`"));
      for (std::string one; std::getline(cells, one, ';');) told.insert(number + " " + trimmed(one));
    }
  EXPECT_GT(moved.size(), 50u);
  EXPECT_EQ(told, moved);
}

// The page of the engine that a defective scenario runs on has the defect. docs/coverage.md says which scenarios these are.
TEST(engines_pages, have_the_known_defects_that_scenarios_show_in_them) {
  const std::map<std::string, std::string> page_of{{"torch optimizer", "torch-optimizer.md"},       {"FP16_Optimizer", "fp16-optimizers.md"},
                                                   {"FP16_UnfusedOptimizer", "fp16-optimizers.md"}, {"BF16_Optimizer", "bf16-optimizer.md"},
                                                   {"DeepSpeedZeroOptimizer", "zero-1-and-2.md"},   {"DeepSpeedZeroOptimizer_Stage3", "zero-3.md"}};
  std::map<std::string, std::set<std::string>> shown, told;
  const Document coverage = read_document(source_folder / "docs/coverage.md");
  for (const Section& s : coverage.sections)
    for (const Cells& row : s.rows) {
      if (row.size() < 9 || !(row[0].starts_with("catalogue-") || row[0].starts_with("live-"))) continue;
      for (const std::string& name : code_in(row[7])) {
        const auto scenario = load_scenario(source_folder / "scenarios" / (name + ".json"));
        ASSERT_TRUE(scenario) << name;
        const auto of_engine = page_of.find(std::string(engine_name(*scenario)));
        ASSERT_NE(of_engine, page_of.end()) << name;
        shown[of_engine->second].insert(row[0] + ": " + row[2]);
      }
    }
  for (const char* name : engine_pages)
    for (const Cells& row : section(name, "Known defects").rows) told[name].insert(row.at(0) + ": " + row.at(1));
  EXPECT_EQ(told, shown);
}

// ---- which configuration selects which ------------------------------------------------------------------------------------------------

Scenario configured(std::uint32_t stage, Dtype model, Dtype accumulation, bool offload, const std::string& as_of = "head") {
  Scenario s = base_scenario(2, {}, model);
  s.parameters.push_back({"PARAM", 12, std::nullopt});
  deepspeed_config(s).zero.stage = stage;
  deepspeed_config(s).grad_accum_dtype = accumulation;
  deepspeed_config(s).gradient_accumulation_steps = 2;
  if (offload) deepspeed_config(s).zero.offload_optimizer = OffloadDevice::cpu;
  s.engine.as_of.base = as_of;
  s.engine.optimizer.type = OptimizerType::adam;
  return s;
}

std::string selected(const Scenario& s) {
  const auto engine = select_engine(s);
  return engine ? std::string((*engine)->name) : "refused";
}

TEST(engines_page, says_which_configuration_selects_which_engine) {
  constexpr Dtype fp32 = Dtype::float32, bf16 = Dtype::bfloat16, fp16 = Dtype::float16;
  const std::string of_fp16 = "FP16_Optimizer", own = "BF16_Optimizer", zero = "DeepSpeedZeroOptimizer";
  Scenario other = configured(0, fp16, fp16, false);
  other.engine.optimizer.torch_adam = true;
  EXPECT_EQ(selected(other), "FP16_UnfusedOptimizer");
  other.engine.optimizer = {.type = OptimizerType::sgd};
  EXPECT_EQ(selected(other), "FP16_UnfusedOptimizer");
  EXPECT_EQ(selected(configured(0, fp32, fp32, false)), "torch optimizer");
  EXPECT_EQ(selected(configured(0, fp16, fp16, false)), of_fp16);
  EXPECT_EQ(selected(configured(0, bf16, bf16, false, "before #7515")), "refused");
  EXPECT_EQ(selected(configured(0, bf16, bf16, false, "#7515")), of_fp16);
  EXPECT_EQ(selected(configured(0, bf16, bf16, false)), of_fp16);
  EXPECT_EQ(selected(configured(0, bf16, fp32, false, "before #7515")), own);
  EXPECT_EQ(selected(configured(0, bf16, fp32, false, "#7515")), of_fp16);
  EXPECT_EQ(selected(configured(0, bf16, fp32, false, "before #7788")), of_fp16);
  EXPECT_EQ(selected(configured(0, bf16, fp32, false, "#7788")), "refused");
  EXPECT_EQ(selected(configured(0, bf16, fp16, false)), "refused");
  EXPECT_EQ(selected(configured(0, fp16, fp32, false)), "refused");
  EXPECT_EQ(selected(configured(0, fp32, fp32, true)), "refused");
  for (const char* as_of : {"before #7515", "#7788", "head"}) EXPECT_EQ(selected(configured(1, bf16, fp32, false, as_of)), own);
  for (const char* as_of : {"#7515", "before #7788"}) EXPECT_EQ(selected(configured(1, bf16, fp32, false, as_of)), of_fp16);
  for (Dtype model : {fp32, bf16, fp16})
    for (Dtype accumulation : {fp32, bf16, fp16})
      for (bool offload : {false, true}) {
        if (model != bf16 || accumulation != fp32 || offload) {
          EXPECT_EQ(selected(configured(1, model, accumulation, offload)), zero);
        }
        EXPECT_EQ(selected(configured(2, model, accumulation, offload)), zero);
        EXPECT_EQ(selected(configured(3, model, accumulation, offload)), "DeepSpeedZeroOptimizer_Stage3");
      }
  EXPECT_EQ(section("engines.md", "Which configuration selects which").rows.size(), 10u);
}

// ---- buffers ----------------------------------------------------------------------------------------------------------------------------

// Names and roles; the empty role of a buffer that is allocated.
using Buffers = std::map<std::string, std::set<std::string>>;

class BufferSink final : public TraceSink {
 public:
  explicit BufferSink(Buffers& into) : into_(into) {}
  void observe(const Observation& o) override { into_[of_the_first_group(std::string(o.buffer))].insert(std::string(name_of(o.role))); }
  void memory(const MemoryRecord& r) override { into_[of_the_first_group(std::string(r.buffer))]; }

 private:
  // Tables name the buffers of group 0. The other index that they give is of a bucket's second buffer.
  static std::string of_the_first_group(std::string name) {
    const std::size_t at = name.find("[1]");
    return at == std::string::npos || name.starts_with("ipg_buffer") ? name : name.replace(at, 3, "[0]");
  }

  Buffers& into_;
};

void run(Scenario s, Buffers& into) {
  const auto three = [](std::vector<ScriptItem> tail) {
    std::vector<ScriptItem> out{repeat(4, {backward(), step()})};
    out.insert(out.end(), tail.begin(), tail.end());
    return out;
  };
  s.parameters.push_back({"later", 5, *Predicate::parse("micro_batch > 0", "")});
  const std::string first = s.parameters[0].name;
  std::vector<ScriptItem> set{event(ScriptKind::optimizer_zero_grad), set_of(first, 2)};
  if (deepspeed_config(s).zero.stage == 3) set.insert(set.begin() + 1, set_of(first, 2, true));
  const std::vector<std::vector<ScriptItem>> scripts{three({}), three({boundary(true), backward(), boundary(false), backward(), backward()}),
                                                     three({boundary(true), backward(2), step(), backward()}),
                                                     s.engine.optimizer.type == OptimizerType::muon ? three({}) : three(set)};
  for (const std::vector<ScriptItem>& script : scripts) {
    s.script = script;
    ASSERT_FALSE(admission_error(s)) << admission_error(s)->text();
    const auto timeline = make_timeline(s);
    ASSERT_TRUE(timeline);
    BufferSink sink(into);
    HostExecutor(s, *timeline).run(*ref::value_source(s, *timeline, GradientKind::normal, 0), {}, sink);
  }
}

// Every configuration that brings a buffer of its own, by page.
std::map<std::string, std::vector<Scenario>> configurations() {
  constexpr Dtype fp32 = Dtype::float32, bf16 = Dtype::bfloat16, fp16 = Dtype::float16;
  const auto with = [](Scenario s, auto change) {
    change(deepspeed_config(s));
    return s;
  };
  const auto with_experts = [](Scenario s) {
    s.parameters.back().expert = 0;
    return s;
  };
  const auto with_muon = [](Scenario s) {
    s.engine.optimizer.type = OptimizerType::muon;
    return s;
  };
  const auto at_0197 = [](Scenario s) {
    s.engine.as_of.base = "0.19.7";
    return s;
  };
  const auto fp32_wire = [](DeepSpeedConfig& c) { c.communication_data_type = Dtype::float32; };
  const auto bf16_wire = [](DeepSpeedConfig& c) { c.communication_data_type = Dtype::bfloat16; };
  return {
      {"torch-optimizer.md", {configured(0, fp32, fp32, false), with(configured(0, fp32, fp32, false), bf16_wire)}},
      {"fp16-optimizers.md", {configured(0, bf16, bf16, false), with(configured(0, bf16, bf16, false), fp32_wire), configured(0, fp16, fp16, false)}},
      {"bf16-optimizer.md",
       {configured(1, bf16, fp32, false), with(configured(1, bf16, fp32, false), [](DeepSpeedConfig& c) { c.bf16.immediate_grad_update = true; }),
        with_experts(configured(1, bf16, fp32, false))}},
      {"zero-1-and-2.md",
       {configured(1, bf16, bf16, false), configured(1, fp16, fp32, false), configured(1, fp32, bf16, false), at_0197(configured(1, fp32, bf16, false)),
        configured(1, bf16, fp32, true), configured(2, bf16, bf16, false), configured(2, bf16, bf16, true),
        with(configured(2, bf16, bf16, false), [](DeepSpeedConfig& c) { c.zero.overlap_comm = true; }), with(configured(2, bf16, bf16, false), fp32_wire),
        with(configured(2, bf16, bf16, false), [](DeepSpeedConfig& c) { c.zero.contiguous_gradients = false; }), with_experts(configured(2, bf16, bf16, false)),
        with_muon(configured(2, bf16, bf16, false))}},
      {"zero-3.md",
       {configured(3, bf16, bf16, false), configured(3, bf16, bf16, true), configured(3, bf16, fp32, false),
        with(configured(3, bf16, bf16, false), [](DeepSpeedConfig& c) { c.zero.reduce_scatter = false; }),
        with_muon(with(configured(3, bf16, bf16, false), [](DeepSpeedConfig& c) { c.zero.reduce_scatter = false; })),
        with(configured(3, bf16, bf16, false), [](DeepSpeedConfig& c) { c.zero.reduce_scatter = false, c.gradient_predivide_factor = 4; }),
        with(configured(3, bf16, bf16, true), [](DeepSpeedConfig& c) { c.zero.offload_param = OffloadDevice::cpu; }),
        with(configured(3, bf16, bf16, false), [](DeepSpeedConfig& c) { c.zero.contiguous_gradients = false; })}},
  };
}

bool is_shown(const std::string& name) { return name.find("later") == std::string::npos; }

TEST(engines_page, has_the_buffers_of_each_engine_in_the_roles_that_they_take) {
  for (const auto& [name_of_page, scenarios] : configurations()) {
    Buffers seen, documented;
    for (const Scenario& s : scenarios) run(s, seen);
    for (const Cells& row : section(name_of_page, "Buffers").rows)
      for (const std::string& name : code_in(row.at(0))) {
        std::istringstream roles(row.at(1));
        for (std::string role; std::getline(roles, role, ',');) documented[name].insert(trimmed(role));
        documented[name];
      }
    EXPECT_GT(documented.size(), 8u);
    for (const auto& [name, roles] : seen) {
      if (!is_shown(name)) continue;
      ASSERT_TRUE(documented.contains(name)) << name_of_page << " has " << name;
      for (const std::string& role : roles) EXPECT_TRUE(documented[name].contains(role)) << name_of_page << ": " << name << " is " << role;
    }
    for (const auto& [name, roles] : documented) {
      const bool of_other = name == "zeros[PARAM]" && seen.contains("zeros[later]");  // PARAM always has a gradient here
      EXPECT_TRUE(seen.contains(name) || of_other) << name_of_page << " has no " << name;
      for (const std::string& role : roles) EXPECT_TRUE(seen[name].contains(role)) << name_of_page << ": " << name << " is never " << role;
    }
  }
}

TEST(engines_page, has_every_buffer_that_is_listed) {
  std::set<std::string> documented;
  for (const char* name_of_page : engine_pages)
    for (const Cells& row : section(name_of_page, "Buffers").rows)
      for (const std::string& name : code_in(row.at(0))) documented.insert(name.substr(0, name.find('[')));
  for (const char* name_of_page : {"docs/ddp.md", "docs/fsdp2.md", "docs/fsdp1.md", "docs/megatron.md", "docs/megatron-fsdp.md", "docs/megatron-fsdp-v2.md"}) {
    const Document page = read_document(source_folder / name_of_page);
    for (const Cells& row : page.section("Buffers")->rows) documented.insert(code_in(row.at(0)).at(0));
  }
  for (const Cells& row : listed("buffers")) EXPECT_TRUE(documented.contains(std::regex_replace(row[0], std::regex("\\*"), "PARAM"))) << row[0];
}

}  // namespace
}  // namespace gradledger::testing
