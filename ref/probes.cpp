#include "ref/probes.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "ref/dtype_facts.h"
#include "ref/mlp_source.h"
#include "ref/normal_values.h"
#include "sim/base/hash.h"
#include "sim/scenario/factor.h"

namespace gradledger::ref {
namespace {

bool power_of_two(double x) {
  int exponent;
  return std::isfinite(x) && x > 0 && std::frexp(x, &exponent) == 0.5;
}

}  // namespace

std::uint32_t contributions_max(const Timeline& timeline) {
  std::uint32_t most = 1;
  for (const auto& ranks : timeline.micro_batches) {
    std::uint32_t sum = 0;
    for (std::uint32_t m : ranks) sum += m;
    most = std::max(most, sum);
  }
  return most;
}

// A contribution takes part in every later change of its parameter's gradient in the window.
std::vector<double> user_factors(const Timeline& timeline) {
  std::vector<double> out{1.0};
  const std::vector<std::uint32_t>& set = timeline.gradients_set;
  for (std::size_t first = 0; first < set.size(); ++first) {
    const auto body = [&](std::size_t i) -> const events::SetGradient& { return *timeline.events[set[i]].as<events::SetGradient>(); };
    double product = 1;
    for (std::size_t i = first; i < set.size() && timeline.events[set[i]].step == timeline.events[set[first]].step; ++i) {
      if (body(i).parameter != body(first).parameter) continue;
      product *= body(i).factor;
      if (std::find(out.begin(), out.end(), product) == out.end()) out.push_back(product);
    }
  }
  return out;
}

namespace {

// Where ranks hold all of a gradient, each further reduction of a window sums over the ranks what is an average already: W times the sum,
// with the fraction that the division by W has left.
bool reduces_averages_again(const Timeline& timeline) {
  if (!timeline.contract.replicates_reduced) return false;
  std::uint32_t step = never;
  for (const std::uint32_t event : timeline.reductions) {
    if (timeline.events[event].documented == step) return true;
    step = timeline.events[event].documented;
  }
  return false;
}

}  // namespace

ProbeRange probe_range(const Workload& workload, const Timeline& timeline) {
  ProbeRange range;
  const Contract& contract = timeline.contract;
  const double scale = contract.loss_scale.initial;
  range.dyadic = !timeline.two_layers && !contract.token_division && power_of_two(value_of(contract.divisor)) && power_of_two(value_of(contract.average_divisor)) &&
                 power_of_two(contract.steps_scalar) && power_of_two(workload.world_size) && power_of_two(contract.predivide_scalar) && power_of_two(scale);
  const Dtype computed = contract.computed.value_or(workload.model_dtype);
  range.precision =
      std::min({facts_of(computed).precision, facts_of(workload.model_dtype).precision, facts_of(contract.accumulation).precision, facts_of(contract.wire).precision});
  range.unit = std::bit_ceil(contract.steps_scalar) / std::exp2(std::ceil(std::log2(scale)));
  // Sums stay below 2^(precision - 1): one bit to spare, so that a wrong sum cannot be rounded into the right one.
  // What users multiply by takes up the bits of its odd part.
  double odd = 1;
  for (const double factor : user_factors(timeline)) odd = std::max(odd, odd_part(factor));
  const std::uint32_t again = reduces_averages_again(timeline) ? std::bit_ceil(workload.world_size) : 1;
  const std::uint32_t sum_max = std::max(1u, (1u << (range.precision - 1)) / std::bit_ceil(static_cast<std::uint32_t>(odd)) / again);
  constexpr std::uint32_t least_value_max = 8;
  const std::uint32_t all = contributions_max(timeline);
  range.lit_max = std::clamp(sum_max / least_value_max, 1u, all);
  range.value_max = std::max(1u, std::min(sum_max / range.lit_max, 1u << 20));
  return range;
}

ProbeRange wide_range(const Timeline& timeline) {
  ProbeRange range;
  range.wide = true;
  range.precision = facts_of(Dtype::float64).precision;
  range.lit_max = contributions_max(timeline);
  range.value_max = 1u << 20;
  return range;
}

// ---- fingerprints -----------------------------------------------------------------------------------------------------------------

FingerprintSource::FingerprintSource(const Timeline& timeline, const ProbeRange& range, std::uint64_t seed, std::uint32_t window_period)
    : timeline_(timeline), range_(range), seed_(seed), window_period_(window_period) {
  const std::uint32_t all = contributions_max(timeline);
  classes_ = (all + range.lit_max - 1) / range.lit_max;
}

void FingerprintSource::set_pass(std::uint32_t pass) {
  round_ = pass / classes_;
  turn_ = pass % classes_;
}

void FingerprintSource::gradient(std::uint32_t backward, std::uint32_t rank, std::uint32_t parameter, std::uint64_t offset, std::span<double> out) const {
  // Contributions of a window are numbered rank by rank; neighbours lie in different classes, and elements turn the wheel.
  const Backward& b = timeline_.backwards[backward];
  if (round_ >= rounds && b.step % 2 == round_ % 2) return std::fill(out.begin(), out.end(), 0.0);
  const std::uint64_t which = window_period_ == 0 ? backward : hash_keys({b.step % window_period_, b.micro_batch[rank]});
  const std::uint64_t stream = hash_keys({seed_, round_, which, rank, parameter});
  if (classes_ == 1) return draw_whole_numbers(stream, offset, 1, range_.value_max, range_.unit, out);
  std::uint32_t number = b.micro_batch[rank];
  for (std::uint32_t r = 0; r < rank; ++r) number += timeline_.micro_batches[b.step][r];
  std::fill(out.begin(), out.end(), 0.0);
  const std::uint64_t unlit = (number + offset + turn_) % classes_, lit = unlit == 0 ? 0 : classes_ - unlit;
  if (lit < out.size()) draw_whole_numbers(stream, offset + lit, classes_, range_.value_max, range_.unit, out.subspan(lit));
}

// ---- one contribution ---------------------------------------------------------------------------------------------------------------

bool ratio_of_probes(double ratio, double rounding) {
  for (int a = SingleSource::probe_min; a <= SingleSource::probe_max; a += 2)
    for (int b = SingleSource::probe_min; b <= SingleSource::probe_max; b += 2)
      if (a != b && std::abs(ratio * b - a) <= rounding * a) return true;
  return false;
}

double SingleSource::probe(std::uint32_t parameter, std::uint64_t element) const {
  // Odd, five bits: three more than bf16 has are left for what coefficients add.
  const std::uint64_t word = hash_keys({parameter, element});
  if (range_.wide) return static_cast<double>((std::uint64_t{1} << (wide_bits - 1)) | (word >> (65 - wide_bits)) | 1);
  return range_.unit * static_cast<double>(probe_min + 2 * static_cast<int>(word % ((probe_max - probe_min) / 2 + 1)));
}

void SingleSource::gradient(std::uint32_t backward, std::uint32_t rank, std::uint32_t parameter, std::uint64_t offset, std::span<double> out) const {
  const bool lit = backward == backward_ && rank == rank_;
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = lit || is_shared(parameter, offset + i) ? probe(parameter, offset + i) : 0.0;
}

void PlantedSource::gradient(std::uint32_t backward, std::uint32_t rank, std::uint32_t parameter, std::uint64_t offset, std::span<double> out) const {
  inner_.gradient(backward, timeline_.contract.contributor(rank, parameter), parameter, offset, out);
  plant(backward, rank, parameter, offset, out);
}

void PlantedSource::plant(std::uint32_t backward, std::uint32_t rank, std::uint32_t parameter, std::uint64_t offset, std::span<double> out) const {
  if (offset > 0 || out.empty()) return;
  const std::uint32_t of = timeline_.contract.contributor(rank, parameter);
  const auto before = [&](const Plant& p) { return p.backward < backward; };
  for (auto p = std::partition_point(timeline_.planted.begin(), timeline_.planted.end(), before); p != timeline_.planted.end() && p->backward == backward; ++p)
    if (p->parameter == parameter && timeline_.contract.contributor(p->rank, parameter) == of) out[0] = p->value;
}

// ---- values -------------------------------------------------------------------------------------------------------------------------

namespace {

class RandomSource : public GradientSource {
 public:
  RandomSource(const Workload& workload, const Timeline& timeline, std::uint64_t seed)
      : workload_(workload), timeline_(timeline), seed_(seed), bits_(facts_of(workload.model_dtype).precision) {
    // What is deposited is scale x gradient / ga: keep it and its sums well inside fp16.
    const double scale = timeline.contract.loss_scale.initial;
    const double room = workload.model_dtype == Dtype::float16 ? facts_of(Dtype::float16).largest() / 64 : 4096.0;
    const double terms = std::bit_ceil(contributions_max(timeline) * workload.gradients.samples_per_micro_batch);
    const double largest = scale * 4 * terms;
    magnitude_ = std::min(1.0, std::exp2(std::floor(std::log2(room / largest))));
  }

