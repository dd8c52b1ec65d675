// Random valid scenario values: every field takes part, in canonical form.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include <nlohmann/json.hpp>

#include "sim/base/hash.h"
#include "sim/frameworks/deepspeed/catalogue.h"
#include "sim/frameworks/deepspeed/settings.h"
#include "sim/frameworks/framework.h"
#include "sim/scenario/layout.h"
#include "sim/scenario/scenario.h"
#include "sim/load.h"

namespace gradledger::testing {

class RandomScenario {
 public:
  explicit RandomScenario(std::uint64_t seed) : random_(seed) {}

  Scenario make() {
    out_.name = name();
    if (coin()) out_.note = word();
    for (std::uint32_t i = below(3); i > 0; --i) out_.source.push_back(word());
    if (coin()) out_.covers = {std::string(deepspeed::catalogue()[below(static_cast<std::uint32_t>(deepspeed::catalogue().size()))].id)};
    if (coin()) out_.twin_of = word();
    out_.world_size = 1 + below(5);
    if (below(5) == 0) network();
    else parameters();
    engine();
    if (layout_problem(out_)) out_.engine.expert_parallel_size = 1;  // an expert for some ranks alone
    gradients();
    if (coin()) out_.contract.window = Window::every_step_call;
    out_.contract.average_over = coin() ? "world" : "none";
    if (coin()) out_.contract.divide(1 + below(9));
    out_.contract.reports_surplus = coin();
    if (below(3) == 0) loop();
    out_.contract.zero_grad_discards = coin();
    out_.script = script(2);
    expect();
    return out_;
  }

 private:
  void parameters() {
    for (std::uint32_t i = 0, n = 1 + below(4); i < n; ++i)
      out_.parameters.push_back({.name = "p" + std::to_string(i) + name(),
                                 .numel = below(6) + (i == 0),
                                 .used_by = coin() ? condition() : std::nullopt,
                                 .trainable = i == 0 || coin(),
                                 .hooked_outputs = below(5),
                                 .expert = i > 0 && coin() ? std::optional(below(3)) : std::nullopt});
    if (coin()) out_.parameters.push_back({.name = "tied" + name(), .numel = out_.parameters[0].numel, .tied_to = 0});
    for (std::uint32_t s = 1; out_.world_size % 2 == 0 && s < 2 && coin(); ++s) {
      out_.engine.pipeline_stages = 2;
      out_.parameters.push_back({.name = "later" + name(), .numel = 1 + below(6), .pipeline_stage = 1});
    }
    if (out_.world_size / out_.engine.pipeline_stages % 2 == 0) (coin() ? out_.engine.expert_parallel_size : out_.engine.sequence_parallel_size) = 1 + below(2);
  }

  // Linear layers of small widths, and their parameters.
  void network() {
    Mlp mlp;
    mlp.activation = one_of(std::array{Activation::none, Activation::relu, Activation::gelu});
    for (std::uint32_t i = 0, width = 1 + below(3), n = 1 + below(3); i < n; ++i) {
      LinearLayer layer{static_cast<std::uint32_t>(out_.parameters.size()), {}, width, 1 + below(3)};
      out_.parameters.push_back({.name = std::to_string(i) + name(), .numel = layer.in * layer.out, .used_by = coin() ? condition() : std::nullopt});
      if (coin()) {
        layer.bias = layer.weight + 1;
        out_.parameters.push_back({.name = "b" + std::to_string(i) + name(), .numel = layer.out, .trainable = coin()});
      }
      width = layer.out;
      mlp.layers.push_back(layer);
    }
    out_.gradients.kind = GradientKind::mlp;
    out_.gradients.mlp = mlp;
  }

  std::uint32_t below(std::uint32_t bound) { return random_.below(bound); }
  bool coin() { return below(2) == 0; }
  template <class T, std::size_t N>
  T one_of(const std::array<T, N>& values) {
    return values[below(N)];
  }

  // Any positive double of a wide range of magnitudes.
  double number() { return std::ldexp(static_cast<double>(random_.next() >> 11) + 1, static_cast<int>(below(160)) - 120); }
  double below_one() { return static_cast<double>(random_.next() >> 11) * std::ldexp(1.0, -53); }

  std::string word() {
    constexpr std::array<const char*, 14> letters{"a", "B", "7", "_", "-", " ", "/", "~", "\"", "\\", "\n", "\x01", "\xc3\xa4", "\xf0\x9f\x98\x80"};
    std::string out;
    for (std::uint32_t i = 1 + below(6); i > 0; --i) out += one_of(letters);
    return out;
  }

