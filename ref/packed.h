// Data of which one run tells many contributions apart: all that fit lie on every element, each with numbers of its own.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ref/probes.h"

namespace gradledger::ref {

// How contributions of a window share an element.
struct Packing {
  bool exact = false;           // sums are exact in every format on the way, so that they are held to equality
  double unit = 1.0;            // probes are whole numbers of it
  std::uint32_t value_max = 1;  // exact: probes are from 1 to this
  std::uint32_t classes = 1;    // contributions are divided into so many, of which each element has one
};

// lone_rounding: relative, of a contribution on its way.
Packing packing_of(const Timeline& timeline, const ProbeRange& range, double lone_rounding);

// Exact: random whole numbers, all positive. Else odd ones with signs that cancel between elements, so that sums of rounded products tell their
// factors. Further runs have other numbers, and turn the classes.
class PackedSource final : public GradientSource {
 public:
  // every_second: 0 or 1, contributions of even windows or of odd ones are there alone; else those of all.
  PackedSource(const Workload& workload, const Timeline& timeline, const Packing& packing, std::uint64_t seed, std::uint32_t run, std::optional<std::uint32_t> every_second = {});

  void gradient(std::uint32_t backward, std::uint32_t rank, std::uint32_t parameter, std::uint64_t offset, std::span<double> out) const override;

 private:
  std::uint32_t number_of(const Backward& backward, std::uint32_t rank) const;

  const Timeline& timeline_;
  Packing packing_;
  std::uint64_t seed_;
  std::uint32_t run_;
  std::optional<std::uint32_t> every_second_;
  std::vector<std::uint64_t> first_;  // element of each parameter, parameters behind each other
};

}  // namespace gradledger::ref
