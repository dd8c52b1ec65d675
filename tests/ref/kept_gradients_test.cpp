// What is kept of gradients is what was given, and no more than there is room for.
#include <gtest/gtest.h>

#include <vector>

#include "ref/kept_gradients.h"
#include "sim/load.h"
#include "tests/support/scenarios.h"

namespace gradledger::testing {
namespace {

// A number for each element, and a count of what was asked for.
class Counted final : public GradientSource {
 public:
  void gradient(std::uint32_t backward, std::uint32_t rank, std::uint32_t parameter, std::uint64_t offset, std::span<double> out) const override {
    ++asked;
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = value(backward, rank, parameter, offset + i);
  }
  static double value(std::uint32_t backward, std::uint32_t rank, std::uint32_t parameter, std::uint64_t element) {
    return 1000.0 * backward + 100.0 * rank + 10.0 * parameter + static_cast<double>(element) / 64;
  }

  mutable int asked = 0;
};

std::vector<double> asked_of(const GradientSource& source, std::uint32_t backward, std::uint32_t rank, std::uint32_t parameter, std::uint64_t offset, std::size_t count) {
  std::vector<double> out(count);
  source.gradient(backward, rank, parameter, offset, out);
  for (std::size_t i = 0; i < count; ++i)
    EXPECT_EQ(out[i], Counted::value(backward, rank, parameter, offset + i)) << backward << ' ' << rank << ' ' << parameter << ' ' << offset + i;
  return out;
}

TEST(kept_gradients, are_asked_for_once_and_given_in_parts) {
  Scenario s = base_scenario(2, {3, 0, 5}, Dtype::float32);
  s.script = {backward(2), step()};
  const Timeline timeline = make_timeline(s).value();
  const Counted inner;
  const ref::KeptGradients kept(inner, s, timeline);
  for (int times = 0; times < 2; ++times)
    for (std::uint32_t b = 0; b < 2; ++b)
      for (std::uint32_t r = 0; r < 2; ++r) {
        asked_of(kept, b, r, 2, 1, 3);
        asked_of(kept, b, r, 0, 0, 3);
        asked_of(kept, b, r, 1, 0, 0);
        asked_of(kept, b, r, 2, 0, 5);
      }
  EXPECT_EQ(inner.asked, 2 * 2 * 3) << "each parameter of each contribution";
}

TEST(kept_gradients, are_none_where_there_is_no_room) {
  const auto numel = static_cast<std::uint32_t>(ref::KeptGradients::elements_max / 4 + 1);
  Scenario s = base_scenario(2, {numel}, Dtype::float32);
  s.script = {backward(2), step()};
  const Timeline timeline = make_timeline(s).value();
  const Counted inner;
  const ref::KeptGradients kept(inner, s, timeline);
  for (int times = 0; times < 2; ++times) asked_of(kept, 1, 1, 0, numel - 2, 2);
  EXPECT_EQ(inner.asked, 2);
  const ref::KeptGradients none(inner, s, timeline, false);
  for (int times = 0; times < 2; ++times) asked_of(none, 0, 0, 0, 0, 1);
  EXPECT_EQ(inner.asked, 4);
}

}  // namespace
}  // namespace gradledger::testing
