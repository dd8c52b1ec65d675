// Launch scripts of Megatron-LM whose ranks hold parts of a model: what becomes of them, and which defects their layouts show.
#include <algorithm>
#include <fstream>

#include "sim/scenario/parse.h"
#include "tests/audit/support.h"

namespace gradledger::testing {
namespace {

using report::AuditOutcome;

// A script on nodes of eight.
class Script {
 public:
  explicit Script(const std::string& arguments, int nodes = 1, const std::string& release = "0.16.1") {
    std::ofstream(folder_.path() / "train.sh") << "#!/bin/bash\nNODES=" << nodes
                                               << "\ntorchrun --nproc_per_node 8 --nnodes $NODES pretrain_gpt.py \\\n    --micro-batch-size 1 --bf16 " << arguments << "\n";
    request_ = request_of("", "");
    request_.files.config = folder_.path() / "train.sh";
    request_.releases["megatron-core"] = release;
  }

  audit::Request& request() { return request_; }
  audit::Setup setup() const { return setup_of(request_); }
  audit::Answer answer() const { return answered(request_); }
  report::AuditReport report() const { return audited(request_); }
  std::vector<std::string> errors() const { return errors_of(request_); }

 private:
  TemporaryFolder folder_;
  audit::Request request_;
};

bool one_says(const std::vector<std::string>& texts, const std::string& part) {
  return std::any_of(texts.begin(), texts.end(), [&](const std::string& text) { return text.find(part) != text.npos; });
}

const report::Finding* known_as(const report::AuditReport& report, const std::string& entry) {
  const auto found = std::find_if(report.findings.begin(), report.findings.end(), [&](const report::Finding& f) { return f.known && f.known->entry == entry; });
  return found == report.findings.end() ? nullptr : &*found;
}

json parameter(const audit::Setup& setup, const std::string& name) {
  for (const json& p : setup.parameters)
    if (p["name"] == name) return p;
  return {};
}

// ---- how ranks lie ------------------------------------------------------------------------------------------------------------------

TEST(a_megatron_layout, has_all_the_ranks_and_says_what_each_holds) {
  const audit::Setup setup = Script("--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --sequence-parallel --global-batch-size 8").setup();
  EXPECT_EQ(setup.ranks, 8u);
  EXPECT_EQ(setup.layout, (json{{"tp", 2}, {"pp", 2}}));
  EXPECT_EQ(setup.setting.micro_batches, 4u) << "of two data-parallel ranks";
  EXPECT_EQ(parameter(setup, "layer0.weight")["sharded_over"], "tp");
  EXPECT_EQ(parameter(setup, "layer1.norm")["summed_over"], "tp");
  EXPECT_EQ(parameter(setup, "layer2.weight")["pipeline_stage"], 1);
  EXPECT_FALSE(parameter(setup, "layer0.weight").contains("pipeline_stage"));
  EXPECT_TRUE(parameter(setup, "head").is_null()) << "it is the embedding, unless the script unties them";
  EXPECT_EQ(setup.config["parameters"]["embed"], (json{"tensor_model_parallel", "shared_embedding", "shared"}));
  EXPECT_EQ(setup.config["model"]["sequence_parallel"], true);
}

TEST(a_megatron_layout, of_copies_sums_nothing_without_sequence_parallel) {
  const audit::Setup setup = Script("--tensor-model-parallel-size 2").setup();
  EXPECT_FALSE(parameter(setup, "layer1.norm").contains("summed_over"));
  EXPECT_FALSE(setup.config.contains("model"));
  EXPECT_FALSE(setup.config["parameters"].contains("layer1.norm"));
}

TEST(a_megatron_layout, has_stages_before_data_where_the_script_says_so) {
  EXPECT_EQ(Script("--pipeline-model-parallel-size 2 --use-tp-pp-dp-mapping").setup().layout["order"], "tp-cp-ep-pp-dp");
}

TEST(a_megatron_layout, takes_a_users_model_by_the_names_of_its_parameters) {
  Script script("--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --sequence-parallel");
  script.request().model = "wte=64x8,h.0.ln_1=8,h.0.mlp=8x31,h.1.mlp=8x32,lm_head=64x8";
  const audit::Setup setup = script.setup();
  EXPECT_EQ(parameter(setup, "h.0.ln_1")["summed_over"], "tp");
  EXPECT_EQ(parameter(setup, "h.0.mlp")["sharded_over"], "tp");
  EXPECT_EQ(parameter(setup, "h.1.mlp")["pipeline_stage"], 1);
  EXPECT_EQ(parameter(setup, "lm_head")["pipeline_stage"], 1);
  EXPECT_TRUE(one_says(setup.notes, "by their names"));
  EXPECT_TRUE(one_says(setup.not_judged, "the embedding that first and last stage share"));
  EXPECT_EQ(script.answer().text(), "clean");
  script.request().model = "wte=64x8,h.0.mlp=8x32";
  EXPECT_TRUE(one_says(script.errors(), "/pipeline_model_parallel_size: makes 2 parts of the model with its virtual stages, and --model has 1 layers"));
}

TEST(a_megatron_layout, that_is_large_is_replayed_smaller_and_the_answer_says_so) {
  const audit::Setup setup = Script("--tensor-model-parallel-size 8 --pipeline-model-parallel-size 4 --global-batch-size 64", 16).setup();
  EXPECT_EQ(setup.ranks, 16u);
  EXPECT_EQ(setup.layout, (json{{"tp", 2}, {"pp", 2}}));
  EXPECT_EQ(setup.setting.micro_batches, 16u) << "of the four data-parallel ranks that there are";
  EXPECT_TRUE(one_says(setup.not_judged, "16 of 128 ranks are replayed, with 2 tensor-parallel ranks for 8, 2 pipeline stages for 4"));
}

TEST(a_megatron_layout, that_the_ranks_do_not_divide_into_is_an_error) {
  EXPECT_TRUE(one_says(Script("--tensor-model-parallel-size 3").errors(), "/tensor_model_parallel_size: times pipeline and context ranks is 3, which does not divide the 8 ranks"));
  EXPECT_TRUE(one_says(Script("--num-experts 16 --expert-model-parallel-size 16").errors(), "/expert_model_parallel_size: times expert_tensor_parallel_size is 16"));
}

// A script of somebody's own says itself what its ranks run: those of one part of the model.
TEST(a_megatron_layout, is_left_to_a_scenario_whose_script_is_audited) {
  audit::Request request = Script("").request();
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "train.args") << "--tensor-model-parallel-size 2 --bf16";
  request.files.config = folder.path() / "train.args";
  request.script = (source_folder / "scenarios/megatron/plain.json").string();
  const audit::Setup setup = setup_of(request);
  EXPECT_TRUE(setup.layout.is_null());
  EXPECT_TRUE(one_says(setup.not_judged, "ranks are replayed, which hold the same weights"));
}

// ---- schedules ----------------------------------------------------------------------------------------------------------------------

TEST(a_megatron_pipeline, calls_its_schedule_in_which_stages_begin_reductions_by_themselves) {
  const Script script("--pipeline-model-parallel-size 2 --overlap-grad-reduce --global-batch-size 16");
  EXPECT_EQ(script.setup().config["schedule"], (json{{"grad_sync_func", true}}));
  const json scenario = to_json(*script.answer().scenario);
  EXPECT_EQ(scenario["engine"]["config"]["schedule"], (json{{"num_microbatches", 4}, {"loss", "mean"}, {"grad_sync_func", true}}));
  EXPECT_EQ(scenario["script"][0]["repeat"]["of"][2]["event"]["name"], "forward_backward_func");
  EXPECT_FALSE(Script("--pipeline-model-parallel-size 2 --overlap-grad-reduce --no-align-grad-reduce").setup().config["schedule"].contains("grad_sync_func"));
  EXPECT_FALSE(Script("--pipeline-model-parallel-size 2").setup().config["schedule"].contains("grad_sync_func")) << "nothing is begun early without overlap";
  EXPECT_FALSE(Script("--overlap-grad-reduce").setup().config.contains("schedule")) << "of one stage the loop says how it reduces";
}

TEST(a_megatron_pipeline, of_virtual_stages_is_interleaved_by_its_layers_or_their_number) {
  const std::string pipeline = "--pipeline-model-parallel-size 2 --num-layers 8 --global-batch-size 16 --untie-embeddings-and-output-weights ";
  const audit::Setup setup = Script(pipeline + "--num-layers-per-virtual-pipeline-stage 2").setup();
  ASSERT_EQ(setup.config["schedule"]["model_chunks"].size(), 2u);
  EXPECT_EQ(setup.config["schedule"]["model_chunks"][0][0], "embed");
  EXPECT_EQ(setup.config["schedule"]["model_chunks"][1].back(), "head");
  const Script by_number(pipeline + "--num-virtual-stages-per-pipeline-rank 2 --microbatch-group-size-per-virtual-pipeline-stage 4");
  EXPECT_EQ(by_number.setup().config["schedule"]["microbatch_group_size_per_vp_stage"], 4);
  const json window = to_json(*by_number.answer().scenario)["script"][0]["repeat"]["of"];
  EXPECT_EQ(window[3]["backward"]["micro_batches"], 4) << "a group goes through the last chunk before the first one has its turn";
  EXPECT_EQ(window[3]["backward"]["uses"].back(), "head");
  EXPECT_EQ(window[4]["backward"]["uses"][0], "embed");
  EXPECT_EQ(by_number.answer().text(), "clean");
  EXPECT_TRUE(one_says(Script(pipeline + "--num-layers-per-virtual-pipeline-stage 3").errors(),
                       "/num_layers_per_virtual_pipeline_stage: is 3, which does not divide the 8 layers of 2 stages"));
  EXPECT_TRUE(one_says(Script("--num-virtual-stages-per-pipeline-rank 2").errors(), "/pipeline_model_parallel_size: is 1, and virtual stages are given"));
}

TEST(a_megatron_pipeline, says_of_virtual_stages_what_has_no_model) {
  const std::string chunks = "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2 --overlap-grad-reduce --use-distributed-optimizer --global-batch-size 16 ";
  const audit::Setup gathers = Script(chunks + "--overlap-param-gather").setup();
  EXPECT_FALSE(gathers.config["ddp"].contains("overlap_param_gather"));
  EXPECT_TRUE(one_says(gathers.not_judged, "weights that are gathered in the next forward of a chunk"));
  EXPECT_TRUE(one_says(gathers.not_judged, "the embedding that first and last stage share"));
  EXPECT_TRUE(one_says(Script(chunks + "--calculate-per-token-loss").setup().not_modelled, "losses that are sums over tokens in an interleaved schedule"));
}

// ---- defects that need a layout -----------------------------------------------------------------------------------------------------

// docs/upstream.md, megatron-stage-reduces-its-gradients-twice: shown by runs of 0.16.1 and 0.19.0, and not of 0.15.3.
TEST(an_audit_of_a_megatron_layout, finds_a_stage_that_reduces_its_gradients_twice) {
  const std::string arguments =
      "--pipeline-model-parallel-size 2 --overlap-grad-reduce --use-distributed-optimizer --num-distributed-optimizer-instances 2 --global-batch-size 16 "
      "--tensor-model-parallel-size 2";
  for (const char* release : {"0.16.1", "0.19.0"}) {
    const report::AuditReport report = Script(arguments, 2, release).report();
    EXPECT_EQ(report.outcome, AuditOutcome::affected);
    ASSERT_TRUE(known_as(report, "megatron-1")) << release;
    EXPECT_EQ(known_as(report, "megatron-1")->known->name, "stage-reduces-its-gradients-twice");
    EXPECT_EQ(report.since, "0.16.0");
    EXPECT_EQ(report.fixed, "no release that is known");
    for (const char* help : {"give no_align_grad_reduce", "leave out num_distributed_optimizer_instances"})
      EXPECT_TRUE(std::any_of(report.advice.begin(), report.advice.end(), [&](const report::AuditAdvice& a) { return a.clean && a.says == help; })) << help;
    EXPECT_TRUE(one_says(report.not_judged, "what pipeline stages send each other"));
  }
  EXPECT_EQ(Script(arguments, 2, "0.15.3").answer().text(), "clean");
  EXPECT_EQ(Script(arguments + " --no-align-grad-reduce", 2, "0.19.0").answer().text(), "clean");
}

// Megatron-LM#844: repaired in 0.13.0.
TEST(an_audit_of_a_megatron_layout, finds_an_embedding_whose_two_ends_lie_in_other_parts) {
  const std::string arguments = "--pipeline-model-parallel-size 2 --use-distributed-optimizer --tensor-model-parallel-size 2 --global-batch-size 16 ";
  const report::AuditReport report = Script(arguments, 1, "0.12.0").report();
  ASSERT_TRUE(known_as(report, "zoo-57"));
  EXPECT_EQ(report.fixed, "0.13.0");
  EXPECT_EQ(Script(arguments, 1, "0.13.0").answer().text(), "clean");
  EXPECT_EQ(Script(arguments + "--untie-embeddings-and-output-weights", 1, "0.12.0").answer().text(), "clean");
}

// Both ends of a pipeline are due what either has of the embedding, divided by the tokens of a window.
TEST(an_audit_of_a_megatron_layout, divides_an_embedding_of_two_stages_by_tokens) {
  Script script("--pipeline-model-parallel-size 2 --context-parallel-size 2 --tensor-model-parallel-size 2 --calculate-per-token-loss --global-batch-size 4", 2);
  EXPECT_EQ(script.answer().text(), "clean");
  script.request().tokens = "uneven";
  const audit::Answer answer = script.answer();
  EXPECT_EQ(answer.text(), "clean");
  const Tokens& tokens = answer.scenario->tokens;
  EXPECT_EQ(tokens.of(0, 0, 0), tokens.of(0, 1, 0)) << "ranks of one model run the same micro-batch";
  EXPECT_EQ(tokens.of(0, 0, 0), tokens.of(0, 8, 0)) << "stages too";
  EXPECT_NE(tokens.of(0, 0, 0), tokens.of(0, 2, 0)) << "and those of a sequence another part of it";
}

TEST(an_audit_of_a_megatron_layout, averages_experts_over_the_ranks_that_have_them) {
  for (const char* over : {"", "--expert-tensor-parallel-size 1 ", "--pipeline-model-parallel-size 2 "}) {
    const Script script(
        std::string(over) + "--tensor-model-parallel-size 2 --sequence-parallel --num-experts 8 --expert-model-parallel-size 4 --use-distributed-optimizer --global-batch-size 16",
        2);
    const audit::Setup setup = script.setup();
    EXPECT_EQ(setup.layout["ep"], 4) << over;
    EXPECT_EQ(parameter(setup, "layer0.expert3.weight")["expert"], 3) << over;
    EXPECT_TRUE(setup.not_modelled.empty()) << over;
    EXPECT_EQ(script.answer().text(), "clean") << over;
  }
  Script named("--num-experts 8 --expert-model-parallel-size 2");
  named.request().model = "wte=64x8,h.0.mlp=8x32";
  EXPECT_TRUE(one_says(named.setup().not_modelled, "experts, of which --model names none"));
}

}  // namespace
}  // namespace gradledger::testing
