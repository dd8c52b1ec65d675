// What a sentence claims is what the ledger says: the contributions, elements and weights that it names, and the words for them.
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>

#include "ref/describe.h"
#include "search/draw/generator.h"
#include "sim/frameworks/deepspeed/settings.h"
#include "sim/scenario/parse.h"
#include "tests/support/of_numbers.h"
#include "tests/support/sanitized.h"
#include "tests/support/scenarios.h"

namespace gradledger::testing {
namespace {

using ref::Finding;
using ref::FindingClass;
using ref::Miscounted;

struct Judged {
  Scenario scenario;
  Timeline timeline;
  ref::Verdict verdict;
};

Judged judged(Scenario s) {
  Judged out{std::move(s), {}, {}};
  out.timeline = make_timeline(out.scenario).value();
  HostExecutor producer(out.scenario, out.timeline);
  ref::OracleOptions options;
  options.full_ledger = true;
  out.verdict = ref::judge(out.scenario, out.timeline, producer, options);
  return out;
}

// "0-2, 5".
std::set<std::uint32_t> numbers_in(const std::string& text) {
  std::set<std::uint32_t> out;
  const std::regex range(R"((\d+)(-(\d+))?)");
  for (std::sregex_iterator at(text.begin(), text.end(), range), end; at != end; ++at) {
    const auto first = std::stoul((*at)[1]), last = (*at)[3].matched ? std::stoul((*at)[3]) : first;
    for (auto n = first; n <= last; ++n) out.insert(static_cast<std::uint32_t>(n));
  }
  return out;
}

// Every contribution that a sentence names, read back from its words.
std::set<Contribution> named_in(const std::string& sentence, std::uint32_t step) {
  std::set<Contribution> out;
  static const std::regex contributions(R"(micro-batch(es)? ([0-9][0-9, -]*) of ranks? ([0-9]+(-[0-9]+)?(, [0-9]+(-[0-9]+)?)*)( from step (\d+))?)");
  const std::string claims = sentence.substr(0, sentence.find("first out of balance"));
  for (std::sregex_iterator at(claims.begin(), claims.end(), contributions), end; at != end; ++at)
    for (const std::uint32_t micro_batch : numbers_in((*at)[2]))
      for (const std::uint32_t rank : numbers_in((*at)[3])) out.insert({(*at)[8].matched ? static_cast<std::uint32_t>(std::stoul((*at)[8])) : step, rank, micro_batch});
  return out;
}

bool overlap(const std::vector<ref::ElementRange>& a, const std::vector<ref::ElementRange>& b) {
  return std::any_of(a.begin(), a.end(), [&](const ref::ElementRange& x) {
    return std::any_of(b.begin(), b.end(), [&](const ref::ElementRange& y) { return x.parameter == y.parameter && x.begin < y.end && y.begin < x.end; });
  });
}

bool at_boundary(const Judged& j, const Contribution& c) {
  return std::any_of(j.timeline.backwards.begin(), j.timeline.backwards.end(),
                     [&](const Backward& b) { return b.step == c.step && b.micro_batch[c.rank] == c.micro_batch && b.boundary; });
}

// What the word of a class claims of each contribution that goes with it.
void expect_word_holds(const Judged& j, const Finding& f) {
  for (const Miscounted& m : f.contributions) {
    EXPECT_NE(m.expected, m.observed) << f.sentence;
    switch (f.finding) {
      case FindingClass::discarded_gradient:
      case FindingClass::offload_loss: EXPECT_TRUE(m.observed == 0 && m.expected != 0) << f.sentence; break;
      case FindingClass::stale_gradient: EXPECT_EQ(m.expected, 0) << f.sentence; break;
      case FindingClass::boundary_leak: EXPECT_TRUE(at_boundary(j, m.contribution)) << f.sentence; [[fallthrough]];
      case FindingClass::missing_reduction:
        if (m.contribution.rank == f.rank) EXPECT_GT(std::abs(m.observed), std::abs(m.expected)) << f.sentence;
        else if (f.sentence.find("over some of the ranks alone") == std::string::npos) EXPECT_EQ(m.observed, 0) << f.sentence;
        break;
      case FindingClass::duplicated_gradient: EXPECT_GT(std::abs(m.observed), std::abs(m.expected)) << f.sentence; break;
      default: break;
    }
  }
}

// Against the rows of the ledger: what is named is off, in the elements that are named, by the weights that are named.
void expect_ledger_says_so(const Judged& j, const Finding& f) {
  double most_lost = 0;
  std::set<Contribution> seen;
  for (const ref::AppliedRow& row : j.verdict.applied) {
    if (row.event != f.event || row.rank != f.rank || row.buffer != f.buffer || !overlap(row.row.elements, f.elements)) continue;
    double due = 0, lost = 0;
    std::size_t here = 0;
    for (std::size_t k = 0; k < row.columns.size(); ++k) {
      due += row.row.expected[k];
      for (const Miscounted& m : f.contributions) {
        if (!(m.contribution == row.columns[k]) || m.observed != row.row.observed[k] || m.expected != row.row.expected[k]) continue;
        seen.insert(m.contribution);
        lost += std::max(0.0, m.expected - m.observed);
        ++here;
      }
    }
    if (!f.varies) {
      EXPECT_EQ(here, f.contributions.size()) << "not all of this in " << ref::elements_text(j.scenario, row.row.elements) << ": " << f.sentence;
    }
    if (due > 0) most_lost = std::max(most_lost, lost / due);
  }
  EXPECT_EQ(seen.size(), f.contributions.size()) << f.sentence;
  EXPECT_EQ(f.varies, f.sentence.find("not the same in all of them") != std::string::npos) << f.sentence;
  // Where it is not the same everywhere, what is kept of a contribution is what the first row says of it.
  EXPECT_TRUE(f.varies ? f.lost_weight >= most_lost : f.lost_weight == most_lost) << f.sentence;
}

// How many sentences were held against the ledger.
std::size_t hold_sentences(const Judged& j) {
  std::size_t held = 0;
  for (const Finding& f : j.verdict.findings) {
    if (f.contributions.empty()) continue;
    if (f.finding == FindingClass::misplaced_shard) {  // weights mean nothing in elements that are other ones
      EXPECT_EQ(f.sentence.find("weight"), std::string::npos) << f.sentence;
      continue;
    }
    std::set<Contribution> all;
    for (const Miscounted& m : f.contributions) all.insert(m.contribution);
    EXPECT_EQ(named_in(f.sentence, f.step), all) << f.sentence;
    EXPECT_EQ(f.sentence.find("learning rate"), std::string::npos) << f.sentence;
    expect_word_holds(j, f);
    if (f.role != Role::applied_gradient || f.buffer == "nothing" || j.verdict.undecoded > 0) continue;
    expect_ledger_says_so(j, f);
    ++held;
  }
  return held;
}

TEST(sentences, of_the_corpus_claim_what_the_ledger_says) {
  std::size_t held = 0, number = 0;
  constexpr std::size_t one_of = sanitized ? 5 : 1;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(std::filesystem::path(GRADLEDGER_SOURCE_DIR) / "scenarios")) {
    if (entry.path().extension() != ".json") continue;
    const auto s = load_scenario(entry.path());
    if (!s || s->expect.accounting_only || !testing::fits_numbers(*s) || s->expect.findings.empty() || number++ % one_of != 0) continue;
    SCOPED_TRACE(entry.path());
    held += hold_sentences(judged(*s));
  }
  EXPECT_GT(held, 150u / one_of);
}

TEST(sentences, of_random_scripts_claim_what_the_ledger_says) {
  std::size_t held = 0;
  for (std::uint64_t number = 0; number < (sanitized ? 100 : 400); ++number) {
    const Scenario s = search::draw({}, 17, number);
    SCOPED_TRACE(serialise(s));
    held += hold_sentences(judged(s));
  }
  EXPECT_GT(held, sanitized ? 25u : 100u);
}

// ---- what was said and is not so ------------------------------------------------------------------------------------------------------

Scenario at_stage(std::uint32_t stage, std::vector<ScriptItem> script, std::uint32_t ga = 1) {
  Scenario s = base_scenario(2, {22, 13}, Dtype::float32);
  deepspeed_config(s).zero.stage = stage;
  deepspeed_config(s).gradient_accumulation_steps = ga;
  s.script = std::move(script);
  return s;
}

TEST(a_private_micro_batch, is_a_missing_reduction_where_it_did_not_run_at_the_boundary) {
  for (const char* uses : {"micro_batch == 0", "micro_batch == 1"}) {
    Scenario s = at_stage(1, managed(4), 4);
    deepspeed_config(s).zero.overlap_comm = true;
    s.parameters[1].used_by = Predicate::parse(uses, "").value();
    const ref::Verdict verdict = judge(s);
    EXPECT_EQ(classes(verdict), (std::set<std::string>{"missing-reduction"})) << sentences(verdict);
  }
}

TEST(unequal_loops, are_a_collective_mismatch_and_nothing_that_follows_from_it) {
  ScriptItem alone = backward();
  alone.ranks = {0};
  for (const std::uint32_t stage : {2u, 3u}) {
    const ref::Verdict verdict = judge(at_stage(stage, {boundary(false), backward(2), alone, boundary(true), backward(), step()}));
    EXPECT_EQ(classes(verdict), (std::set<std::string>{"collective-mismatch"})) << sentences(verdict);
  }
}

TEST(a_lost_gradient, is_told_as_the_share_of_the_batch_that_is_left) {
  Scenario s = at_stage(2, {backward(4), step()});
  s.engine.optimizer.type = OptimizerType::adamw;
  const ref::Verdict verdict = judge(s);
  ASSERT_FALSE(verdict.findings.empty());
  EXPECT_NE(verdict.findings.front().sentence.find("3/4 of the window's weight is missing: these elements follow 1/4 of the window's batch"), std::string::npos)
      << sentences(verdict);
}

}  // namespace
}  // namespace gradledger::testing
