// The table of buffer families holds what the engines allocate, all of it and nothing else.
#include <gtest/gtest.h>

#include "ref/facts.h"
#include "ref/probes.h"
#include "sim/frameworks/deepspeed/buffers.h"
#include "sim/frameworks/framework.h"
#include "sim/frameworks/deepspeed/settings.h"
#include "sim/frameworks/framework.h"
#include "tests/support/scenarios.h"

namespace gradledger::testing {
namespace {

// Configurations that between them allocate every buffer: each engine, dtype, offload, with its options about buffers.
std::vector<Scenario> configurations() {
  std::vector<Scenario> out;
  for (std::uint32_t stage = 0; stage <= 3; ++stage)
    for (Dtype dtype : {Dtype::float32, Dtype::bfloat16, Dtype::float16})
      for (bool offload : {false, true})
        for (bool fp32_accumulation : {false, true})
          for (bool contiguous : {false, true})
            for (bool multi_rank_all_reduce : {false, true}) {
              Scenario s = base_scenario(2, {30, 21, 12}, dtype);
              s.engine.optimizer.type = OptimizerType::adam;
              deepspeed_config(s).zero.stage = stage;
              deepspeed_config(s).zero.offload_optimizer = offload ? OffloadDevice::cpu : OffloadDevice::none;
              deepspeed_config(s).zero.contiguous_gradients = contiguous;
              deepspeed_config(s).zero.offload_param = contiguous ? OffloadDevice::cpu : OffloadDevice::none;
              deepspeed_config(s).zero.use_multi_rank_bucket_allreduce = multi_rank_all_reduce;
              s.engine.as_of.switches["stage2_acc_dtype"] = multi_rank_all_reduce ? "acc" : "model";
              deepspeed_config(s).gradient_clipping = 1.0;
              deepspeed_config(s).communication_data_type = dtype == Dtype::float32 ? Dtype::bfloat16 : Dtype::float32;
              if (fp32_accumulation) deepspeed_config(s).grad_accum_dtype = Dtype::float32;
              s.parameters[1].used_by = *Predicate::parse("step == 0", "");  // in the second window it gets zeros
              deepspeed_config(s).gradient_accumulation_steps = 3;
              s.script = {repeat(2, managed(3)), repeat(2, {backward(), step()}), backward(), event(ScriptKind::engine_zero_grad), set_of("w0", 2)};
              if (stage == 3) s.script.push_back(set_of("w0", 2, true));
              Scenario with_experts = s;
              with_experts.parameters[2].expert = 0;
              for (Scenario made : {s, with_experts})
                for (const char* as_of : {"0.19.7", "head"}) {
                  made.engine.as_of.base = as_of;
                  if (!admission_error(made)) out.push_back(made);
                }
            }
  for (const std::uint32_t stage : {2u, 3u}) {
    Scenario s = base_scenario(2, {30, 21, 12}, Dtype::float32);
    s.engine.optimizer.type = OptimizerType::muon;
    deepspeed_config(s).zero.stage = stage;
    deepspeed_config(s).zero.reduce_scatter = false;
    s.script = managed(1);
    out.push_back(s);
  }
  return out;
}

std::vector<std::string> allocated_by(const Scenario& scenario) {
  const auto timeline = make_timeline(scenario);
  HostExecutor producer(scenario, *timeline);
  const auto source = ref::value_source(scenario, *timeline, GradientKind::normal, 0);
  ref::FactsSink facts(scenario, *timeline);
  return facts.take(producer.run(*source, RunOptions{}, facts)).allocated;
}

// "*" for the parameter's name.
std::string family_of(const Scenario& scenario, const std::string& name) {
  for (const BufferFamily& family : deepspeed::buffer_families())
    for (const Parameter& p : scenario.parameters) {
      std::string concrete(family.name);
      if (const std::size_t star = concrete.find('*'); star != std::string::npos) concrete.replace(star, 1, p.name);
      if (concrete == name) return std::string(family.name);
    }
  return "";
}

TEST(buffer_families, are_what_the_engines_allocate_all_of_it_and_nothing_else) {
  std::set<std::string> unseen;
  for (const BufferFamily& family : deepspeed::buffer_families()) unseen.insert(std::string(family.name));
  for (const Scenario& s : configurations())
    for (const std::string& name : allocated_by(s)) {
      EXPECT_TRUE(names_buffer_family(s, name)) << name;
      EXPECT_NE(purposes_of_buffers(s).of(name), BufferPurpose::other) << name;
      unseen.erase(family_of(s, name));
    }
  for (const std::string& family : unseen) ADD_FAILURE() << family << " is allocated by no configuration";
}

TEST(buffer_families, give_each_buffer_its_purpose_by_its_name) {
  Scenario s = base_scenario(2, {4, 4}, Dtype::float32);
  s.parameters[1].name = "layer[0].grad";
  const BufferPurposes purposes = purposes_of_buffers(s);
  EXPECT_EQ(purposes.of("w0"), BufferPurpose::weights);
  EXPECT_EQ(purposes.of("w0.grad"), BufferPurpose::gradients);
  EXPECT_EQ(purposes.of("layer[0].grad"), BufferPurpose::weights);
  EXPECT_EQ(purposes.of("layer[0].grad.grad"), BufferPurpose::gradients);
  EXPECT_EQ(purposes.of("w0.grad_accum.to(model)"), BufferPurpose::buckets);
  EXPECT_EQ(purposes.of("fp32_groups[0][w0]"), BufferPurpose::master_weights);
  EXPECT_EQ(purposes.of("fp32_groups[0][w0].grad"), BufferPurpose::master_gradients);
  EXPECT_EQ(purposes.of("accumulated_grads_in_cpu[w0]"), BufferPurpose::accumulators);
  EXPECT_EQ(purposes.of("w1.grad"), BufferPurpose::other);
}

TEST(buffer_families, are_what_an_expectation_may_name) {
  Scenario s = base_scenario(2, {4}, Dtype::float32);
  for (const char* known : {"accumulated_grads_in_cpu", "w0.grad", "grad_partition of w0"}) {
    s.expect.not_allocated = {"ipg_buffer", known};
    EXPECT_FALSE(admission_error(s)) << known;
  }
  for (const char* unknown : {"accumulated_grads_in_cpus", "w1.grad", "*.grad", "", "averaged_gradient"}) {
    s.expect.not_allocated = {"ipg_buffer", unknown};
    const auto error = admission_error(s);
    ASSERT_TRUE(error) << unknown;
    EXPECT_EQ(error->where, "/expect/not_allocated/1");
  }
}

}  // namespace
}  // namespace gradledger::testing
