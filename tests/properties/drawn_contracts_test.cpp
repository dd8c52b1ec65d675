// Loops with random weights, tokens, windows and groups: none that does what its contract says is reported, and of each that is changed in one
// place the change is named with its weights. What is right is worked out here in fractions, from the tables alone.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "ref/oracle.h"
#include "sim/base/hash.h"
#include "sim/base/rational.h"
#include "sim/execution/host_executor.h"
#include "sim/frameworks/deepspeed/settings.h"
#include "sim/load.h"
#include "tests/support/sanitized.h"

namespace gradledger::testing {
namespace {

using nlohmann::json;
using Classes = std::vector<ref::FindingClass>;
using Weights = std::map<Contribution, Rational>;

enum class Change : std::uint8_t { none, weight, divisor, group, window };
constexpr std::size_t changes = 5;

// One loop: windows of random lengths on ranks that may run different numbers of micro-batches, weighed by one of the normalisers.
class DrawnLoop {
 public:
  DrawnLoop(std::uint64_t seed, Change change) : random_(hash_keys({seed, 77})), change_(change) {
    world_ = change == Change::group ? 4 : 1 + below(4);
    stage_ = below(4);
    for (std::uint32_t w = 1 + below(3) + (change == Change::window); w > 0; --w) windows_.push_back(window());
    normaliser_ = change == Change::group ? "tokens" : std::vector<std::string>{"tokens", "tokens_of_rank", "window", "number"}[below(4)];
    number_ = 1 + below(6);
    if (change == Change::window) {  // weights that are right in windows of any length
      normaliser_ = "number";
      number_ = 2;
    }
    changed_window_ = change == Change::window ? below(static_cast<std::uint32_t>(windows_.size()) - 1) : below(static_cast<std::uint32_t>(windows_.size()));
    changed_rank_ = below(world_);
    changed_micro_batch_ = below(static_cast<std::uint32_t>(windows_[changed_window_][changed_rank_].size()));
    factor_ = std::vector<Rational>{{3, 2}, {2, 1}, {1, 3}, {5, 7}, {3, 1}}[below(5)];
    // In place of tokens that weigh nothing the change would be none.
    uneven_ = tokens_in(changed_window_, 0, 2) != tokens_in(changed_window_, 2, 4) || change != Change::group;
  }

  bool changes_something() const { return uneven_; }
  Change change() const { return change_; }
  std::uint32_t changed_window() const { return changed_window_; }
  Contribution changed() const { return {changed_window_, changed_rank_, changed_micro_batch_}; }
  const Rational& factor() const { return factor_; }

  json document() const {
    json d = {{"name", "drawn"}, {"world_size", world_}, {"model_dtype", bf16() ? "bf16" : "fp32"}};
    d["parameters"] = json::array({{{"name", "a"}, {"numel", 5}}, {{"name", "b"}, {"numel", 3}}});
    d["engine"] = {{"framework", "deepspeed"}, {"config", {{"gradient_clipping", 0.0}, {"zero_optimization", {{"stage", stage_}}}}}, {"optimizer", {{"type", "SGD"}, {"lr", 1.0}}}};
    d["gradients"] = {{"kind", "probe"}};
    d["tokens"]["table"] = windows_;
    if (change_ == Change::window) d["tokens"] = 3;
    if (world_ == 4) d["groups"]["half"] = {{0, 1}, {2, 3}};
    d["contract"] = {{"divide_by", normaliser_ == "number" ? json(number_) : json(normaliser_)}};
    if (change_ == Change::window) d["contract"]["window"] = "marked";
    for (std::uint32_t w = 0; w < windows_.size(); ++w) add_window(w, d["script"]);
    return d;
  }

  // Of every contribution in what is applied, by hand.
  Weights applied() const {
    Weights out;
    for (std::uint32_t w = 0; w < windows_.size(); ++w)
      for (std::uint32_t r = 0; r < world_; ++r)
        for (std::uint32_t m = 0; m < windows_[w][r].size(); ++m) out[{w, r, m}] = loop_weight(w, r, m) / Rational(world_);
    return out;
  }
  Weights due() const {
    Weights out;
    for (const auto& [c, weight] : applied()) out[c] = right_weight(c.step, c.rank, c.micro_batch) / Rational(world_);
    return out;
  }