  std::string name() {
    std::string out = word();
    std::erase_if(out, [](unsigned char c) { return c < 0x20; });
    return out + "!";
  }

  std::optional<Predicate> condition() {
    constexpr std::array<const char*, 6> texts{"micro_batch < 3", "rank == 1 and step > 0", "micro_batch == last", "  step>=1 ", "micro_batch != 4294967295", ""};
    return *Predicate::parse(one_of(texts), "");
  }

  void engine() {
    DeepSpeedConfig& c = deepspeed_config(out_);
    out_.engine.as_of.base = coin() ? "head" : word();
    for (std::uint32_t i = below(3); i > 0; --i) out_.engine.as_of.switches["switch" + word()] = word();
    c.gradient_accumulation_steps = 1 + below(8);
    if (coin()) c.gradient_allreduce_op = AllreduceOp::sum;
    c.prescale_gradients = coin();
    if (coin()) c.gradient_predivide_factor = number();
    constexpr std::array<Dtype, 3> dtypes{Dtype::float32, Dtype::bfloat16, Dtype::float16};
    if (coin()) c.communication_data_type = one_of(dtypes);
    if (coin()) c.seq_parallel_communication_data_type = one_of(dtypes);
    if (coin()) c.autotp_size = 1;
    if (coin()) c.grad_accum_dtype = one_of(dtypes);
    if (coin()) c.gradient_clipping = coin() ? 0 : number();
    out_.model_dtype = one_of(dtypes);
    c.bf16.enabled = out_.model_dtype == Dtype::bfloat16;
    if (coin()) c.bf16.immediate_grad_update = coin();
    if (coin()) c.bf16.check_grad_overflow = coin();
    c.fp16 = {out_.model_dtype == Dtype::float16, coin() ? 0 : number(), below(25), 1 + below(2000), 1 + below(4), coin(), number()};
    c.zero.stage = below(4);
    c.zero.contiguous_gradients = coin();
    c.zero.reduce_scatter = coin();
    c.zero.use_multi_rank_bucket_allreduce = coin();
    if (coin()) c.zero.reduce_bucket_size = 1 + below(1000);
    if (coin()) c.zero.overlap_comm = coin();
    c.zero.round_robin_gradients = coin();
    c.zero.ignore_unused_parameters = coin();
    if (coin()) c.zero.sub_group_size = 1 + below(1000);
    if (coin()) c.zero.offload_optimizer = OffloadDevice::cpu;
    if (coin()) c.zero.offload_pin_memory = coin();
    if (coin()) c.zero.offload_param = OffloadDevice::cpu;
    inert(c);
    OptimizerConfig& o = out_.engine.optimizer;
    o.type = one_of(std::array{OptimizerType::sgd, OptimizerType::adam, OptimizerType::adamw, OptimizerType::muon});
    const bool muon = o.type == OptimizerType::muon;
    o.learning_rate = number();
    if (muon && coin()) o.momentum = below_one();
    if (!muon && coin()) o.beta1 = below_one();
    if (!muon && coin()) o.beta2 = below_one();
    if (!muon && coin()) o.epsilon = number();
    if (coin()) o.weight_decay = number();
    o.torch_adam = o.adam() && coin();
    if (coin()) return;
    std::vector<OptimizerGroup>& groups = out_.engine.param_groups;
    groups.resize(1 + below(2));
    for (std::uint32_t p = 0; p < out_.parameters.size(); ++p)
      if (out_.parameters[p].has_gradient()) groups[p % groups.size()].parameters.push_back(p);
    std::erase_if(groups, [](const OptimizerGroup& group) { return group.parameters.empty(); });
    if (coin()) groups[0].learning_rate = number();
    if (coin()) groups.back().weight_decay = number();
  }

  void inert(DeepSpeedConfig& c) {
    nlohmann::json keys = nlohmann::json::object();
    if (coin()) keys["steps_per_print"] = number();
    if (coin()) keys["train_batch_size"] = 3 * c.gradient_accumulation_steps * (out_.world_size / (out_.engine.pipeline_stages * out_.engine.sequence_parallel_size));
    if (coin()) keys["train_micro_batch_size_per_gpu"] = 3;
    if (coin()) keys["zero_optimization"]["elastic_checkpoint"] = coin();
    if (coin()) keys["zero_optimization"]["offload_optimizer"]["fast_init"] = coin();
    c.inert = keys.dump();
  }

