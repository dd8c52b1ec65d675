// Muon: what its momentum takes in, release by release, with figures that runs of DeepSpeed gave; and what is refused with it.
#include <algorithm>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "sim/frameworks/deepspeed/settings.h"
#include "sim/frameworks/framework.h"
#include "tests/engine/releases.h"

namespace gradledger::testing {
namespace {

using Values = std::vector<double>;

// Of rank 0, and of the others; every element alike. From a backward on it may be infinite.
class Numbers final : public GradientSource {
 public:
  Numbers(double of_first, double of_others, std::uint32_t infinite = never) : of_first_(of_first), of_others_(of_others), infinite_(infinite) {}
  void gradient(std::uint32_t backward, std::uint32_t rank, std::uint32_t, std::uint64_t, std::span<double> out) const override {
    std::fill(out.begin(), out.end(), backward >= infinite_ ? std::numeric_limits<double>::infinity() : rank == 0 ? of_first_ : of_others_);
  }

 private:
  double of_first_, of_others_;
  std::uint32_t infinite_;
};

Scenario with_muon(std::uint32_t number, const char* as_of, bool reduce_scatter, std::uint32_t micro_batches, Dtype dtype = Dtype::float32,
                   const std::vector<std::uint32_t>& sizes = {6, 6, 4}) {
  Scenario s = of_stage(number, dtype, as_of, sizes);
  s.engine.optimizer.type = OptimizerType::muon;
  s.engine.optimizer.momentum = 0.5;
  deepspeed_config(s).zero.reduce_scatter = reduce_scatter;
  deepspeed_config(s).gradient_accumulation_steps = micro_batches;
  s.script = managed(micro_batches);
  return s;
}

Scenario in_fp16(Scenario s) {
  s.model_dtype = Dtype::float16;
  deepspeed_config(s).fp16.enabled = true;
  deepspeed_config(s).fp16.loss_scale = 8;
  return s;
}

// Of the last event that shows it.
Values momentum(const Keeper& seen, std::uint32_t rank) {
  Values out;
  for (const auto& [key, values] : seen.snapshots)
    if (std::get<0>(key) == rank && std::get<2>(key) == "momentum_buffer[0]") out = values;
  return out;
}

Values followed_by(std::size_t count, double value, std::size_t others, double other) {
  Values out(count, value);
  out.insert(out.end(), others, other);
  return out;
}

TEST(muon, took_in_own_elements_beside_averaged_ones_of_a_split_matrix_until_0_19_3) {
  for (const std::uint32_t number : {1u, 2u}) {
    const Keeper wrong = run(with_muon(number, "0.18.9", true, 1), Numbers(1, 3));
    EXPECT_EQ(momentum(wrong, 0), followed_by(8, 1.0, 4, 0.25)) << number;
    EXPECT_EQ(momentum(wrong, 1), followed_by(2, 0.75, 8, 1.0)) << number;
    for (const auto& [as_of, reduce_scatter] : {std::pair{"0.18.9", false}, {"0.19.3", true}, {"0.19.8", true}}) {
      const Keeper right = run(with_muon(number, as_of, reduce_scatter, 1), Numbers(1, 3));
      EXPECT_EQ(momentum(right, 0), Values(12, 1.0)) << number << " " << as_of;
      EXPECT_EQ(momentum(right, 1), Values(10, 1.0)) << number << " " << as_of;
    }
  }
}

// Of w0 with four elements all gradients are 1, of w1 with twelve 2. The second rank's partition has the end of w1, and then w0.
TEST(muon, sorts_its_matrices_the_largest_first) {
  class ByParameter final : public GradientSource {
   public:
    void gradient(std::uint32_t, std::uint32_t, std::uint32_t parameter, std::uint64_t, std::span<double> out) const override {
      std::fill(out.begin(), out.end(), parameter + 1.0);
    }
  };
  const Keeper seen = run(with_muon(1, "0.19.8", true, 1, Dtype::float32, {4, 12}), ByParameter{});
  EXPECT_EQ(momentum(seen, 0), Values(12, 1.0));
  EXPECT_EQ(momentum(seen, 1), followed_by(12, 1.0, 4, 0.5));
}

// Two windows of two micro-batches of 4: one half of 2 + 4 is due, not what four steps towards 2 make.
TEST(muon, advanced_with_every_micro_batch_at_stage_3_until_0_19_8) {
  for (const auto& [as_of, value] : {std::pair{"0.18.9", 1.875}, {"0.19.7", 1.875}, {"0.19.8", 3.0}}) {
    Scenario s = with_muon(3, as_of, false, 2, Dtype::float32, {6, 6, 6});
    s.script = {repeat(2, managed(2))};
    const Keeper seen = run(s, Numbers(4, 4));
    EXPECT_EQ(momentum(seen, 0), Values(9, value)) << as_of;
    EXPECT_EQ(momentum(seen, 1), Values(9, value)) << as_of;
  }
}

TEST(muon, has_what_overflowed_in_its_momentum_until_a_step_that_is_skipped_keeps_it_out) {
  for (const std::uint32_t number : {1u, 2u, 3u}) {
    for (const char* as_of : {"0.19.6", "0.19.8"}) {
      Scenario s = in_fp16(with_muon(number, as_of, false, 2, Dtype::float16, {6, 6, 6}));
      s.script = {repeat(2, managed(2))};
      const Keeper seen = run(s, Numbers(4, 4, 3));
      const Values left = momentum(seen, 0);
      ASSERT_FALSE(left.empty());
      const bool kept = std::string(as_of) == "0.19.8";
      EXPECT_EQ(std::all_of(left.begin(), left.end(), [](double x) { return x == 16.0; }), kept) << number << " " << as_of;
      EXPECT_EQ(std::none_of(left.begin(), left.end(), [](double x) { return std::isfinite(x); }), !kept) << number << " " << as_of;
    }
  }
}

TEST(muon, advanced_the_last_matrix_of_a_partition_alone_in_0_19_7) {
  for (const std::uint32_t number : {1u, 2u}) {
    Scenario s = in_fp16(with_muon(number, "0.19.7", false, 2, Dtype::float16));
    const Keeper seen = run(s, Numbers(4, 4));
    EXPECT_EQ(momentum(seen, 0), followed_by(6, 0.0, 6, 16.0)) << number;
    EXPECT_EQ(momentum(seen, 1), followed_by(6, 0.0, 4, 16.0)) << number;
  }
}

// The scale doubles behind the third step: of 2, 3, 3.5 and 3.75 the last comes out as 3.5 / 4 + 2.
TEST(muon, keeps_the_loss_scale_in_its_momentum) {
  for (const std::uint32_t number : {1u, 2u, 3u}) {
    Scenario s = in_fp16(with_muon(number, "0.19.8", false, 1, Dtype::float16));
    deepspeed_config(s).fp16.loss_scale = 0;
    deepspeed_config(s).fp16.initial_scale_power = 3;
    deepspeed_config(s).fp16.loss_scale_window = 2;
    s.script = {repeat(4, managed(1))};
    EXPECT_EQ(momentum(run(s, Numbers(4, 4)), 0).at(0), 2.875 * 16) << number;
    s.engine.as_of.switches["muon_loss_scale"] = "divided_out";
    EXPECT_EQ(momentum(run(s, Numbers(4, 4)), 0).at(0), 3.75) << number;
  }
}

TEST(muon, is_refused_where_its_release_has_it_not_and_where_it_is_not_modelled) {
  const auto where = [](const Scenario& s) {
    const auto error = admission_error(s);
    return error ? error->where : std::string();
  };
  EXPECT_EQ(where(with_muon(1, "0.19.8", true, 1)), "");
  EXPECT_EQ(where(with_muon(1, "0.17.5", true, 1)), "/engine/as_of");
  EXPECT_EQ(where(with_muon(1, "0.17.6", true, 1)), "");
  EXPECT_EQ(where(with_muon(3, "0.18.8", false, 1)), "/engine/as_of");
  EXPECT_EQ(where(with_muon(0, "0.19.8", true, 1)), "/engine/config/zero_optimization/stage");
  EXPECT_EQ(where(with_muon(3, "0.19.8", true, 1)), "/engine/config/zero_optimization/reduce_scatter");
  EXPECT_EQ(where(with_muon(2, "DeepSpeed#8090", true, 1)), "/engine/config/zero_optimization/reduce_scatter");
  EXPECT_EQ(where(with_muon(3, "0.19.7", false, 1)), "/parameters");
  Scenario s = with_muon(2, "0.19.8", false, 1);
  deepspeed_config(s).zero.offload_optimizer = OffloadDevice::cpu;
  EXPECT_EQ(where(s), "/engine/config/zero_optimization/offload_optimizer");
  for (const std::uint32_t number : {2u, 3u}) {
    s = with_muon(number, "0.19.8", false, 1, Dtype::bfloat16);
    ScriptItem infinite = event(ScriptKind::overflow);
    infinite.ranks = {0};
    infinite.micro_batch = 0;
    s.script.insert(s.script.begin(), infinite);
    EXPECT_EQ(where(s), number == 3 ? "/script" : "");
  }
  s = with_muon(2, "0.19.8", false, 1, Dtype::bfloat16);
  deepspeed_config(s).grad_accum_dtype = Dtype::float32;
  EXPECT_EQ(where(s), "/engine/config/data_types/grad_accum_dtype");
}

}  // namespace
}  // namespace gradledger::testing
