#include "search/draw/variants.h"

#include <array>
#include <string>
#include <vector>

#include "sim/frameworks/deepspeed/settings.h"
#include "sim/scenario/spelling.h"

namespace gradledger::search {
namespace {

void at_stage(Scenario& s, std::uint32_t stage, bool offload) {
  deepspeed_config(s).zero.stage = stage;
  deepspeed_config(s).zero.offload_optimizer = offload ? OffloadDevice::cpu : OffloadDevice::none;
}

constexpr std::array<Variant, 8> all{{
    {"zero0", "stage 0: gradients stay in param.grad", [](Scenario& s) { at_stage(s, 0, false); }},
    {"zero1", "stage 1", [](Scenario& s) { at_stage(s, 1, false); }},
    {"zero1-offload", "stage 1, optimizer on the CPU", [](Scenario& s) { at_stage(s, 1, true); }},
    {"bf16-optimizer", "stage 1, bf16, accumulation in fp32",
     [](Scenario& s) {
       at_stage(s, 1, false);
       set_model_dtype(s, Dtype::bfloat16);
       deepspeed_config(s).grad_accum_dtype = Dtype::float32;
     }},
    {"zero2", "stage 2", [](Scenario& s) { at_stage(s, 2, false); }},
    {"zero2-offload", "stage 2, optimizer on the CPU", [](Scenario& s) { at_stage(s, 2, true); }},
    {"zero3", "stage 3", [](Scenario& s) { at_stage(s, 3, false); }},
    {"zero3-offload", "stage 3, optimizer on the CPU", [](Scenario& s) { at_stage(s, 3, true); }},
}};

}  // namespace

std::span<const Variant> variants() { return all; }

Result<const Variant*> variant_named(std::string_view name, std::string_view where) {
  std::vector<std::string> names;
  for (const Variant& variant : all) {
    if (variant.name == name) return &variant;
    names.emplace_back(variant.name);
  }
  std::string known;
  for (const std::string& n : names) known += (known.empty() ? "" : ", ") + n;
  return InputError{std::string(where), "\"" + std::string(name) + "\" is no engine; expected one of " + known + suggestion(name, names)};
}

void set_model_dtype(Scenario& s, Dtype dtype) {
  s.model_dtype = dtype;
  deepspeed_config(s).bf16.enabled = dtype == Dtype::bfloat16;
  deepspeed_config(s).fp16.enabled = dtype == Dtype::float16;
}

}  // namespace gradledger::search
