// PyTorch's wrappers by release: what each decides in another way, what it does not have, and that the audited data says the same.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "sim/frameworks/framework.h"
#include "sim/frameworks/history.h"
#include "sim/frameworks/torch/fsdp1/behaviour.h"
#include "sim/frameworks/torch/fsdp2/behaviour.h"
#include "sim/frameworks/torch/history/releases.h"
#include "sim/load.h"

namespace gradledger::testing {
namespace {

using nlohmann::json;
using namespace gradledger::torch;

const char* const wrappers[] = {"ddp", "fsdp2", "fsdp1"};

const History& history_of(const std::string& framework) { return *framework_named(framework)->history(); }

json audited() {
  std::ifstream file(std::string(GRADLEDGER_SOURCE_DIR) + "/sim/frameworks/torch/history/audited.json");
  EXPECT_TRUE(file);
  return json::parse(file);
}

std::string problem_of(const std::string& framework, const AsOf& as_of) {
  const auto problem = framework_named(framework)->as_of_problem(as_of);
  return problem ? problem->text() : "";
}

TEST(torch_releases, are_known_from_2_4_to_2_15_and_newer_ones_are_taken_as_the_newest) {
  for (const char* framework : wrappers) {
    SCOPED_TRACE(framework);
    const Framework& f = *framework_named(framework);
    for (const char* known : {"2.4.0", "2.4.1", "2.6", "2.10.0", "2.12.1", "2.13.0", "2.14.1", "2.15.0", "head"}) {
      EXPECT_EQ(problem_of(framework, {known, {}}), "");
      EXPECT_FALSE(f.as_of_note(known)) << known;
    }
    EXPECT_EQ(problem_of(framework, {"2.3.1", {}}),
              "/engine/as_of: is \"2.3.1\"; of PyTorch 2.4.0 to 2.15.0 are modelled: expected one of these, or \"head\", which is the newest");
    for (const char* unknown : {"", "2", "2.x", "2.6.0.1", "before 2.6.0", "v2.6.0"}) EXPECT_NE(problem_of(framework, {unknown, {}}), "") << unknown;
    EXPECT_EQ(f.as_of_note("2.16.0"), "PyTorch 2.16.0 is newer than every release that was compared; taken as 2.15.0");
    EXPECT_EQ(f.as_of_note("2.6.1"), "PyTorch 2.6.1 is no release that was compared; taken as 2.6.0");
  }
}

TEST(torch_releases, that_are_installed_are_those_that_are_judged) {
  const auto installed = [](const std::string& release) { return framework_named("fsdp2")->installed({{"torch", release}})->base; };
  EXPECT_EQ(installed("2.6.0+cu124"), "2.6.0");
  EXPECT_EQ(installed("2.13.0+cpu"), "2.13.0");
  EXPECT_EQ(installed("2.16.0"), "2.16.0");
  EXPECT_EQ(installed("2.1.0"), "head");
  EXPECT_EQ(framework_named("fsdp2")->installed({})->base, "head");
}

TEST(torch_releases, move_the_switches_of_fully_shard_where_its_code_changed) {
  struct Move {
    const char *name, *last_before, *before, *first, *value;
  };
  for (const Move& m : {Move{"all_reduced_memory", "2.5.1", "released", "2.6.0", "held"},
                        {"final_reduction", "2.6.0", "of_unsharded_modules", "2.7.0", "of_unreduced_modules"},
                        {"divide_factor", "2.7.1", "of_reduce_scatter", "2.8.0", "of_average"},
                        {"divide_factor", "2.9.1", "of_average", "2.10.0", "of_average_by_shards"},
                        {"offload_event", "2.8.0", "reduce_scatter_stream", "2.9.0", "last_stream"},
                        {"one_rank_shard", "2.9.1", "reduced", "2.10.0", "copied"},
                        {"aborted_module", "2.10.0", "raises", "2.11.0", "gathered"},
                        {"gradient_dtype", "2.14.1", "of_computation", "2.15.0", "of_parameter"},
                        {"partial_sums", "2.14.1", "by_place", "2.15.0", "by_parameter"},
                        {"reset", "2.14.1", "keeps_gradients", "2.15.0", "drops_gradients"}}) {
    EXPECT_EQ(history_of("fsdp2").switch_value({m.last_before, {}}, m.name), m.before) << m.name;
    EXPECT_EQ(history_of("fsdp2").switch_value({m.first, {}}, m.name), m.value) << m.name;
  }
}

// The rows are taken in the order in which a Behaviour has them.
TEST(torch_releases, set_the_field_of_each_switch) {
  const fully_shard::Behaviour oldest = fully_shard::behaviour_at({"2.4.0", {}}).value();
  EXPECT_EQ(oldest.final_reduction, fully_shard::FinalReduction::of_unsharded_modules);
  EXPECT_EQ(oldest.all_reduced_memory, fully_shard::AllReducedMemory::released);
  EXPECT_EQ(fully_shard::behaviour_at({"2.9.0", {}}).value().divide_factor, fully_shard::DivideFactor::of_average);
  EXPECT_EQ(fully_shard::behaviour_at({"2.9.0", {}}).value().offload_event, fully_shard::OffloadEvent::last_stream);
  EXPECT_EQ(fully_shard::behaviour_at({"2.10.0", {}}).value().one_rank_shard, fully_shard::OneRankShard::copied);
  EXPECT_EQ(fully_shard::behaviour_at({"2.10.0", {}}).value().aborted_module, fully_shard::AbortedModule::raises);
  const fully_shard::Behaviour before_2_15 = fully_shard::behaviour_at({"2.14.1", {}}).value();
  EXPECT_EQ(before_2_15.gradient_dtype, fully_shard::GradientDtype::of_computation);
  EXPECT_EQ(before_2_15.partial_sums, fully_shard::PartialSums::by_place);
  EXPECT_EQ(before_2_15.reset, fully_shard::Reset::keeps_gradients);
}

TEST(torch_releases, have_a_replaced_parameter_of_fully_sharded_data_parallel_raise_since_2_15) {
  EXPECT_EQ(flat_sharded::behaviour_at({"2.14.1", {}}).value().replaced_parameter, flat_sharded::ReplacedParameter::takes_gradients);
  EXPECT_EQ(flat_sharded::behaviour_at({"2.15.0", {}}).value().replaced_parameter, flat_sharded::ReplacedParameter::raises);
  EXPECT_EQ(flat_sharded::Behaviour{}.replaced_parameter, flat_sharded::ReplacedParameter::raises);
}

// What a Behaviour is by itself is the newest release.
TEST(torch_releases, have_the_newest_as_head) {
  const fully_shard::Behaviour head = fully_shard::behaviour_at({}).value(), plain;
  EXPECT_EQ(head.final_reduction, plain.final_reduction);
  EXPECT_EQ(head.all_reduced_memory, plain.all_reduced_memory);
  EXPECT_EQ(head.divide_factor, plain.divide_factor);
  EXPECT_EQ(head.offload_event, plain.offload_event);
  EXPECT_EQ(head.one_rank_shard, plain.one_rank_shard);
  EXPECT_EQ(head.aborted_module, plain.aborted_module);
  EXPECT_EQ(head.gradient_dtype, plain.gradient_dtype);
  EXPECT_EQ(head.partial_sums, plain.partial_sums);
  EXPECT_EQ(head.reset, plain.reset);
}

TEST(torch_releases, take_switches_by_hand_and_say_what_they_know) {
  EXPECT_EQ(history_of("fsdp2").switch_value({"2.13.0", {{"final_reduction", "of_unsharded_modules"}}}, "final_reduction"), "of_unsharded_modules");
  EXPECT_NE(
      problem_of("fsdp2", {"head", {{"final_reductions", "x"}}}).find("/engine/as_of/final_reductions: unknown switch \"final_reductions\"; expected one of final_reduction, "),
      std::string::npos);
  EXPECT_NE(problem_of("fsdp2", {"head", {{"final_reduction", "x"}}}).find("unknown value \"x\"; expected one of of_unsharded_modules, of_unreduced_modules"), std::string::npos);
  EXPECT_EQ(problem_of("ddp", {"head", {{"a", "b"}}}), "/engine/as_of/a: unknown switch \"a\"; expected one of delayed_bucket_cap");
  EXPECT_EQ(WrapperHistory({"ddp", "A wrapper", {}, {}, {}}).problem({"head", {{"a", "b"}}})->text(),
            "/engine/as_of/a: is a switch, which A wrapper has none of; expected a release");
}

// Up to 2.11 PyTorch broadcasts delayed parameters in pieces of whole mebibytes, and raises a TypeError for others.
TEST(torch_releases, of_ddp_take_a_bucket_cap_that_is_no_whole_number_beside_delayed_parameters_since_2_12) {
  const auto refused = [](const std::string& as_of, double cap, bool delays, json switches = json::object()) {
    json document = json::parse(R"({"name": "a", "world_size": 2, "parameters": [{"name": "w0", "numel": 4}, {"name": "w1", "numel": 4}], "model_dtype": "fp32",
                                    "engine": {"framework": "ddp"}, "script": [{"backward": {}}, {"step": {}}]})");
    switches["base"] = as_of;
    document["engine"]["as_of"] = switches;
    document["engine"]["config"]["bucket_cap_mb"] = cap;
    if (delays) document["engine"]["config"]["delay_all_reduce"] = {{"params", {"w1"}}, {"hook", "w0"}};
    const auto engine = select_engine(parse_whole_scenario(document.dump(), ".").value());
    return engine ? std::string() : engine.error().text();
  };
  EXPECT_EQ(refused("2.11.0", 1.5, true),
            "/engine/config/bucket_cap_mb: PyTorch 2.11.0 refuses this at initialisation, beside delay_all_reduce: TypeError: _broadcast_coalesced(): incompatible function "
            "arguments; expected a whole number, or PyTorch 2.12.0 or later in /engine/as_of");
  EXPECT_NE(refused("2.4.0", 0.5, true), "");
  EXPECT_EQ(refused("2.11.0", 2, true), "");
  EXPECT_EQ(refused("2.11.0", 1.5, false), "");
  EXPECT_EQ(refused("2.12.0", 1.5, true), "");
  EXPECT_NE(refused("2.15.0", 1.5, true, {{"delayed_bucket_cap", "integers"}}), "");
}

TEST(torch_releases, of_a_wrapper_are_told_apart_where_something_moved_and_nowhere_else) {
  EXPECT_EQ(history_of("fsdp2").points(), (std::vector<std::string>{"2.4.0", "2.5.0", "2.6.0", "2.7.0", "2.8.0", "2.9.0", "2.10.0", "2.11.0", "2.13.0", "2.15.0"}));
  EXPECT_EQ(history_of("ddp").points(), (std::vector<std::string>{"2.4.0", "2.8.0", "2.11.0", "2.12.0", "2.15.0"}));
  EXPECT_EQ(history_of("fsdp1").points(), (std::vector<std::string>{"2.4.0", "2.15.0"}));
  for (const char* framework : wrappers) {
    const auto points = history_of(framework).points();
    const auto rows = history_of(framework).release_rows();
    ASSERT_EQ(points.size(), rows.size()) << framework;
    for (std::size_t i = 0; i < rows.size(); ++i) EXPECT_TRUE(rows[i].releases.starts_with(points[i])) << rows[i].releases;
  }
  EXPECT_EQ(history_of("fsdp1").release_rows().front().releases, "2.4.0 to 2.14.1");
  EXPECT_EQ(history_of("fsdp2").contains_all_of("2.9.1", "2.9.0"), true);
  EXPECT_EQ(history_of("fsdp2").contains_all_of("2.6", "2.7"), false);
  EXPECT_EQ(history_of("fsdp2").contains_all_of("#1", "2.7"), std::nullopt);
}

TEST(torch_releases, refuse_what_they_do_not_have_yet) {
  const auto refused = [](json document, const std::string& as_of, const std::string& pointer, const json& value) {
    document["engine"]["as_of"] = as_of;
    document["engine"]["config"] = json::object();
    document["script"] = json::parse(R"([{"backward": {}}, {"step": {}}])");
    document[json::json_pointer(pointer)] = value;
    const auto scenario = parse_whole_scenario(document.dump(), ".");
    if (!scenario) return scenario.error().text();
    const auto engine = select_engine(*scenario);
    return engine ? std::string() : engine.error().text();
  };
  json fsdp2 = json::parse(R"({"name": "a", "world_size": 2, "parameters": [{"name": "w", "numel": 4}], "model_dtype": "fp32",
                               "engine": {"framework": "fsdp2"}})");
  json ddp = fsdp2;
  ddp["engine"]["framework"] = "ddp";
  EXPECT_EQ(
      refused(fsdp2, "2.7.0", "/engine/config/force_sum_reduction_for_comms", true),
      "/engine/config/force_sum_reduction_for_comms: is not in PyTorch 2.7.0: fully_shard has it from 2.8.0 on; expected a later release in /engine/as_of, or the script without "
      "it");
  EXPECT_EQ(refused(fsdp2, "2.8.0", "/engine/config/force_sum_reduction_for_comms", true), "");
  EXPECT_NE(refused(fsdp2, "2.4.1", "/engine/config/gradient_divide_factor", 2), "");
  EXPECT_EQ(refused(fsdp2, "2.5.0", "/engine/config/gradient_divide_factor", 2), "");
  EXPECT_EQ(refused(fsdp2, "2.12.0", "/script/0", json::parse(R"({"event": {"name": "reset_iter_state"}})")).substr(0, 16), "/script/0/event:");
  EXPECT_EQ(refused(ddp, "2.11.0", "/engine/config/batched_grad_copy", true).substr(0, 33), "/engine/config/batched_grad_copy:");
  EXPECT_EQ(refused(ddp, "2.12.0", "/engine/config/batched_grad_copy", true), "");
  EXPECT_EQ(refused(ddp, "2.14.1", "/engine/config/lazy_bucket_allocation", true).substr(0, 61), "/engine/config/lazy_bucket_allocation: is not in PyTorch 2.14");
  EXPECT_EQ(refused(ddp, "2.15.0", "/engine/config/lazy_bucket_allocation", true), "");
}

