#include <array>
#include <cmath>

#include "sim/frameworks/deepspeed/search/parts.h"
#include "sim/frameworks/deepspeed/settings.h"

namespace gradledger::deepspeed {
namespace {

// A fault of the mutants' catalogue that a release had, or could have, by one of the switches.
struct Defect {
  std::string_view fault, name, wrong, right;  // name: of the switch
};
constexpr std::array<Defect, 7> by_switch{{
    {"boundary-private", "order_bf16_epilogue", "reduce_then_accumulate", "accumulate_then_reduce"},
    {"accumulator-tests-the-wrong-list", "stage12_accumulator", "split_tests_AV", "split_tests_L"},
    {"host-accumulator-gated", "offload_keep", "gate_ga", "gate_id_or_not_boundary"},
    {"unscaled-by-the-next-scale", "scale_update", "before_unscale", "after_unscale"},
    {"momentum-advanced-by-a-skipped-step", "muon_staging", "none", "by_partition"},
    {"momentum-of-the-last-matrix", "muon_staging", "by_matrix", "by_partition"},
    {"momentum-of-each-micro-batch", "muon_takes_in", "each_reduction", "each_step"},
}};

class DeepSpeedTuning final : public Tuning {
 public:
  bool count_windows(Scenario& s, std::uint32_t micro_batches) const override { return set(deepspeed_config(s).gradient_accumulation_steps, micro_batches); }
  bool manage_windows(Scenario& s) const override { return set(deepspeed_config(s).managed_gradient_accumulation, true); }
  std::string_view average_over(const Scenario& s) const override { return deepspeed_config(s).gradient_allreduce_op == AllreduceOp::mean ? "world" : "none"; }

  bool set_model_dtype(Scenario& s, Dtype dtype) const override {
    deepspeed::set_model_dtype(s, dtype);
    return true;
  }
  bool set_accumulation_dtype(Scenario& s, std::optional<Dtype> dtype) const override { return set(deepspeed_config(s).grad_accum_dtype, dtype); }
  bool set_wire_dtype(Scenario& s, std::optional<Dtype> dtype) const override { return set(deepspeed_config(s).communication_data_type, dtype); }

  bool clip(Scenario& s, double max_norm) const override { return set(deepspeed_config(s).gradient_clipping, std::optional(max_norm)); }
  bool set_loss_scale(Scenario& s, const LossScalePolicy& policy) const override {
    Fp16Config& fp16 = deepspeed_config(s).fp16;
    if (!policy.dynamic) return set(fp16.loss_scale, policy.initial);
    fp16 = Fp16Config{.enabled = true};
    fp16.initial_scale_power = static_cast<std::uint32_t>(std::ilogb(policy.initial));
    fp16.loss_scale_window = policy.window;
    fp16.hysteresis = policy.hysteresis;
    fp16.states_defaults = fp16.has_defaults();
    return true;
  }

  bool overlap(Scenario& s, bool whether) const override { return set(deepspeed_config(s).zero.overlap_comm, std::optional(whether)); }
  bool fill_flat_buckets(Scenario& s) const override { return set(deepspeed_config(s).zero.contiguous_gradients, true); }
  bool limit_buckets(Scenario& s, std::uint64_t numel) const override { return set(deepspeed_config(s).zero.reduce_bucket_size, numel); }
  bool scatter(Scenario& s) const override { return set(deepspeed_config(s).zero.reduce_scatter, true); }
  bool reduce_to_owners(Scenario& s) const override { return fill_flat_buckets(s) && scatter(s) && set(deepspeed_config(s).zero.use_multi_rank_bucket_allreduce, false); }
  bool pin_host_memory(Scenario& s) const override { return set(deepspeed_config(s).zero.offload_pin_memory, std::optional(true)); }

  bool set_defect(Scenario& s, std::string_view fault, bool present) const override {
    Fp16Config& fp16 = deepspeed_config(s).fp16;
    if (fault == "scale-grows-late") fp16.loss_scale_window += present;
    else if (fault == "scale-not-halved") fp16.hysteresis += present;
    else return set_switch(s, fault, present);
    return true;
  }

 private:
  template <class Field>
  static bool set(Field& field, const Field& value) {
    field = value;
    return true;
  }

  static bool set_switch(Scenario& s, std::string_view fault, bool present) {
    for (const Defect& d : by_switch) {
      if (d.fault != fault) continue;
      s.engine.as_of.switches[std::string(d.name)] = present ? d.wrong : d.right;
      return true;
    }
    return false;
  }
};

}  // namespace

const Tuning& tuning() {
  static const DeepSpeedTuning it;
  return it;
}

}  // namespace gradledger::deepspeed
