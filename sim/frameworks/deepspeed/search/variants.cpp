#include <array>

#include "sim/frameworks/deepspeed/search/parts.h"
#include "sim/frameworks/deepspeed/settings.h"

namespace gradledger::deepspeed {
namespace {

void at_stage(Scenario& s, std::uint32_t stage, bool offload) {
  deepspeed_config(s).zero.stage = stage;
  deepspeed_config(s).zero.offload_optimizer = offload ? OffloadDevice::cpu : OffloadDevice::none;
}

constexpr std::array<Variant, 8> all_variants{{
    {"zero0", "stage 0: gradients stay in param.grad", {}, [](Scenario& s) { at_stage(s, 0, false); }},
    {"zero1", "stage 1", {.reduces_to_owners = true, .gathers_weights = true}, [](Scenario& s) { at_stage(s, 1, false); }},
    {"zero1-offload", "stage 1, optimizer on the CPU", {.reduces_to_owners = true, .gathers_weights = true, .offloads = true}, [](Scenario& s) { at_stage(s, 1, true); }},
    {"bf16-optimizer",
     "stage 1, bf16, accumulation in fp32",
     {.accumulates_itself = true, .gathers_weights = true},
     [](Scenario& s) {
       at_stage(s, 1, false);
       set_model_dtype(s, Dtype::bfloat16);
       deepspeed_config(s).grad_accum_dtype = Dtype::float32;
     }},
    {"zero2",
     "stage 2",
     {.reduces_to_owners = true, .reduces_every_backward = true, .accumulates_itself = true, .gathers_weights = true},
     [](Scenario& s) { at_stage(s, 2, false); }},
    {"zero2-offload",
     "stage 2, optimizer on the CPU",
     {.reduces_to_owners = true, .reduces_every_backward = true, .accumulates_itself = true, .gathers_weights = true, .offloads = true},
     [](Scenario& s) { at_stage(s, 2, true); }},
    {"zero3", "stage 3", {.reduces_to_owners = true, .reduces_every_backward = true, .accumulates_itself = true}, [](Scenario& s) { at_stage(s, 3, false); }},
    {"zero3-offload",
     "stage 3, optimizer on the CPU",
     {.reduces_to_owners = true, .reduces_every_backward = true, .accumulates_itself = true, .offloads = true},
     [](Scenario& s) { at_stage(s, 3, true); }},
}};

void with_muon(Scenario& s, std::uint32_t stage) {
  at_stage(s, stage, false);
  s.engine.optimizer.type = OptimizerType::muon;
  s.engine.optimizer.learning_rate = 0.02;
  deepspeed_config(s).zero.reduce_scatter = false;  // Muon asks for whole gradients
}

constexpr std::array<Variant, 3> muon_variants{{
    {"zero1-muon", "stage 1 with Muon", {.reduces_to_owners = true, .gathers_weights = true}, [](Scenario& s) { with_muon(s, 1); }},
    {"zero2-muon",
     "stage 2 with Muon",
     {.reduces_to_owners = true, .reduces_every_backward = true, .accumulates_itself = true, .gathers_weights = true},
     [](Scenario& s) { with_muon(s, 2); }},
    {"zero3-muon", "stage 3 with Muon", {.reduces_to_owners = true, .reduces_every_backward = true, .accumulates_itself = true}, [](Scenario& s) { with_muon(s, 3); }},
}};

}  // namespace

std::span<const Variant> variants() { return all_variants; }
std::span<const Variant> further_variants() { return muon_variants; }

void set_model_dtype(Scenario& s, Dtype dtype) {
  s.model_dtype = dtype;
  deepspeed_config(s).bf16.enabled = dtype == Dtype::bfloat16;
  deepspeed_config(s).fp16.enabled = dtype == Dtype::float16;
}

}  // namespace gradledger::deepspeed