// ---- the audited data -------------------------------------------------------------------------------------------------------------------

TEST(torch_history_data, has_every_release_with_its_patches) {
  const json data = audited()["releases"];
  ASSERT_EQ(data.size(), release_lines().size());
  for (std::size_t i = 0; i < data.size(); ++i) {
    EXPECT_EQ(data[i]["release"], release_lines()[i].first);
    EXPECT_EQ(data[i].contains("patches") ? data[i]["patches"].back() : data[i]["release"], release_lines()[i].last);
    EXPECT_EQ(data[i]["commit"].get<std::string>().size(), 40u);
  }
}

TEST(torch_history_data, is_counted_by_the_page_about_it) {
  std::ifstream file(std::string(GRADLEDGER_SOURCE_DIR) + "/docs/history.md");
  const std::string all{std::istreambuf_iterator<char>(file), {}}, page = all.substr(all.find("\n## PyTorch\n"));
  const json data = audited();
  std::map<std::string, std::size_t> counts;
  for (const json& d : data["differences"]) ++counts[d["verdict"].get<std::string>()];
  counts["all"] = data["differences"].size();
  for (const auto& [verdict, count] : counts) EXPECT_NE(page.find("\n| " + verdict + " | " + std::to_string(count) + " |\n"), std::string::npos) << verdict << " " << count;
  EXPECT_EQ(counts.size(), 4u);
}

