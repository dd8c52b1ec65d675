// The norm that a loop clips by, where gradients have 16 bits and PyTorch rounds it to them: from producers that report another one.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "ref/loop_clip.h"
#include "tests/support/loops.h"
#include "tests/support/tampering.h"

namespace gradledger::testing {
namespace {

using nlohmann::json;
using Set = std::set<std::string>;

const char* const low_gradients = R"({"mixed_precision": {"param_dtype": "bf16", "reduce_dtype": "fp32", "keep_low_precision_grads": true}})";

// Where ranks have shards they have the norm together.
json loop_in(const char* framework, const char* dtype, const std::string& config = "{}") {
  json document = loop_around(framework, R"([{"backward": {}}, {"clip": {"max_norm": 1}}, {"step": {}}])", config);
  document["script"][1]["clip"]["norm_over"] = framework == std::string("ddp") ? "rank" : "world";
  document["model_dtype"] = dtype;
  return document;
}

ref::Verdict verdict_by_rank(const json& document, const std::function<std::function<double(double)>(std::uint32_t)>& change_of) {
  const auto scenario = read_scenario(document.dump(), ".");
  EXPECT_TRUE(scenario) << (scenario ? "" : scenario.error().text());
  return judge_tampered(
      *scenario, [](const Snapshot&) {}, 0,
      [&](StepRecord& r) {
        if (r.fact == StepFact::loop_norm) r.value = change_of(r.rank)(r.value);
      });
}

// What is found where every rank reports its norm through `change`.
ref::Verdict verdict_of(const json& document, const std::function<double(double)>& change) {
  return verdict_by_rank(document, [&](std::uint32_t) { return change; });
}

Set found(const json& document, const std::function<double(double)>& change) { return classes(verdict_of(document, change)); }

TEST(norms_of_loops, may_be_rounded_as_gradients_are_and_no_further) {
  const auto by = [](double factor) { return [factor](double norm) { return norm * factor; }; };
  for (const char* framework : {"ddp", "fsdp1", "fsdp2"}) {
    for (const char* dtype : {"bf16", "fp16"}) {
      const double last_bit = dtype == std::string("bf16") ? 0x1p-7 : 0x1p-10;
      EXPECT_EQ(found(loop_in(framework, dtype), by(1)), Set{}) << framework << dtype;
      EXPECT_EQ(found(loop_in(framework, dtype), by(1 + last_bit)), Set{}) << framework << dtype;
      EXPECT_EQ(found(loop_in(framework, dtype), by(1.25)), Set{"wrong-norm"}) << framework << dtype;
    }
    EXPECT_EQ(found(loop_in(framework, "fp32"), by(1 + 0x1p-10)), Set{"wrong-norm"}) << framework << ": fp32 rounds less";
  }
  EXPECT_EQ(found(loop_in("fsdp1", "fp32", low_gradients), by(1 + 0x1p-7)), Set{}) << "weights in fp32, and gradients in bf16";
}

TEST(norms_of_loops, are_of_another_group_where_that_fits_every_rank_whose_norm_is_wrong) {
  const auto by = [](double factor) { return [factor](double norm) { return norm * factor; }; };
  const double twice = std::sqrt(2.0);  // squares of two ranks that hold the same
  const json document = loop_in("ddp", "fp32");
  EXPECT_EQ(found(document, by(twice)), Set{"wrong-group"});
  EXPECT_EQ(classes(verdict_by_rank(document, [&](std::uint32_t rank) { return by(rank == 0 ? twice : 1.0); })), Set{"wrong-group"}) << "the other's is right";
  for (const std::uint32_t one : {0u, 1u})
    EXPECT_EQ(classes(verdict_by_rank(document, [&](std::uint32_t rank) { return by(rank == one ? twice : 1.25); })), Set{"wrong-norm"}) << "one alone has it by chance";
}

// A pass of other data may leave but one rank's norm wrong.
TEST(norms_of_loops, are_of_another_group_where_that_fits_every_pass) {
  const auto norm = [](std::uint32_t event, std::uint32_t rank, std::vector<std::string> may_be) {
    ref::OtherNorm out;
    out.mismatch.event = event;
    out.mismatch.rank = rank;
    out.may_be = std::move(may_be);
    return out;
  };
  const auto named = ref::named({norm(1, 0, {"over a", "over b"}), norm(2, 0, {"over a"}), norm(1, 1, {"over b"}), norm(2, 1, {})});
  ASSERT_EQ(named.size(), 4U);
  for (const ref::StepMismatch& mismatch : named) {
    EXPECT_EQ(mismatch.finding, mismatch.event == 1 ? ref::FindingClass::wrong_group : ref::FindingClass::wrong_norm);
    EXPECT_EQ(mismatch.what, mismatch.event == 1 ? "; it is the norm over b" : "");
  }
}

TEST(norms_of_loops, may_be_infinite_where_gradients_have_no_room_for_them_alone) {
  const auto infinite = [](double) { return std::numeric_limits<double>::infinity(); };
  const auto of = [](double element) {
    json document = loop_in("ddp", "fp16");
    const json gradients = {{"w0", std::vector<double>(13, element)}, {"w1", std::vector<double>(6, element)}};
    document["gradients"] = {{"kind", "values"}, {"micro_batches", {{gradients, gradients}}}};
    return document;
  };
  EXPECT_EQ(found(of(32768), infinite), Set{}) << "the norm of 19 such elements is above the largest number of fp16";
  EXPECT_EQ(found(of(128), infinite), Set{"wrong-norm"});
}

// What ranks have cancels, and rounding of it is larger than what is left.
TEST(norms_of_loops, that_rounding_hides_are_said_not_to_be_judged) {
  const auto zero = [](double) { return 0.0; };
  const auto of = [](double other_rank) {
    const auto gradients = [](double element) { return json{{"w0", std::vector<double>(13, element)}, {"w1", std::vector<double>(6, element)}}; };
    json document = loop_in("ddp", "fp16");
    document["gradients"]["kind"] = "values";
    document["gradients"]["micro_batches"] = {{gradients(1000), gradients(other_rank)}};
    return document;
  };
  const ref::Verdict hidden = verdict_of(of(-999.5), zero);
  EXPECT_EQ(classes(hidden), Set{});
  EXPECT_EQ(hidden.left_out, std::vector<std::string>{"loop_norm at event 1: rounding may be as large as the norm, and a norm of 0 would pass"});
  const ref::Verdict told = verdict_of(of(999.5), zero);
  EXPECT_EQ(classes(told), Set{"wrong-norm"});
  EXPECT_EQ(told.left_out, std::vector<std::string>{});
}

TEST(hidden_norms, are_those_that_no_pass_can_tell) {
  ref::HiddenNorms first, second;
  for (const std::uint32_t rank : {0u, 1u}) {
    first.compared(2, rank, StepFact::gradient_norm, 1, 1);
    first.compared(4, rank, StepFact::gradient_norm, 1, std::numeric_limits<double>::infinity());
  }
  first.compared(3, 0, StepFact::clipping_norm, 0, 1);  // nothing is due
  first.compared(5, 0, StepFact::clipping_norm, 1, 0.5);
  EXPECT_EQ(first.sentences(), std::vector<std::string>{"global_grad_norm at events 2, 4: rounding may be as large as the norm, and a norm of 0 would pass"});
  for (const std::uint32_t rank : {0u, 1u}) second.compared(4, rank, StepFact::gradient_norm, 1, 0.5);
  second.compared(2, 0, StepFact::gradient_norm, 1, 0.5);
  first.add(second);
  EXPECT_EQ(first.sentences(), std::vector<std::string>{"global_grad_norm at event 2: rounding may be as large as the norm, and a norm of 0 would pass"}) << "that of rank 1";
}

}  // namespace
}  // namespace gradledger::testing
