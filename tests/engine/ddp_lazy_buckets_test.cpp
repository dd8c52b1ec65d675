// Buckets of DistributedDataParallel that have memory during a backward alone, as PyTorch 2.15 has them, and buckets whose reduction is skipped.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "ref/probes.h"
#include "sim/execution/host_executor.h"
#include "sim/frameworks/torch/ddp/framework.h"
#include "tests/engine/sharded_run.h"
#include "tests/support/loops.h"

namespace gradledger::torch::data_parallel {
namespace {

using nlohmann::json;

// What rank 0 did to buckets or to gradients, by event and as "divide 19": its operations on buffers of such a name. The constructor counts as the first event.
using Work = std::map<std::uint32_t, std::string>;

Work work(const std::string& buffers, const char* config, const char* script, std::uint32_t ranks = 2) {
  json document = testing::loop_around("ddp", script, config);
  document["engine"]["as_of"] = "2.15.0";
  document["world_size"] = ranks;
  Scenario s = parse_whole_scenario(document.dump(), ".").value();
  EXPECT_TRUE(ddp()->select(s).ok());
  const auto timeline = unroll(s, s.script, ddp()->contract(s).value());
  const auto source = ref::value_source(s, *timeline, GradientKind::normal, 1);
  testing::ShardedSink sink;
  HostExecutor executor(s, *timeline, CollectiveArithmetic::gloo, ddp()->factory(s));
  executor.run(*source, {}, sink);
  EXPECT_TRUE(sink.errors.empty());
  const Program& program = executor.ranks()[0].program;
  Work out;
  for (const Op& op : program.ops) {
    if (op.target.buffer == no_index || !program.buffers[op.target.buffer].name.starts_with(buffers)) continue;
    std::string& text = out[op.event];
    text += (text.empty() ? "" : ", ") + std::string(name_of(op.kind)) + " " + std::to_string(op.target.numel);
  }
  return out;
}

constexpr const char *three_windows = R"([{"repeat": {"times": 3, "of": [{"backward": {}}, {"step": {}}, {"zero_grad": {"of": "optimizer", "set_to_none": false}}]}}])",
                     *lazy = R"({"lazy_bucket_allocation": true})", *lazy_views = R"({"lazy_bucket_allocation": true, "gradient_as_bucket_view": true})",
                     *eager_views = R"({"gradient_as_bucket_view": true})";

// The second forward builds eager buckets anew.
TEST(lazy_buckets_of_ddp, have_memory_during_a_backward_alone) {
  const Work seen = work("buckets[", lazy, three_windows);
  for (const std::uint32_t backward : {0u, 3u, 6u}) {
    EXPECT_TRUE(seen.at(backward).starts_with("allocate 19, copy 6, multiply 6")) << seen.at(backward);
    EXPECT_TRUE(seen.at(backward).ends_with("release 19")) << seen.at(backward);
  }
  EXPECT_EQ(work("buckets[", "{}", three_windows).at(6).find("allocate"), std::string::npos);
}

// What is there when a bucket is allocated moves into it, and is divided there: the first gradient of a first backward, and all of them of later ones. A third of
// a gradient is rounded in another way then.
TEST(lazy_buckets_of_ddp, divide_what_moves_into_them_where_gradients_are_views) {
  EXPECT_EQ(work("buckets[", eager_views, three_windows, 3).at(0), "allocate 19, copy 6, multiply 6, copy 13, multiply 13");
  const Work seen = work("buckets[", lazy_views, three_windows, 3);
  EXPECT_EQ(seen.at(0), "allocate 19, copy 6, divide 6, copy 13, multiply 13");
  EXPECT_EQ(seen.at(6), "deposit 6, allocate 19, copy 6, copy 13, release 19, divide 6, deposit 13, divide 13");
  EXPECT_EQ(work("buckets[", R"({"lazy_bucket_allocation": true, "gradient_as_bucket_view": true, "batched_grad_copy": true})", three_windows, 3).at(0),
            "allocate 19, copy 6, copy 13, divide 19");
}

// The memory of a bucket outlives it for as long as gradients view it.
TEST(lazy_buckets_of_ddp, leave_their_memory_to_the_gradients_that_view_it) {
  const Work seen = work("buckets[", lazy_views, three_windows);
  EXPECT_EQ(seen.at(0).find("release"), std::string::npos);
  EXPECT_NE(seen.at(3).find("release 19"), std::string::npos);
}

constexpr const char *used_in_a_block = R"([{"backward": {}}, {"no_sync": [{"backward": {"uses": ["w0"]}}]}, {"backward": {"uses": ["w1"]}}])",
                     *used_in_a_block_alone = R"([{"no_sync": [{"backward": {"uses": ["w0"]}}]}, {"backward": {"uses": ["w1"]}}])";

std::string skipping(const char* more) { return std::string(R"({"bucket_cap_mb": 0.000001, "find_unused_parameters": true, "skip_all_reduce_unused_params": true)") + more + "}"; }

// Runs of 2.11.0, 2.12.0, 2.14.1 and 2.15.0 show it: the future of the reduction before is taken for one of this backward.
TEST(skipped_buckets_of_ddp, that_were_reduced_before_are_copied_back_where_a_block_used_them) {
  EXPECT_EQ(work("w0.grad", skipping("").c_str(), used_in_a_block).at(4), "copy 13");
  EXPECT_FALSE(work("w0.grad", skipping("").c_str(), used_in_a_block_alone).contains(3));
  EXPECT_FALSE(work("w0.grad", skipping(R"(, "lazy_bucket_allocation": true)").c_str(), used_in_a_block).contains(4)) << "a released bucket has no future";
}

TEST(skipped_buckets_of_ddp, are_divided_all_the_same) {
  const auto divided = [](const char* more) { return work("buckets[", skipping(more).c_str(), R"([{"backward": {}}, {"backward": {"uses": ["w1"]}}])").at(1).find("divide 13"); };
  EXPECT_NE(divided(R"(, "gradient_as_bucket_view": true)"), std::string::npos);
  EXPECT_NE(divided(R"(, "gradient_as_bucket_view": true, "batched_grad_copy": true)"), std::string::npos);
  EXPECT_NE(divided(R"(, "gradient_as_bucket_view": true, "lazy_bucket_allocation": true)"), std::string::npos);
  EXPECT_EQ(divided(R"(, "gradient_as_bucket_view": true, "lazy_bucket_allocation": true, "comm_hook": "allreduce")"), std::string::npos) << "which a hook does itself";
}

}  // namespace
}  // namespace gradledger::torch::data_parallel