  void gradient(std::uint32_t backward, std::uint32_t rank, std::uint32_t parameter, std::uint64_t offset, std::span<double> out) const override {
    const std::uint32_t count = workload_.gradients.samples_per_micro_batch;
    const Backward& b = timeline_.backwards[backward];
    std::array<double, 512> drawn;
    for (std::size_t at = 0; at < out.size(); at += drawn.size()) {
      const std::span<double> sums = out.subspan(at, std::min(drawn.size(), out.size() - at));
      for (std::uint32_t s = 0; s < count; ++s) {
        const std::uint64_t number = std::uint64_t{b.micro_batch[rank]} * count + s;
        const Sample sample{hash_keys({seed_, b.step, number, rank, parameter}), number, rank};
        if (s == 0) draw(sample, offset + at, sums);
        else add(sample, offset + at, std::span(drawn).first(sums.size()), sums);
      }
      divide_and_round(count, bits_, sums);
    }
  }

  void initial_parameter(std::uint32_t parameter, std::uint64_t offset, std::span<double> out) const override {
    draw_normal(hash_keys({seed_, 0x7061u, parameter}), offset, bits_, 1.0, out);
  }

 protected:
  // One sample's gradient of a parameter.
  struct Sample {
    std::uint64_t keys = 0;  // the word for all keys but the element
    std::uint64_t number = 0;
    std::uint32_t rank = 0;
  };

