#include "sim/frameworks/megatron_fsdp/v2/search/search_space.h"

#include <array>

#include "sim/base/hash.h"
#include "sim/frameworks/loop_drawing.h"
#include "sim/frameworks/megatron_fsdp/v2/search/parts.h"

namespace gradledger::megatron_fsdp::v2 {
namespace {

void apply(Scenario& s) {
  s.engine.framework = "megatron-fsdp-v2";
  v2_config(s) = {};
}

constexpr std::array<Variant, 1> all_variants{{{"megatron-fsdp-v2",
                                                "the second version of Megatron-FSDP, everything sharded",
                                                {.reduces_to_owners = true, .reduces_every_backward = true, .accumulates_itself = true, .averages_by_operator = true},
                                                apply}}};

class V2Tuning final : public Tuning {
 public:
  bool set_model_dtype(Scenario& s, Dtype dtype) const override { return dtype != Dtype::float16 && set_loop_dtype(s, dtype); }
  bool set_accumulation_dtype(Scenario& s, std::optional<Dtype> dtype) const override {
    v2_config(s).mixed_precision.main_grads_dtype = dtype;
    return true;
  }
};

class Space final : public SearchSpace {
 public:
  std::span<const Variant> variants() const override { return all_variants; }
  std::string variant_of(const Scenario&) const override { return "megatron-fsdp-v2"; }

  std::span<const FeatureInfo> features() const override { return v2::features(); }
  void draw_engine(std::span<const Variant* const> among, Draws& draws, const Swarm& swarm, Scenario& out) const override { v2::draw_engine(among, draws, swarm, out); }
  void draw_options(Draws& draws, const Swarm& swarm, Scenario& out) const override { v2::draw_options(draws, swarm, out); }
  // A module that lacks a gradient waits, model.zero_grad() misses what such a one has, and gradients are reduced in the model's dtype.
  void leave_out_open_defects(Scenario& s) const override {
    for (const char* repair : {"reduces_unfinished", "module_zero_grad_of_shards", "reads_grad_comm_dtype"}) s.engine.as_of.switches[repair] = "yes";
  }
  std::unique_ptr<Calls> calls(const Scenario&) const override { return std::make_unique<LoopCalls>(false); }
  bool draw_window(const WindowSlot& slot, Draws& draws, const Swarm& swarm, Scenario& out) const override {
    v2::draw_window(slot, draws, swarm, out);
    return true;
  }
  // With a mesh all but the last backward are said to be none.
  void write_loop(const PlainLoop& loop, Scenario& out) const override {
    PlainLoop written = loop;
    written.defers = loop.micro_batches > 1 && v2_config(out).mesh.has_value();
    write_plain_loop(written, {}, {}, out);
  }

  std::vector<std::string> alphabet(const Scenario&) const override { return {"backward", "step", "optimizer.zero_grad", "engine.zero_grad"}; }
  std::vector<Simplification> simplifications() const override {
    std::vector<Simplification> out;
    add_loop_simplifications(out);
    const auto defaults = [&](auto option) { out.push_back(option_default(option)); };
    defaults(&V2Config::mixed_precision);
    defaults(&V2Config::units);
    defaults(&V2Config::wrap);
    defaults(&V2Config::calls_unused_units);
    out.push_back([](Scenario& s) {
      const bool was = v2_config(s).mesh.has_value();
      v2_config(s).mesh.reset();
      if (was) s.groups.clear();
      return was;
    });
    return out;
  }

  std::uint64_t alike(const Scenario& s) const override { return hash_keys({v2_config(s).mesh.has_value(), v2_config(s).mixed_precision == MixedPrecision{}}); }

  const Tuning& tuning() const override {
    static const V2Tuning it;
    return it;
  }
};

}  // namespace

const SearchSpace& search_space() {
  static const Space it;
  return it;
}

}  // namespace gradledger::megatron_fsdp::v2