// What is modelled is all that the tables have, each where the tables have it; what is not says why.
TEST(torch_history_data, names_every_switch_and_addition_at_its_release) {
  std::set<std::string> said, known;
  const auto key = [](const json& d, const std::string& what) { return d["release"].get<std::string>() + " " + d["wrapper"].get<std::string>() + " " + what; };
  const json data = audited();
  for (const json& d : data["differences"]) {
    EXPECT_FALSE(d["functions"].empty()) << d;
    EXPECT_FALSE(d["title"].get<std::string>().empty()) << d;
    if (d["verdict"] != "modelled") {
      EXPECT_TRUE(d["verdict"] == "not modelled" || d["verdict"] == "relevant, missing") << d;
      EXPECT_FALSE(d["reason"].get<std::string>().empty()) << d;
      continue;
    }
    if (d.contains("switch")) said.insert(key(d, d["switch"]));
    for (const json& a : d.value("additions", json::array())) said.insert(key(d, a));
  }
  for (const char* framework : wrappers) {
    const auto rows = history_of(framework).release_rows();
    const auto points = history_of(framework).points();
    for (std::size_t i = 0; i < rows.size(); ++i) {
      std::string text = rows[i].adds + ", " + rows[i].moves + "; ";
      for (std::size_t at = 0, end = 0; (end = text.find_first_of(",;", at)) != text.npos; at = end + 2) {
        const std::string name = text.substr(at, end - at);
        if (name != "nothing") known.insert(points[i] + " " + framework + " " + name.substr(0, name.find(' ')));
      }
    }
  }
  EXPECT_EQ(said, known);
  EXPECT_GT(known.size(), 10u);
}

}  // namespace
}  // namespace gradledger::testing