  virtual void draw(const Sample& sample, std::uint64_t first, std::span<double> out) const { draw_normal(sample.keys, first, bits_, magnitude_, out); }

  const Workload& workload_;
  const Timeline& timeline_;
  std::uint64_t seed_;
  int bits_;
  double magnitude_ = 1.0;

 private:
  void add(const Sample& sample, std::uint64_t first, std::span<double> drawn, std::span<double> sums) const {
    draw(sample, first, drawn);
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += drawn[i];
  }
};

// Cancellation, swamping and subnormals, each on every third element.
class AdversarialSource : public RandomSource {
 public:
  // share: what its large elements are of those that stand by themselves.
  AdversarialSource(const Workload& workload, const Timeline& timeline, std::uint64_t seed, double share = 1)
      : RandomSource(workload, timeline, seed),
        size_(magnitude_ * share),
        rest_(share * 0x1p-6),
        small_(std::ldexp(size_, -bits_ + 2)),
        tiny_(facts_of(workload.model_dtype).tiny()) {}

 protected:
  void draw(const Sample& sample, std::uint64_t first, std::span<double> out) const override {
    RandomSource::draw(sample, first, out);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = adverse(sample, first + i, out[i]);
  }

  double adverse(const Sample& sample, std::uint64_t element, double x) const {
    switch (element % 3) {
      case 0: {  // large terms of opposite sign on alternating samples, a small rest
        const double large = size_ * (2.0 + static_cast<double>(element % 7) / 8);
        return (sample.number % 2 == 0 ? large : -large) + x * rest_;
      }
      case 1:  // the first sample swamps those that follow
        return sample.number == 0 ? size_ * 4.0 : small_ * (1.0 + static_cast<double>(element % 5));
      default:  // near the smallest values of the model dtype, so that sums are subnormal
        return tiny_ * static_cast<double>(1 + (hash_keys({element, sample.number, sample.rank}) % 64));
    }
  }

 private:
  const double size_, rest_, small_, tiny_;
};

class MixedSource final : public AdversarialSource {
 public:
  // As large as the others, or the rounding of these few would hide what is wrong with a norm of all.
  MixedSource(const Workload& workload, const Timeline& timeline, std::uint64_t seed) : AdversarialSource(workload, timeline, seed, 0x1p-2) {}

 protected:
  void draw(const Sample& sample, std::uint64_t first, std::span<double> out) const override {
    RandomSource::draw(sample, first, out);
    for (std::size_t i = 0; i < out.size(); ++i)
      if ((first + i) / 3 % 3 == 1) out[i] = adverse(sample, first + i, out[i]);
  }
};

class GivenSource final : public GradientSource {
 public:
  GivenSource(const Workload& workload, const Timeline& timeline) : values_(*workload.gradients.values), timeline_(timeline) {
    std::uint64_t at = 0;
    for (const Parameter& p : workload.parameters) {
      offset_.push_back(at);
      at += p.numel;
    }
  }

  void gradient(std::uint32_t backward, std::uint32_t rank, std::uint32_t parameter, std::uint64_t offset, std::span<double> out) const override {
    const std::vector<double>& flat = values_[timeline_.backwards[backward].data[rank]][rank];
    std::copy_n(flat.begin() + offset_[parameter] + offset, out.size(), out.begin());
  }

 private:
  const GivenValues& values_;
  const Timeline& timeline_;
  std::vector<std::uint64_t> offset_;
};

}  // namespace

std::unique_ptr<GradientSource> value_source(const Workload& workload, const Timeline& timeline, GradientKind kind, std::uint64_t seed) {
  switch (kind) {
    case GradientKind::values: return std::make_unique<GivenSource>(workload, timeline);
    case GradientKind::mlp: return std::make_unique<MlpSource>(workload, timeline, seed);
    case GradientKind::adversarial: return std::make_unique<AdversarialSource>(workload, timeline, seed);
    case GradientKind::probe:
    case GradientKind::normal: return std::make_unique<RandomSource>(workload, timeline, seed);
  }
  return nullptr;
}

std::unique_ptr<GradientSource> mixed_source(const Workload& workload, const Timeline& timeline, std::uint64_t seed) {
  return std::make_unique<MixedSource>(workload, timeline, seed);
}

}  // namespace gradledger::ref
