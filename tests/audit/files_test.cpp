// Files that people have, read as they are.
#include <fstream>

#include "audit/yaml_file.h"
#include "tests/audit/support.h"

namespace gradledger::testing {
namespace {

using audit::document_of;

TEST(a_json_file, may_have_comments_and_keeps_places) {
  const auto read = document_of("{\n  // a comment, with \"quotes\"\n  \"a\": [1, {\"b/c\": 2}], /* and\n another */ \"d\": \"//\"\n}", "f.json");
  ASSERT_TRUE(read.ok()) << read.error().text();
  EXPECT_EQ(read->json, (json{{"a", {1, {{"b/c", 2}}}}, {"d", "//"}}));
  EXPECT_EQ(read->where("/a/1/b~1c"), "f.json:3:20: /a/1/b~1c");
  EXPECT_EQ(read->where("/d"), "f.json:4:18: /d");
  EXPECT_EQ(read->where("/none"), "f.json: /none");
}

TEST(a_json_file, that_is_none_is_told_with_the_cause) {
  const auto json_error = [](const std::string& place, const std::string& cause) { return "f:" + place + ": is not JSON from here on; expected a JSON document in UTF-8" + cause; };
  const auto error = [](const std::string& text) { return document_of(text, "f").error().text(); };
  EXPECT_EQ(error("{\"a\": 1,\n}"), json_error("2:1", "; a comma stands before the closing bracket"));
  EXPECT_EQ(error("{'a': 1}"), json_error("1:2", "; strings stand in double quotes"));
  EXPECT_EQ(error("{\"a\": True}"), json_error("1:7", "; JSON writes true with a small letter"));
  EXPECT_EQ(error("{\"a\": NaN}"), json_error("1:7", "; NaN is no JSON number: non-finite values are strings, \"nan\""));
  EXPECT_EQ(error("{\"a\": 1 /* never"), "f:1:9: begins a comment that never ends; expected */");
  EXPECT_NE(error("{\"a\": 1, \"a\": 2}").find("appears twice"), std::string::npos);
  EXPECT_NE(error("").find("f:1:1: is not JSON"), std::string::npos);
}

TEST(a_yaml_file, becomes_values_with_their_places) {
  const auto read = audit::read_yaml(audit_file("accelerate_deepspeed.yaml"));
  ASSERT_TRUE(read.ok()) << read.error().text();
  EXPECT_EQ(read->json["deepspeed_config"]["zero_stage"], 2);
  EXPECT_EQ(read->json["downcast_bf16"], "no") << "quoted: text";
  EXPECT_EQ(read->json["debug"], false);
  EXPECT_EQ(read->where("/num_processes").substr(read->where("/num_processes").rfind("yaml")), "yaml:16:16: /num_processes");
}

TEST(a_yaml_file, of_aliases_without_end_is_refused) {
  const TemporaryFolder folder;
  const std::string path = folder.path() / "bomb.yaml";
  std::ofstream stream(path);
  stream << "a0: &a0 [x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 10; ++i) stream << "a" << i << ": &a" << i << " [*a" << i - 1 << ", *a" << i - 1 << ", *a" << i - 1 << ", *a" << i - 1 << "]\n";
  stream.close();
  EXPECT_NE(audit::read_yaml(path).error().text().find("holds too much"), std::string::npos);
  std::ofstream(path) << "a: [1, 2\nb: 3\n";
  EXPECT_NE(audit::read_yaml(path).error().text().find("is not YAML"), std::string::npos);
}

TEST(releases, are_read_and_compared) {
  EXPECT_TRUE(loops::at_least("4.46.0", "4.46"));
  EXPECT_TRUE(loops::at_least("5.0.0.dev0", "4.54"));
  EXPECT_FALSE(loops::at_least("1.10.0", "1.11"));
  EXPECT_TRUE(loops::at_least("1.10.0+cpu", "1.9.0"));
  const auto read = loops::releases_of_freeze("Open_Instruct==2026.2 ; python_version > '3'\n-e git+x\ntorch[all]==2.6.0+cu124  # it\n", "f");
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(*read, (loops::Releases{{"open-instruct", "2026.2"}, {"torch", "2.6.0+cu124"}}));
  EXPECT_FALSE(loops::releases_of_freeze("nothing here", "f").ok());
}

TEST(a_configuration, is_told_all_that_is_wrong_at_once) {
  const std::vector<std::string> errors = errors_of(request_of("many_mistakes.json", "deepspeed", "0.18.6"));
  const auto told = [&](const std::string& part) { return std::any_of(errors.begin(), errors.end(), [&](const std::string& e) { return e.find(part) != e.npos; }); };
  EXPECT_EQ(errors.size(), 5u);
  EXPECT_TRUE(told("many_mistakes.json:2:23: /train_batch_size: DeepSpeed refuses it: Check batch related parameters")) << errors.front();
  EXPECT_TRUE(told("100 != 2 * 4 * 8"));
  EXPECT_TRUE(told(":5:24: /gradient_clipping: "));
  EXPECT_TRUE(told("/zero_optimization/stage: "));
  EXPECT_TRUE(told("/zero_optimization/contiguous_gradients: "));
  EXPECT_TRUE(told("/fp16/enabled: is true, and so is bf16.enabled"));
}

TEST(a_configuration, lists_what_it_fills_in_and_what_it_leaves_out) {
  const audit::Setup setup = setup_of(request_of("zero3_auto.json", "hf-trainer"));
  const auto filled = [&](const std::string& pointer) {
    const auto at = std::find_if(setup.filled.begin(), setup.filled.end(), [&](const report::AuditFilled& f) { return f.pointer == pointer; });
    return at == setup.filled.end() ? "" : at->value + ", " + at->why;
  };
  EXPECT_EQ(filled("/gradient_clipping"), "1.0, default of the Trainer's max_grad_norm");
  EXPECT_EQ(filled("/gradient_accumulation_steps"), "4, nobody says how many: --micro-batches");
  EXPECT_EQ(filled("/bf16/enabled"), "false, default of the Trainer's bf16");
  const std::vector<std::string>& ignored = setup.ignored;
  for (const char* key : {"/scheduler", "/steps_per_print", "/zero_optimization/stage3_prefetch_bucket_size", "/zero_optimization/offload_param/pin_memory"})
    EXPECT_EQ(std::count(ignored.begin(), ignored.end(), key), 1) << key;
  EXPECT_TRUE(setup.unknown.empty());
  EXPECT_EQ(setup.config["zero_optimization"]["stage"], 3);
}

TEST(a_configuration, names_unknown_keys_with_what_was_probably_meant) {
  const TemporaryFolder folder;
  const std::string path = folder.path() / "ds.json";
  std::ofstream(path) << R"({"train_micro_batch_size_per_gpu": 1, "zero_optimisation": {"stage": 2}, "zero_optimization": {"overlap_com": true, "stage": 1}})";
  audit::Request request = request_of("", "deepspeed");
  request.files.config = path;
  const audit::Setup setup = setup_of(request);
  EXPECT_EQ(setup.unknown, (std::vector<std::string>{"/zero_optimisation; did you mean \"zero_optimization\"?", "/zero_optimization/overlap_com; did you mean \"overlap_comm\"?"}));
}

TEST(a_configuration, settles_batch_sizes_as_deepspeed_does) {
  const auto steps = [](const std::string& text) {
    const TemporaryFolder folder;
    const std::string path = folder.path() / "ds.json";
    std::ofstream(path) << text;
    audit::Request request = request_of("", "deepspeed");
    request.files.config = path;
    return setup_of(request).config["gradient_accumulation_steps"].get<int>();
  };
  EXPECT_EQ(steps(R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2})"), 4);
  EXPECT_EQ(steps(R"({"train_batch_size": 64, "gradient_accumulation_steps": 8})"), 8);
  EXPECT_EQ(steps(R"({"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 3})"), 3);
  EXPECT_EQ(steps(R"({"gradient_accumulation_steps": 5})"), 5) << "with a note that DeepSpeed refuses it";
}

TEST(a_trainers_arguments, fill_what_the_configuration_leaves_to_them) {
  audit::Request request = request_of("", "");
  request.files.arguments = audit_file("trainer_args.json");
  request.freeze = audit_file("freeze.txt");
  const audit::Setup setup = setup_of(request);
  ASSERT_TRUE(setup.loop);
  EXPECT_EQ(setup.loop->name, "hf-trainer");
  EXPECT_EQ(setup.setting.micro_batches, 8u);
  EXPECT_EQ(setup.config["gradient_clipping"], 0.5);
  EXPECT_EQ(setup.config["bf16"]["enabled"], true);
  EXPECT_EQ(setup.as_of, "0.18.6");
  EXPECT_EQ(setup.setting.packages.at("transformers"), "4.54.1");
}

TEST(a_trainers_arguments, without_deepspeed_are_those_of_distributed_data_parallel) {
  audit::Request request = request_of("", "");
  request.files.arguments = audit_file("trainer_args_ddp.json");
  const audit::Setup setup = setup_of(request);
  ASSERT_TRUE(setup.framework);
  EXPECT_EQ(setup.framework->id(), "ddp");
  EXPECT_EQ(setup.config["find_unused_parameters"], true);
}

TEST(accelerates_file, says_framework_ranks_and_configuration) {
  const audit::Setup setup = setup_of(request_of("accelerate_deepspeed.yaml", "accelerate"));
  EXPECT_EQ(setup.ranks, 4u);
  EXPECT_EQ(setup.config["zero_optimization"]["offload_optimizer"]["device"], "cpu");
  EXPECT_EQ(setup.config["bf16"]["enabled"], true);
  EXPECT_EQ(setup.setting.micro_batches, 8u);
}

TEST(a_model, is_taken_as_text_or_file_and_made_smaller_with_its_buckets) {
  audit::Request request = request_of("zero2_offload.json", "deepspeed");
  request.model = "embed=32000x512,head=512x32000";
  const audit::Setup setup = setup_of(request);
  ASSERT_EQ(setup.parameters.size(), 2u);
  EXPECT_LE(setup.parameters[0]["numel"].get<int>(), 2048);
  EXPECT_LT(setup.config["zero_optimization"]["reduce_bucket_size"].get<double>(), 200000000);
  request.model = "embed=";
  EXPECT_EQ(errors_of(request).size(), 1u);
  request.model = "a=99999999999999999999";
  EXPECT_EQ(errors_of(request).size(), 1u);
}

}  // namespace
}  // namespace gradledger::testing