  double element() {
    switch (below(6)) {
      case 0: return std::numeric_limits<double>::infinity() * (coin() ? 1 : -1);
      case 1: return std::numeric_limits<double>::quiet_NaN();
      case 2: return coin() ? 0.0 : -0.0;
      default: return static_cast<double>(static_cast<float>(number() * (coin() ? 1 : -1)));
    }
  }

  void gradients() {
    Gradients& g = out_.gradients;
    if (!g.mlp) g.kind = one_of(std::array{GradientKind::probe, GradientKind::normal, GradientKind::adversarial, GradientKind::values});
    if (coin()) g.seed = random_.next() >> 11;
    if (g.kind != GradientKind::values) {
      if (coin()) g.samples_per_micro_batch = 1 + below(65536);
      return;
    }
    given_ = 1 + below(3);
    auto values = std::make_shared<GivenValues>();
    for (std::uint32_t m = 0; m < given_; ++m) {
      values->emplace_back();
      for (std::uint32_t r = 0; r < out_.world_size; ++r) {
        values->back().emplace_back();
        for (std::uint64_t i = out_.numel(); i > 0; --i) values->back().back().push_back(element());
      }
    }
    g.values = values;
  }

  // What a loop states of itself: everything is weighed by tokens or by numbers.
  void loop() {
    out_.tokens.constant = 1 + below(9);
    std::vector<std::vector<std::uint32_t>> each(out_.world_size);
    for (std::uint32_t r = 0; r < out_.world_size; ++r) each[r] = {r};
    out_.groups["each"] = each;
    out_.contract.average_over = one_of(std::array{"world", "rank", "each"});
    out_.contract.divide_by = 1;
    out_.contract.normaliser = one_of(std::array{Normaliser::window, Normaliser::tokens, Normaliser::tokens_of_rank});
    if (coin()) out_.contract.clip = StatedClip{"each"};
    weighs_ = true;
  }

  Formula formula() { return *Formula::parse(one_of(std::array{"1/3", "7*world", "tokens/tokens_of_window", "1/size_of(each)/3*2", "micro_batches_of_rank"}), ""); }

  std::vector<ScriptItem> loop_events() {
    std::vector<ScriptItem> out;
    for (const ScriptKind kind : {ScriptKind::scale_gradients, ScriptKind::clip, ScriptKind::all_reduce, ScriptKind::finalize}) {
      if (coin()) continue;
      ScriptItem item;
      item.kind = kind;
      item.ranks = ranks();
      if (kind == ScriptKind::scale_gradients) item.by = *Formula::parse("5/world", "");
      if (kind == ScriptKind::clip) item.max_norm = number();
      if (kind == ScriptKind::clip || kind == ScriptKind::all_reduce) item.over = one_of(std::array{"world", "rank", "each"});
      if (kind == ScriptKind::all_reduce) item.reduced = one_of(std::array{Reduced::gradients, Reduced::scalar});
      if (kind == ScriptKind::all_reduce) item.mean = coin();
      out.push_back(std::move(item));
    }
    return out;
  }

  std::vector<std::uint32_t> ranks() {
    std::vector<std::uint32_t> out;
    for (std::uint32_t r = 0; r < out_.world_size; ++r)
      if (coin()) out.push_back(r);
    if (out.size() == out_.world_size) out.clear();
    return out;
  }

  std::vector<ScriptItem> script(std::uint32_t depth) {
    std::vector<ScriptItem> items;
    for (std::uint32_t i = 1 + below(4); i > 0; --i) {
      ScriptItem item;
      item.kind = static_cast<ScriptKind>(below(depth > 0 ? 10 : 7));
      if (item.kind == ScriptKind::no_sync || item.kind == ScriptKind::coalesce) {
        item.items = script(depth - 1);
      } else if (item.kind == ScriptKind::repeat) {
        item.times = 1 + below(3);
        item.items = script(depth - 1);
      } else {
        item.ranks = ranks();
      }
      if (item.kind == ScriptKind::set_boundary) item.boundary = coin();
      if (item.kind == ScriptKind::raise) item.caught = coin();
      if (item.kind == ScriptKind::forward) {
        ScriptItem backward = item;
        backward.kind = ScriptKind::backward;
        backward.of = 0;
        items.push_back(item);
        item = backward;
      }
      if (item.kind == ScriptKind::backward) {
        if (!item.of) item.micro_batches = 1 + below(3);
        item.scale_wrt_gas = coin();
        item.direct = coin();
        item.phases = 1 + below(3);
        if (weighs_ && coin()) item.weight = {{formula()}};
        else if (weighs_) item.weight.assign(out_.world_size, std::vector<Formula>(item.micro_batches, formula()));
        if (given_ > 0 || coin()) item.micro_batch = below(std::max(given_, 1u));
        for (const Parameter& p : out_.parameters) {
          if (p.has_gradient() && coin()) item.uses.push_back(p.name);
          if (coin()) item.order[below(out_.world_size)].push_back(p.name);
        }
      }
      if (depth == 2 && item.kind == ScriptKind::backward && !item.of) overflow(item, items);
      items.push_back(std::move(item));
      if (depth == 2 && coin()) set_gradient(items);
      if (weighs_)
        for (ScriptItem& event : loop_events()) items.push_back(std::move(event));
      if (weighs_ && depth == 2 && coin())
        for (const ScriptKind kind : {ScriptKind::save, ScriptKind::restore}) items.emplace_back().kind = kind;
    }
    return items;
  }