 private:
  using Window = std::vector<std::vector<std::uint32_t>>;  // tokens, by rank and micro-batch

  std::uint32_t below(std::uint32_t bound) { return random_.below(bound); }
  bool bf16() const { return stage_ > 0 && world_ % 2 == 0; }

  // Ranks may differ in how many they run where nothing is reduced before the last.
  Window window() {
    const std::uint32_t length = 1 + below(3);
    Window out(world_);
    for (auto& row : out) {
      const std::uint32_t more = stage_ <= 1 && change_ != Change::window ? below(3) / 2 : 0;
      for (std::uint32_t m = 0; m < length + more; ++m) row.push_back(1 + below(9));
    }
    return out;
  }

  std::int64_t tokens_in(std::uint32_t w, std::uint32_t first, std::uint32_t end) const {
    std::int64_t sum = 0;
    for (std::uint32_t r = first; r < std::min(end, world_); ++r)
      for (const std::uint32_t t : windows_[w][r]) sum += t;
    return sum;
  }

  // The engine divides by the ranks, and gradient_accumulation_steps is 1: what the loop must multiply by.
  Rational right_weight(std::uint32_t w, std::uint32_t r, std::uint32_t m) const {
    const std::int64_t tokens = windows_[w][r][m];
    if (normaliser_ == "tokens") return Rational(tokens * world_, tokens_in(w, 0, world_));
    if (normaliser_ == "tokens_of_rank") return Rational(tokens, tokens_in(w, r, r + 1));
    if (normaliser_ == "number") return Rational(1, number_);
    std::int64_t micro_batches = 0;
    for (const auto& row : windows_[w]) micro_batches += static_cast<std::int64_t>(row.size());
    return Rational(world_, micro_batches);
  }

  Rational loop_weight(std::uint32_t w, std::uint32_t r, std::uint32_t m) const {
    const Rational right = right_weight(w, r, m);
    if (w != changed_window_) return right;
    if (change_ == Change::divisor) return right * factor_;
    if (change_ == Change::weight && r == changed_rank_ && m == changed_micro_batch_) return right * factor_;
    if (change_ == Change::group) return Rational(std::int64_t{windows_[w][r][m]} * 2, tokens_in(w, r / 2 * 2, r / 2 * 2 + 2));
    return right;
  }

  // As a formula where it is right, and as the number itself where it is changed; both ways are read.
  json weight(std::uint32_t w, std::uint32_t r, std::uint32_t m) const {
    if (change_ == Change::group && w == changed_window_) return "size_of(half)*tokens/tokens_of(half)";
    if (loop_weight(w, r, m) != right_weight(w, r, m) || (w + r + m) % 2 == 0) return text_of(loop_weight(w, r, m));
    if (normaliser_ == "tokens") return "world*tokens/tokens_of_window";
    if (normaliser_ == "tokens_of_rank") return "tokens/tokens_of_rank";
    if (normaliser_ == "window") return "world/micro_batches_of_window";
    return text_of(right_weight(w, r, m));
  }

  // Those that some ranks run beside the others come first, so that all meet at the boundary.
  void add_window(std::uint32_t w, json& script) const {
    const Window& tokens = windows_[w];
    const auto most = std::max_element(tokens.begin(), tokens.end(), [](const auto& a, const auto& b) { return a.size() < b.size(); })->size();
    std::vector<std::uint32_t> next(world_, 0);
    script.push_back({{"set_boundary", most == 1}});
    for (std::size_t round = 0; round < most; ++round) {
      json ranks = json::array(), weights = json::array();
      for (std::uint32_t r = 0; r < world_; ++r) {
        const bool runs = round + tokens[r].size() >= most;
        weights.push_back(runs ? weight(w, r, next[r]) : json(1));
        if (!runs) continue;
        ranks.push_back(r);
        ++next[r];
      }
      if (most > 1 && round + 1 == most) script.push_back({{"set_boundary", true}});
      script.push_back({{"backward", {{"ranks", ranks}, {"weight", weights}}}});
    }
    json step = json::object();
    if (change_ == Change::window) step["update"] = w != changed_window_;
    script.push_back({{"step", step}});
  }

