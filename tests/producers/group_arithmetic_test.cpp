// The results of every kind of collective, of every dtype and operator: floats against rings that are played step by step and exact arithmetic with
// one rounding, integers against arithmetic in 128 bits, moves against where each element came from.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "sim/producers/driver/reduce.h"
#include "tests/execution/collectives_ring.h"
#include "tests/producers/group_support.h"

namespace gradledger::testing {
namespace {

constexpr GroupCall reductions[] = {GroupCall::all_reduce, GroupCall::reduce, GroupCall::reduce_scatter};
constexpr std::uint32_t group_worlds[] = {1, 2, 3, 4, 8};

// One request a rank, of a group of all; the root is the last.
std::vector<GroupRequest> calls_of(GroupCall kind, GroupOperator op, GroupDtype dtype, const std::vector<Bytes>& data) {
  const auto world = static_cast<std::uint32_t>(data.size());
  std::vector<GroupRequest> out;
  for (std::uint32_t r = 0; r < world; ++r) {
    out.push_back(request(0, all_of(world), kind, data[r].size() / size_of(dtype), dtype));
    out[r].op = op;
    out[r].root = world - 1;
    out[r].data = data[r];
  }
  return out;
}

// ---- floats -------------------------------------------------------------------------------------------------------------------------------

template <class T>
constexpr GroupDtype group_dtype = GroupDtype::fp32;
template <>
constexpr GroupDtype group_dtype<Bf16> = GroupDtype::bf16;
template <>
constexpr GroupDtype group_dtype<Fp16> = GroupDtype::fp16;

template <class T>
class floats_of : public ::testing::Test {};
TYPED_TEST_SUITE(floats_of, Dtypes, DtypeNames);

template <class T>
std::vector<Bytes> ring_results(GroupCall kind, bool averages, const std::vector<std::vector<T>>& inputs) {
  const std::size_t world = inputs.size(), numel = inputs[0].size();
  Ring<T> ring(inputs, kind == GroupCall::reduce_scatter ? numel / world : numel, from_bits<T>(0), averages);
  if (kind == GroupCall::all_reduce) ring.all_reduce(numel);
  if (kind == GroupCall::reduce) ring.reduce(numel, world - 1);
  if (kind == GroupCall::reduce_scatter) ring.reduce_scatter(numel);
  ring.play(7);
  std::vector<Bytes> out;
  for (std::size_t r = 0; r < world; ++r) out.push_back(kind == GroupCall::reduce && r + 1 < world ? Bytes{} : bytes_of(ring.outputs[r]));
  return out;
}

TYPED_TEST(floats_of, sums_and_averages_are_those_of_the_ring) {
  std::uint64_t cases = 0;
  for (const std::uint32_t world : group_worlds)
    for (const std::size_t size : {1, 7, 300})
      for (const GroupCall kind : reductions)
        for (const GroupOperator op : {GroupOperator::sum, GroupOperator::avg}) {
          const auto inputs = rank_inputs<TypeParam>(world, size * world, size + world);
          std::vector<Bytes> data;
          for (const auto& input : inputs) data.push_back(bytes_of(input));
          EXPECT_EQ(results(calls_of(kind, op, group_dtype<TypeParam>, data)), ring_results(kind, op == GroupOperator::avg, inputs))
              << name_of(kind) << " " << name_of(op) << " world " << world << " size " << size;
          ++cases;
        }
  EXPECT_EQ(cases, 90u);
}

// One third has a rounding of its own, and products are added without one.
TEST(sums_times_a_factor, are_those_of_fused_products_in_the_order_of_the_ring) {
  const std::size_t world = 3;
  const auto third = static_cast<float>(1.0 / 3);
  const auto inputs = rank_inputs<float>(world, 30, 5);
  std::vector<Bytes> data;
  for (const auto& input : inputs) data.push_back(bytes_of(input));
  std::vector<GroupRequest> calls = calls_of(GroupCall::reduce_scatter, GroupOperator::sum, GroupDtype::fp32, data);
  for (GroupRequest& call : calls) call.factor = 1.0 / 3;
  const std::vector<Bytes> out = results(calls);
  std::size_t told = 0;
  for (std::size_t owner = 0; owner < world; ++owner)
    for (std::size_t i = 0; i < 10; ++i) {
      const auto of = [&](std::size_t hop) { return inputs[(owner + hop) % world][owner * 10 + i]; };
      const float expected = std::fma(of(3), third, std::fma(of(2), third, of(1) * third)), rounded = of(1) * third + of(2) * third + of(3) * third;
      float got = 0;
      std::memcpy(&got, out[owner].data() + i * sizeof got, sizeof got);
      EXPECT_EQ(std::bit_cast<std::uint32_t>(got), std::bit_cast<std::uint32_t>(expected)) << owner << " " << i;
      told += std::bit_cast<std::uint32_t>(expected) != std::bit_cast<std::uint32_t>(rounded);
    }
  EXPECT_GT(told, 0u) << "the values tell a fused product from a rounded one";
}

TEST(sums_times_a_factor, of_two_factors_fit_no_more_than_two_operators) {
  std::vector<GroupRequest> calls = calls_of(GroupCall::all_reduce, GroupOperator::sum, GroupDtype::fp32, {Bytes(8), Bytes(8)});
  calls[1].factor = 0.5;
  EXPECT_STREQ(driver::misfit(std::vector<const GroupRequest*>{&calls[0], &calls[1]}), "operator");
}

template <class T>
T lesser(T a, T b, bool greater) {
  const reference::Format f = reference::format_of<T>;
  const auto order = [&](T x) { return static_cast<std::int64_t>(bits(x) & f.sign_bit() ? ~static_cast<std::int64_t>(bits(x) & ~f.sign_bit()) : bits(x)); };
  const auto nan = [&](T x) { return (bits(x) & ~f.sign_bit()) > f.infinity(); };
  if (nan(a)) return nan(b) ? from_bits<T>(f.nan()) : b;
  if (nan(b)) return a;
  return (order(a) < order(b)) != greater ? a : b;
}

TYPED_TEST(floats_of, products_maxima_and_minima_round_once_at_each_hop_and_prefer_numbers) {
  const reference::Format f = reference::format_of<TypeParam>;
  const std::size_t world = 3;
  auto inputs = rank_inputs<TypeParam>(world, 900, 5);
  const std::vector<TypeParam> odd = interesting_values<TypeParam>();
  for (std::size_t i = 0; i < 300; ++i)
    for (std::size_t r = 0; r < world; ++r) inputs[r][i] = odd[(i * (r + 1) + r * r) % odd.size()];
  std::vector<Bytes> data;
  for (const auto& input : inputs) data.push_back(bytes_of(input));
  for (const GroupCall kind : reductions)
    for (const GroupOperator op : {GroupOperator::product, GroupOperator::max, GroupOperator::min}) {
      const std::vector<Bytes> out = results(calls_of(kind, op, group_dtype<TypeParam>, data));
      for (std::size_t i = 0; i < 900; ++i) {
        const std::size_t owner = kind == GroupCall::reduce ? world - 1 : kind == GroupCall::reduce_scatter ? i / 300 : all_reduce_owner(i, 900, world, dtype_of<TypeParam>);
        TypeParam expected = inputs[(owner + 1) % world][i];
        for (std::size_t hop = 2; hop <= world; ++hop) {
          const TypeParam next = inputs[(owner + hop) % world][i];
          expected = op == GroupOperator::product ? from_bits<TypeParam>(reference::multiply(f, bits(expected), bits(next))) : lesser(expected, next, op == GroupOperator::max);
        }
        const Bytes& shown = out[kind == GroupCall::reduce_scatter ? i / 300 : world - 1];
        ASSERT_EQ(bits(values_of<TypeParam>(shown)[kind == GroupCall::reduce_scatter ? i % 300 : i]), bits(expected)) << name_of(kind) << " " << name_of(op) << " element " << i;
      }
    }
}

TEST(fp64, goes_along_the_chains_of_the_ring_with_a_fused_average) {
  const std::uint32_t world = 3;
  std::vector<std::vector<double>> inputs(world);
  Random random(3);
  for (auto& input : inputs)
    for (int i = 0; i < 60; ++i) input.push_back(std::ldexp(static_cast<double>(random.next() >> 11), -53) - 0.3);
  std::vector<Bytes> data;
  for (const auto& input : inputs) data.push_back(bytes_of(input));
  using Step = std::function<double(double, double)>;
  const double third = 1.0 / 3;
  const std::pair<GroupOperator, Step> steps[] = {{GroupOperator::sum, [](double a, double b) { return a + b; }},
                                                  {GroupOperator::product, [](double a, double b) { return a * b; }},
                                                  {GroupOperator::avg, [&](double a, double b) { return std::fma(b, third, a); }},
                                                  {GroupOperator::max, [](double a, double b) { return std::max(a, b); }},
                                                  {GroupOperator::min, [](double a, double b) { return std::min(a, b); }}};
  for (const GroupCall kind : reductions)
    for (const auto& [op, step] : steps) {
      const std::vector<Bytes> out = results(calls_of(kind, op, GroupDtype::fp64, data));
      for (std::uint32_t i = 0; i < 60; ++i) {
        const std::uint32_t owner = kind == GroupCall::reduce ? 2 : i / 20;  // 20 elements are whole 16-byte grains
        double expected = inputs[(owner + 1) % 3][i] * (op == GroupOperator::avg ? third : 1);
        for (std::uint32_t hop = 2; hop <= 3; ++hop) expected = step(expected, inputs[(owner + hop) % 3][i]);
        EXPECT_EQ(values_of<double>(out[kind == GroupCall::reduce_scatter ? owner : 2])[kind == GroupCall::reduce_scatter ? i % 20 : i], expected)
            << name_of(kind) << " " << name_of(op) << " element " << i;
      }
    }
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const auto& [op, expected] : {std::pair{GroupOperator::max, 0.0}, {GroupOperator::min, -0.0}}) {
    const auto out = values_of<double>(results(calls_of(GroupCall::all_reduce, op, GroupDtype::fp64, {bytes_of<double>({nan, 0.0, nan}), bytes_of<double>({1.0, -0.0, nan})}))[1]);
    EXPECT_EQ(out[0], 1.0);
    EXPECT_EQ(std::signbit(out[1]), std::signbit(expected));
    EXPECT_TRUE(std::isnan(out[2]));
  }
}

// ---- integers -----------------------------------------------------------------------------------------------------------------------------

template <class T>
class integers_of : public ::testing::Test {};
using Integers = ::testing::Types<std::int8_t, std::uint8_t, std::int16_t, std::int32_t, std::int64_t>;
TYPED_TEST_SUITE(integers_of, Integers);

template <class T>
GroupDtype integer_dtype() {
  if (sizeof(T) == 1) return std::is_signed_v<T> ? GroupDtype::int8 : GroupDtype::uint8;
  return sizeof(T) == 2 ? GroupDtype::int16 : sizeof(T) == 4 ? GroupDtype::int32 : GroupDtype::int64;
}

template <class T>
T wrapped(__int128 x) {
  const __int128 modulus = static_cast<__int128>(1) << (8 * sizeof(T));
  x = (x % modulus + modulus) % modulus;
  return static_cast<T>(x > static_cast<__int128>(std::numeric_limits<T>::max()) ? x - modulus : x);
}

template <class T>
T expected_integer(GroupOperator op, const std::vector<T>& xs) {
  __int128 all = xs[0];
  for (std::size_t r = 1; r < xs.size(); ++r) {
    const __int128 x = xs[r];
    switch (op) {
      case GroupOperator::sum:
      case GroupOperator::avg: all = wrapped<T>(all + x); break;
      case GroupOperator::product: all = wrapped<T>(all * x); break;
      case GroupOperator::max: all = std::max(all, x); break;
      case GroupOperator::min: all = std::min(all, x); break;
      case GroupOperator::band: all = all & x; break;
      case GroupOperator::bor: all = all | x; break;
      case GroupOperator::bxor: all = all ^ x; break;
      case GroupOperator::none: break;
    }
  }
  return static_cast<T>(op == GroupOperator::avg ? all / static_cast<__int128>(xs.size()) : all);
}

TYPED_TEST(integers_of, every_operator_is_exact_and_wraps_around) {
  for (const std::uint32_t world : group_worlds)
    for (const GroupCall kind : reductions)
      for (int number = 1; number < driver::group_operators; ++number) {
        const auto op = static_cast<GroupOperator>(number);
        std::vector<std::vector<TypeParam>> inputs(world);
        Random random(world);
        for (auto& input : inputs)
          for (std::uint32_t i = 0; i < 16 * world; ++i)
            input.push_back(i % 5 == 0 ? std::numeric_limits<TypeParam>::min() : i % 5 == 1 ? std::numeric_limits<TypeParam>::max() : static_cast<TypeParam>(random.next()));
        std::vector<Bytes> data;
        for (const auto& input : inputs) data.push_back(bytes_of(input));
        const std::vector<Bytes> out = results(calls_of(kind, op, integer_dtype<TypeParam>(), data));
        for (std::uint32_t i = 0; i < 16 * world; ++i) {
          std::vector<TypeParam> xs;
          for (const auto& input : inputs) xs.push_back(input[i]);
          const std::uint32_t at = kind == GroupCall::reduce_scatter ? i / 16 : world - 1;
          ASSERT_EQ(values_of<TypeParam>(out[at])[kind == GroupCall::reduce_scatter ? i % 16 : i], expected_integer(op, xs))
              << name_of(kind) << " " << name_of(op) << " of " << world;
        }
        for (std::uint32_t r = 0; r + 1 < world; ++r) EXPECT_EQ(out[r].size(), kind == GroupCall::reduce ? 0 : out[world - 1].size());
      }
}

TEST(bools, are_true_where_a_byte_is_not_zero) {
  const std::vector<Bytes> data{{0, 0, 1, 2}, {0, 1, 1, 4}, {0, 0, 1, 0}};
  const std::pair<GroupOperator, Bytes> expected[] = {{GroupOperator::sum, {0, 1, 1, 1}},     {GroupOperator::max, {0, 1, 1, 1}}, {GroupOperator::bor, {0, 1, 1, 1}},
                                                      {GroupOperator::product, {0, 0, 1, 0}}, {GroupOperator::min, {0, 0, 1, 0}}, {GroupOperator::band, {0, 0, 1, 0}},
                                                      {GroupOperator::bxor, {0, 1, 1, 0}}};
  for (const auto& [op, result] : expected) EXPECT_EQ(results(calls_of(GroupCall::all_reduce, op, GroupDtype::boolean, data))[0], result) << name_of(op);
  EXPECT_EQ(results(calls_of(GroupCall::all_reduce, GroupOperator::sum, GroupDtype::boolean, {{0, 7}}))[0], (Bytes{0, 1})) << "of one rank alone";
}

TEST(reductions, are_none_of_bytes_of_averaged_bools_and_of_the_bits_of_floats) {
  std::size_t possible = 0;
  for (int op = 0; op < driver::group_operators; ++op)
    for (int dtype = 0; dtype < driver::group_dtypes; ++dtype) possible += driver::is_reduction(static_cast<GroupOperator>(op), static_cast<GroupDtype>(dtype));
  EXPECT_EQ(possible, 4u * 5 + 5u * 8 + 7);
}

TEST(reductions, of_nothing_are_nothing) {
  for (const GroupCall kind : reductions)
    for (const GroupDtype dtype : {GroupDtype::fp32, GroupDtype::int64})
      EXPECT_EQ(results({request(0, {0, 1}, kind, 0, dtype), request(0, {0, 1}, kind, 0, dtype)}), (std::vector<Bytes>{{}, {}}));
}

// ---- moves --------------------------------------------------------------------------------------------------------------------------------

constexpr std::uint32_t movers = 3;

// Element i of what rank r gives, in every byte something else.
Bytes marked(std::uint32_t r, std::uint64_t from, std::uint64_t count, GroupDtype dtype) {
  Bytes out;
  for (std::uint64_t i = from * size_of(dtype); i < (from + count) * size_of(dtype); ++i) out.push_back(static_cast<std::uint8_t>(r * 101 + i * 7));
  return out;
}

Bytes operator+(Bytes a, const Bytes& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::vector<GroupRequest> marked_calls(GroupCall kind, std::vector<std::uint64_t> numel, GroupDtype dtype) {
  std::vector<Bytes> data;
  for (std::uint32_t r = 0; r < numel.size(); ++r) data.push_back(marked(r, 0, numel[r], dtype));
  return calls_of(kind, GroupOperator::none, dtype, data);
}

class moves_of : public ::testing::TestWithParam<int> {
 protected:
  GroupDtype dtype() const { return static_cast<GroupDtype>(GetParam()); }
  Bytes of(std::uint32_t r, std::uint64_t from, std::uint64_t count) const { return marked(r, from, count, dtype()); }
};

TEST_P(moves_of, all_gather_and_gather_join_the_inputs_in_the_order_of_the_group) {
  const Bytes joined = of(0, 0, 4) + of(1, 0, 4) + of(2, 0, 4);
  EXPECT_EQ(results(marked_calls(GroupCall::all_gather, {4, 4, 4}, dtype())), std::vector<Bytes>(movers, joined));
  EXPECT_EQ(results(marked_calls(GroupCall::gather, {4, 4, 4}, dtype())), (std::vector<Bytes>{{}, {}, joined}));
  auto unequal = marked_calls(GroupCall::all_gather, {1, 0, 5}, dtype());
  for (GroupRequest& call : unequal) call.parts = {1, 0, 5};
  EXPECT_EQ(results(unequal), std::vector<Bytes>(movers, of(0, 0, 1) + of(2, 0, 5)));
}

TEST_P(moves_of, broadcast_and_scatter_take_the_roots_data_whether_others_send_theirs_or_not) {
  for (const bool others_send : {true, false}) {
    auto calls = marked_calls(GroupCall::broadcast, {6, 6, 6}, dtype());
    auto parts = marked_calls(GroupCall::scatter, {6, 6, 6}, dtype());
    for (std::uint32_t r = 0; r < 2 && !others_send; ++r) calls[r].data = parts[r].data = {};
    EXPECT_EQ(results(calls), std::vector<Bytes>(movers, of(2, 0, 6)));
    EXPECT_EQ(results(parts), (std::vector<Bytes>{of(2, 0, 2), of(2, 2, 2), of(2, 4, 2)}));
  }
}

TEST_P(moves_of, all_to_all_gives_each_member_its_piece_of_every_input) {
  EXPECT_EQ(results(marked_calls(GroupCall::all_to_all, {6, 6, 6}, dtype())),
            (std::vector<Bytes>{of(0, 0, 2) + of(1, 0, 2) + of(2, 0, 2), of(0, 2, 2) + of(1, 2, 2) + of(2, 2, 2), of(0, 4, 2) + of(1, 4, 2) + of(2, 4, 2)}));
  auto calls = marked_calls(GroupCall::all_to_all, {6, 3, 1}, dtype());
  calls[0].parts = {1, 2, 3};
  calls[2].parts = {0, 1, 0};
  EXPECT_EQ(results(calls), (std::vector<Bytes>{of(0, 0, 1) + of(1, 0, 1), of(0, 1, 2) + of(1, 1, 1) + of(2, 0, 1), of(0, 3, 3) + of(1, 2, 1)}));
}

TEST_P(moves_of, a_message_arrives_as_it_was_sent) {
  GroupRequest send = request(0, {0, 1}, GroupCall::send, 5, dtype()), receive = request(0, {0, 1}, GroupCall::receive, 5, dtype());
  send.peer = 1;
  send.data = of(0, 0, 5);
  receive.peer = 0;
  EXPECT_EQ(results({send, receive}), (std::vector<Bytes>{{}, of(0, 0, 5)}));
}

TEST_P(moves_of, a_barrier_moves_nothing) { EXPECT_EQ(results(marked_calls(GroupCall::barrier, {0, 0, 0}, dtype())), std::vector<Bytes>(movers)); }

INSTANTIATE_TEST_SUITE_P(every_dtype, moves_of, ::testing::Range(0, driver::group_dtypes),
                         [](const auto& dtype) { return std::string(name_of(static_cast<GroupDtype>(dtype.param))); });

TEST(roots, are_ranks_of_the_world_and_not_places_in_the_group) {
  RecordedGroup sink;
  Coordinator coordinator(6, 1000, sink);
  std::uint64_t id = 0;
  for (const GroupCall kind : {GroupCall::broadcast, GroupCall::gather, GroupCall::scatter, GroupCall::reduce}) {
    std::vector<std::pair<std::uint32_t, GroupRequest>> calls;
    ++id;
    for (const std::uint32_t r : {2u, 3u, 5u}) {
      GroupRequest call = request(id, {2, 3, 5}, kind, 3, GroupDtype::int8);
      call.root = 3;
      call.data = Bytes(3, static_cast<std::uint8_t>(r));
      calls.emplace_back(r, call);
    }
    const auto answers = meet(coordinator, std::move(calls));
    ASSERT_EQ(answers.size(), 3u);
    const Bytes expected = kind == GroupCall::reduce    ? Bytes(3, 10)
                           : kind == GroupCall::gather  ? Bytes{2, 2, 2, 3, 3, 3, 5, 5, 5}
                           : kind == GroupCall::scatter ? Bytes{3}
                                                        : Bytes(3, 3);
    EXPECT_EQ(answers.at(3).data, expected) << name_of(kind);
    EXPECT_EQ(answers.at(5).data, kind == GroupCall::reduce || kind == GroupCall::gather ? Bytes{} : expected) << name_of(kind);
  }
}

}  // namespace
}  // namespace gradledger::testing
