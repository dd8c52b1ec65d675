// The data that the oracle feeds to a producer: integer probes whose sums are exact in every format on the way, single contributions for
// decoding, random and adversarial gradients, and the user's own values.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sim/scenario/workload.h"
#include "sim/scenario/timeline.h"
#include "sim/trace/producer.h"

namespace gradledger::ref {

// The most contributions that one window takes in, those of all ranks together. At least 1.
std::uint32_t contributions_max(const Timeline& timeline);

// All that users multiply a contribution by, and 1.
std::vector<double> user_factors(const Timeline& timeline);

// What the scenario's formats and divisors allow.
struct ProbeRange {
  bool wide = false;            // runs are in fp64: probes are long, and weights are told apart to fp64's rounding
  bool dyadic = false;          // every divisor and scale on the way is a power of two: probes can be held to equality
  int precision = 8;            // bits of the narrowest format
  double unit = 1.0;            // a probe of n is a gradient of n x unit, chosen so that what is deposited is about n
  std::uint32_t lit_max = 1;    // contributions of one window that may be lit on one element at a time
  std::uint32_t value_max = 1;  // probes are integers from 1 to this; lit_max x value_max has a bit to spare in the precision
};

ProbeRange probe_range(const Workload& workload, const Timeline& timeline);
// Of runs in fp64, for whatever weights.
ProbeRange wide_range(const Timeline& timeline);

// Every element of every contribution holds its own random integer, or is dark in this pass. Over `passes()` passes each contribution is
// lit on each element at least once for every round.
class FingerprintSource final : public GradientSource {
 public:
  // window_period: probes repeat after so many windows; 0: never.
  FingerprintSource(const Timeline& timeline, const ProbeRange& range, std::uint64_t seed, std::uint32_t window_period = 0);

  static constexpr std::uint32_t rounds = 2;
  // windows_apart: with a round more in which even windows are dark, and one in which odd ones are.
  std::uint32_t passes(bool windows_apart = false) const { return classes_ * (rounds + (windows_apart ? 2 : 0)); }
  void set_pass(std::uint32_t pass);

  void gradient(std::uint32_t backward, std::uint32_t rank, std::uint32_t parameter, std::uint64_t offset, std::span<double> out) const override;

 private:
  const Timeline& timeline_;
  ProbeRange range_;
  std::uint64_t seed_;
  std::uint32_t window_period_;
  std::uint32_t classes_ = 1;           // contributions of a window are divided into this many classes, one lit at a time
  std::uint32_t round_ = 0, turn_ = 0;  // of the pass: which class is lit
};

// One contribution alone: an odd integer that differs between elements, so that coefficients are read by division and an element out of
// place gives a ratio that no coefficient has.
class SingleSource final : public GradientSource {
 public:
  explicit SingleSource(const ProbeRange& range) : range_(range) {}

  void light(std::uint32_t backward, std::uint32_t rank) {
    backward_ = backward;
    rank_ = rank;
  }
  // All contributions have this element, so that no norm is zero.
  struct Element {
    std::uint32_t parameter = 0;
    std::uint64_t element = 0;

    bool operator==(const Element&) const = default;
  };
  void keep_alive(const std::optional<Element>& shared) { shared_ = shared; }
  bool is_shared(std::uint32_t parameter, std::uint64_t element) const { return shared_ == Element{parameter, element}; }
  static constexpr int probe_min = 17, probe_max = 31;  // odd, in units
  static constexpr int wide_bits = 30;                  // of a probe in fp64: the quotient of two is no quotient of small numbers
  double probe(std::uint32_t parameter, std::uint64_t element) const;

  void gradient(std::uint32_t backward, std::uint32_t rank, std::uint32_t parameter, std::uint64_t offset, std::span<double> out) const override;

 private:
  ProbeRange range_;
  std::uint32_t backward_ = never;
  std::uint32_t rank_ = 0;
  std::optional<Element> shared_;
};

// Whether a ratio is that of the numbers of two elements in such a run, within a relative rounding.
bool ratio_of_probes(double ratio, double rounding);

// Another source, with what the script plants in it.
class PlantedSource final : public GradientSource {
 public:
  PlantedSource(const GradientSource& inner, const Timeline& timeline) : inner_(inner), timeline_(timeline) {}

  void gradient(std::uint32_t backward, std::uint32_t rank, std::uint32_t parameter, std::uint64_t offset, std::span<double> out) const override;
  void initial_parameter(std::uint32_t parameter, std::uint64_t offset, std::span<double> out) const override { inner_.initial_parameter(parameter, offset, out); }
  const NetworkData* network_data() const override { return inner_.network_data(); }
  void gradient_error(std::uint32_t backward, std::uint32_t rank, std::uint32_t parameter, std::uint64_t offset, std::span<double> out) const override {
    inner_.gradient_error(backward, rank, parameter, offset, out);
  }
  void plant(std::uint32_t backward, std::uint32_t rank, std::uint32_t parameter, std::uint64_t offset, std::span<double> out) const override;

 private:
  const GradientSource& inner_;
  const Timeline& timeline_;
};

// Gradients of the value passes, representable in the model dtype, with initial weights. `kind` is normal, adversarial, values or mlp.
std::unique_ptr<GradientSource> value_source(const Workload& workload, const Timeline& timeline, GradientKind kind, std::uint64_t seed);
// Normal data, and adversarial ones on every third stretch of three elements: for where both must come from one run.
std::unique_ptr<GradientSource> mixed_source(const Workload& workload, const Timeline& timeline, std::uint64_t seed);

}  // namespace gradledger::ref