  SplitMix64 random_;
  Change change_;
  std::uint32_t world_ = 1, stage_ = 0;
  std::vector<Window> windows_;
  std::string normaliser_;
  std::int64_t number_ = 1;
  std::uint32_t changed_window_ = 0, changed_rank_ = 0, changed_micro_batch_ = 0;
  Rational factor_;
  bool uneven_ = true;
};

ref::Verdict judged(const Scenario& scenario) {
  const auto timeline = make_timeline(scenario);
  HostExecutor producer(scenario, *timeline);
  ref::OracleOptions options;
  options.full_ledger = true;
  return ref::judge(scenario, *timeline, producer, options);
}

// Every weight that the ledger shows, beside what it must show and what is due.
void expect_weights(const ref::Verdict& verdict, const Weights& applied, const Weights& due) {
  std::size_t seen = 0;
  for (const ref::AppliedRow& row : verdict.applied) {
    for (std::size_t k = 0; k < row.columns.size(); ++k) {
      if (row.columns[k].step != row.step) continue;
      ++seen;
      EXPECT_EQ(row.row.observed[k], value_of(applied.at(row.columns[k])));
      EXPECT_EQ(row.row.expected[k], value_of(due.at(row.columns[k])));
    }
  }
  EXPECT_GE(seen, applied.size());
}

Classes classes_of(const ref::Verdict& verdict) {
  Classes out;
  for (const ref::Finding& f : verdict.findings)
    if (std::find(out.begin(), out.end(), f.finding) == out.end()) out.push_back(f.finding);
  return out;
}

// What a change may be called: counted twice or three times where a lone contribution is, a wrong scale otherwise.
bool fits(const DrawnLoop& loop, const Classes& classes) {
  if (classes.size() != 1) return false;
  if (loop.change() == Change::window) return classes[0] == ref::FindingClass::wrong_skip;
  const bool whole = loop.change() == Change::weight && loop.factor().denominator() == 1;
  return classes[0] == ref::FindingClass::wrong_scale || (whole && classes[0] == ref::FindingClass::duplicated_gradient);
}

void expect_named(const DrawnLoop& loop, const ref::Verdict& verdict) {
  if (loop.change() == Change::none || !loop.changes_something()) {
    EXPECT_TRUE(verdict.clean());
    return expect_weights(verdict, loop.applied(), loop.due());
  }
  EXPECT_TRUE(fits(loop, classes_of(verdict)));
  for (const ref::Finding& f : verdict.findings) EXPECT_EQ(f.step, loop.changed_window());
  if (loop.change() == Change::window) return;
  expect_weights(verdict, loop.applied(), loop.due());
  if (loop.change() != Change::weight) return;
  for (const ref::Finding& f : verdict.findings) {
    EXPECT_EQ(f.contributions.size(), 1u);
    EXPECT_EQ(f.contributions.front().contribution, loop.changed());
  }
}

constexpr std::uint64_t loops = sanitized ? 500 : 10'000;
constexpr std::uint64_t shards = 4;

class drawn_contracts : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(drawn_contracts, raise_no_alarm_where_they_are_kept_and_name_what_breaks_them) {
  std::uint64_t changed = 0;
  for (std::uint64_t i = 0; i < loops / shards; ++i) {
    const std::uint64_t seed = GetParam() * loops + i;
    const DrawnLoop loop(seed, static_cast<Change>(i % changes));
    const json document = loop.document();
    SCOPED_TRACE(fmt::format("seed {}\n{}", seed, document.dump()));
    const auto scenario = read_scenario(document.dump(), ".");
    ASSERT_TRUE(scenario) << scenario.error().text();
    const ref::Verdict verdict = judged(*scenario);
    expect_named(loop, verdict);
    changed += !verdict.findings.empty();
    if (HasFailure()) {
      for (const ref::Finding& f : verdict.findings) ADD_FAILURE() << f.sentence;
      return;
    }
  }
  EXPECT_GT(changed, loops / shards / 2);
}

INSTANTIATE_TEST_SUITE_P(shard, drawn_contracts, ::testing::Range(std::uint64_t{0}, shards));

}  // namespace
}  // namespace gradledger::testing
