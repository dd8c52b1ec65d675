// What stages of a pipeline send each other and wait for, in the order in which each rank does it.
#include <gtest/gtest.h>

#include <map>

#include "sim/engine/pipeline_neighbours.h"
#include "sim/execution/host_executor.h"
#include "sim/load.h"
#include "tests/support/no_gradients.h"

namespace gradledger::testing {
namespace {

// Of each event: "f>" activations that it sends, ">f" those that it waits for, likewise b for gradients.
std::string words_of(const Program& program) {
  std::map<std::uint32_t, std::string> words;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    if (op.kind != OpKind::send && op.kind != OpKind::receive) continue;
    const char what = op.flag == 0 ? 'f' : 'b';
    words[op.event] += op.kind == OpKind::send ? std::string{' ', what, '>'} : std::string{' ', '>', what};
  }
  std::string out;
  for (const auto& [event, of_event] : words) out += (out.empty() ? "" : "; ") + std::to_string(event) + ":" + of_event;
  return out;
}

std::vector<std::string> words_of(const std::string& file) {
  const auto scenario = load_scenario(std::string(GRADLEDGER_SOURCE_DIR) + "/scenarios/" + file);
  EXPECT_TRUE(scenario.ok()) << file;
  const auto timeline = make_timeline(*scenario);
  HostExecutor executor(*scenario, *timeline);
  RunOptions options;
  options.linear = options.dry = true;
  TraceSink nobody;
  EXPECT_TRUE(executor.run(NoGradients{}, options, nobody).completed) << file;
  std::vector<std::string> out;
  for (const Rank& rank : executor.ranks()) out.push_back(words_of(rank.program));
  return out;
}

TEST(stages_of_a_pipeline, wait_for_each_other_as_one_forward_one_backward_has_it) {
  const std::vector<std::string> ranks = words_of("megatron/one-forward-one-backward.json");
  const std::string of_first = "2: f> f> >b; 3: f> >b; 4: f> >b; 5: >b", of_last = "2: >f; 3: b> >f; 4: b> >f; 5: b> >f; 6: b>";
  EXPECT_EQ(ranks[0].substr(0, of_first.size()), of_first);
  EXPECT_EQ(ranks[3].substr(0, of_last.size()), of_last);
}

TEST(stages_of_a_pipeline, of_several_chunks_close_to_a_ring) {
  const std::vector<std::string> ranks = words_of("megatron/interleaved-chunks.json");
  for (const std::string& words : {ranks.front(), ranks.back()})
    for (const char* word : {"f>", ">f", "b>", ">b"}) EXPECT_NE(words.find(word), std::string::npos) << words;
}

TEST(stages_of_a_pipeline, of_deepspeed_wait_for_one_micro_batch_after_the_other) {
  const std::vector<std::string> ranks = words_of("parameters/pipeline-without-overlap.json");
  EXPECT_EQ(ranks, (std::vector<std::string>{"0: f> >b; 1: f> >b", "0: f> >b; 1: f> >b", "0: >f b>; 1: >f b>", "0: >f b>; 1: >f b>"}));
}

TEST(stages_of_a_pipeline, that_are_one_send_nothing) {
  Program program;
  ProgramWriter w(program);
  const PipelineNeighbours alone(RankList({5}), 5);
  alone.receive_activations(1, w);
  alone.send_activations(0, 2, w);
  alone.receive_gradients(0, 2, w);
  alone.send_gradients(1, w);
  EXPECT_EQ(program.ops.size(), 0u);
}

}  // namespace
}  // namespace gradledger::testing