  // A script that begins with a backward may begin with its overflow.
  void overflow(const ScriptItem& backward, std::vector<ScriptItem>& items) {
    if (items.empty() && coin() && backward.uses.empty() && !out_.parameters[0].used_by) {
      ScriptItem item;
      item.kind = ScriptKind::overflow;
      item.ranks = backward.ranks;
      item.micro_batch = 0;
      if (coin()) item.uses = {out_.parameters[0].name};
      item.planted = one_of(std::array{PlantedValue::infinity, PlantedValue::minus_infinity, PlantedValue::not_a_number});
      items.push_back(std::move(item));
    }
  }

  // Few and small enough that no window multiplies by more than it may.
  void set_gradient(std::vector<ScriptItem>& items) {
    const Parameter& p = out_.parameters[below(static_cast<std::uint32_t>(out_.parameters.size()))];
    if (!p.has_gradient()) return;
    ScriptItem item;
    item.kind = ScriptKind::set_gradient;
    item.uses = {p.name};
    item.factor = one_of(std::array{0.5, 1.0, 2.0});
    item.local = coin();
    items.push_back(std::move(item));
  }

  void expect() {
    Expect& e = out_.expect;
    constexpr std::array<const char*, 4> classes{"offload-loss", "engine-error", "rank-divergence", "discarded-gradient"};
    for (std::uint32_t i = below(3); i > 0; --i) {
      ExpectedFinding finding{one_of(classes), coin() ? condition() : std::nullopt, {}, {}, {}};
      if (coin()) finding.own = number();
      if (coin()) finding.peer = -number();
      if (coin()) finding.lost_weight = number();
      e.findings.push_back(finding);
    }
    for (const char* purpose : {"gradient", "norm", "overflow", "parameter", "user", "control"}) {
      if (coin()) continue;
      if (coin()) e.collectives[purpose].per_step = below(100);
      else e.collectives[purpose].at_most_per_step = below(100);
      if (coin()) e.collectives[purpose].bytes_per_step = random_.next() >> 11;
      else if (coin()) e.collectives[purpose].at_most_bytes_per_step = below(100);
    }
    constexpr std::array<const char*, 3> kinds{"all", "gradient memory", "master weights"}, phases{"accumulate", "boundary", "step"};
    for (std::uint32_t i = below(3); i > 0; --i) {
      ExpectedMemory memory{one_of(kinds), coin() ? "device" : "host", one_of(phases)};
      if (coin()) memory.rank = below(out_.world_size);
      if (coin()) memory.resident = random_.next() >> 11;
      if (coin()) memory.at_most_resident = below(100);
      if (coin()) memory.peak = below(100);
      else memory.at_most_peak = below(100);
      e.memory.push_back(memory);
    }
    for (std::uint32_t i = below(3); i > 0; --i) e.not_allocated.push_back(word());
    Contract contract;
    contract.stated = out_.contract;
    contract.groups = named_groups(out_);
    const auto unrolled = unroll(out_, out_.script, contract);
    expects(unrolled.ok(), unrolled.ok() ? "" : unrolled.error().text().c_str());
    const auto events = static_cast<std::uint32_t>(unrolled->events.size());
    for (std::uint32_t i = below(3); i > 0; --i) e.values.push_back({below(events), below(out_.world_size), word(), {number(), -number(), 0}});
    if (coin()) e.comparison = ExpectedComparison{word(), coin()};
  }

  SplitMix64 random_;
  Scenario out_;
  std::uint32_t given_ = 0;
  bool weighs_ = false;  // the loop multiplies losses and gradients
};

}  // namespace gradledger::testing
