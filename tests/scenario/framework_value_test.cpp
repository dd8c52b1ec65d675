// Values that a framework alone looks into: copied, compared and written by everybody else.
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "sim/scenario/framework_value.h"

namespace gradledger {
namespace {

struct Width {
  int bits = 32;
  std::string json_text() const { return "{\"bits\": " + std::to_string(bits) + "}"; }
  bool operator==(const Width&) const = default;
};

struct Depth {
  int bits = 32;
  std::string json_text() const { return "{\"bits\": " + std::to_string(bits) + "}"; }
  bool operator==(const Depth&) const = default;
};

TEST(framework_values, are_copied_and_do_not_share) {
  FrameworkValue a(Width{16});
  FrameworkValue b = a;
  EXPECT_EQ(a, b);
  b.as<Width>().bits = 8;
  EXPECT_EQ(a.as<Width>().bits, 16);
  EXPECT_NE(a, b);
  a = b;
  EXPECT_EQ(a, b);
  const FrameworkValue& itself = a;
  a = itself;
  EXPECT_EQ(a.as<Width>().bits, 8);
}

TEST(framework_values, of_two_types_are_never_equal_though_they_are_written_alike) {
  EXPECT_EQ(FrameworkValue(Width{}).json_text(), FrameworkValue(Depth{}).json_text());
  EXPECT_NE(FrameworkValue(Width{}), FrameworkValue(Depth{}));
}

TEST(framework_values, that_are_empty_stand_for_the_defaults_of_any_type) {
  const FrameworkValue empty;
  EXPECT_EQ(empty.as<Width>().bits, 32);
  EXPECT_EQ(empty.as<Depth>().bits, 32);
  EXPECT_EQ(empty.json_text(), "{}");
  EXPECT_EQ(empty, FrameworkValue());
  EXPECT_NE(empty, FrameworkValue(Width{}));
}

TEST(framework_values, that_another_framework_reads_are_a_mistake_of_ours) {
  const FrameworkValue width(Width{});
  EXPECT_THROW(width.as<Depth>(), std::logic_error);
}

}  // namespace
}  // namespace gradledger
