// Text for people: what is alike is said once, and nothing is wider than the terminal.
#include <algorithm>

#include "tests/report/made_by_hand.h"

namespace gradledger::testing {
namespace {

using report::Detail;
using report::Report;

std::string shown_as(const Report& report, report::Style style) { return report::renderer("terminal", style)->text(report); }

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t out = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++out;
  return out;
}

// `ranks` ranks that hold alike shards of one parameter in each of `windows` windows of two events.
Report many(std::uint32_t ranks, std::uint32_t windows) {
  Report out = report_by_hand();
  out.world_size = ranks;
  out.events.clear();
  out.ledger.clear();
  for (std::uint32_t w = 0; w < windows; ++w)
    for (std::uint32_t r = 0; r < ranks; ++r) {
      ref::AppliedRow row = row_by_hand();
      row.step = w;
      row.rank = r;
      row.columns = {{w, 0, 0}, {w, 0, 1}};
      row.row.elements = {{0, 4 * r, 4 * r + 4}};
      out.ledger.push_back(row);
    }
  for (std::uint32_t e = 0; e < 2 * windows; ++e)
    for (std::uint32_t r = 0; r < ranks; ++r) {
      report::EventLine line = event_by_hand();
      line.event = e;
      line.ranks = {r};
      line.what = e % 2 == 0 ? "backward" : "step";
      line.record = changed(line, [&](auto& record) { record.buffers[0].norm = e + r; });
      out.events.push_back(line);
    }
  return out;
}

TEST(text_for_people, begins_with_the_verdict) {
  EXPECT_TRUE(shown("terminal", report_by_hand()).starts_with("a: discarded-gradient\n"));
  Report clean = report_by_hand();
  clean.findings.clear();
  EXPECT_TRUE(shown("terminal", clean).starts_with("a: clean\n"));
  clean.coverage.nothing = "no step()";
  EXPECT_TRUE(shown("terminal", clean).starts_with("a: nothing judged\n"));
}

TEST(text_for_people, says_once_what_ranks_and_windows_have_in_common) {
  const std::string text = shown("terminal", many(64, 3));
  EXPECT_NE(text.find("applied in steps 0-2 "), std::string::npos) << text;
  EXPECT_NE(text.find("  0-63  4 each    1/2    [0 for 1/2]\n"), std::string::npos) << text;
  EXPECT_NE(text.find("    0  backward\n       ranks 0-63  *accumulator (local)"), std::string::npos) << text;
  EXPECT_NE(text.find("       events 2 to 5: the same again, 2 times\n"), std::string::npos) << text;
  EXPECT_EQ(count(text, "  step\n"), 1u);
}

// One event, in which `ranks` ranks hold `buffers` buffers each; all ranks the same, or each its own.
Report of_a_model(std::uint32_t ranks, std::uint32_t buffers, bool alike) {
  Report out = report_by_hand();
  out.world_size = ranks;
  out.ledger.clear();
  out.events.clear();
  for (std::uint32_t r = 0; r < ranks; ++r) {
    report::EventLine line = event_by_hand();
    line.ranks = {r};
    line.record = changed(line, [&](auto& record) {
      record.buffers.clear();
      for (std::uint32_t b = 0; b < buffers; ++b) record.buffers.push_back({(alike ? "w" : "r" + std::to_string(r) + ".w") + std::to_string(b), Role::local_accumulator, 1.0});
      record.collectives.clear();
      for (std::uint32_t b = 0; b < buffers; ++b) record.collectives.push_back("all_gather of " + std::to_string(b / 2 * 64) + " bf16 (parameter)");
    });
    out.events.push_back(line);
  }
  return out;
}

TEST(text_for_people, tells_the_buffers_of_a_whole_model_by_the_first_and_the_last) {
  const std::string text = shown("terminal", of_a_model(4, 291, true));
  EXPECT_NE(text.find("       ranks 0-3  291 buffers from w0 to w290 (local); -> all_gather of 0 bf16 (parameter) and 290 more of other sizes;"), std::string::npos) << text;
  EXPECT_NE(shown("terminal", of_a_model(4, 16, true)).find("w14 (local); w15 (local); -> all_gather of 0 bf16"), std::string::npos) << "few are named";
  EXPECT_NE(shown_as(of_a_model(4, 291, true), {.detail = Detail::all}).find("w289 (local, 1); w290 (local, 1);"), std::string::npos) << "-v names all";
}

TEST(text_for_people, has_each_rank_on_a_line_of_its_own_with_v_unless_that_is_a_book) {
  Report report = of_a_model(1, 291, true);
  const auto lines = [&](std::uint32_t ranks) {
    report.events[0].ranks.resize(ranks);
    for (std::uint32_t r = 0; r < ranks; ++r) report.events[0].ranks[r] = r;
    return shown_as(report, {.detail = Detail::all});
  };
  EXPECT_EQ(count(lines(16), "       rank "), 16u);
  const std::string many = lines(1024);
  EXPECT_EQ(count(many, "       rank "), 0u);
  EXPECT_NE(many.find("       ranks 0-1023  w0 (local, 1); w1 (local, 1); "), std::string::npos) << many.substr(0, 2000);
}

TEST(text_for_people, says_of_buffers_told_together_which_are_wrong) {
  Report report = of_a_model(1, 60, true);
  report.events[0].record = changed(report.events[0], [](auto& record) {
    for (std::uint32_t b = 20; b < 40; ++b) record.buffers[b].wrong = true;
  });
  const std::string text = shown("terminal", report);
  EXPECT_NE(text.find("  20 buffers from w0 to w19 (local); *20 buffers from w20 to w39 (local); 20 buffers from w40 to w59 (local);"), std::string::npos) << text;
}

TEST(text_for_people, lists_as_many_groups_of_ranks_as_a_reader_reads_and_the_wrong_ones_first) {
  Report report = of_a_model(100, 1, false);
  report.events[90].record = changed(report.events[90], [](auto& record) { record.buffers[0].wrong = true; });
  const std::string text = shown("terminal", report);
  EXPECT_NE(text.find("       rank 90  *r90.w0 (local)"), std::string::npos) << text;
  EXPECT_NE(text.find("       rank 22  r22.w0 (local)"), std::string::npos) << text;
  EXPECT_EQ(text.find("       rank 23  "), std::string::npos) << text;
  EXPECT_NE(text.find("       and 76 more groups of ranks, -v has them\n"), std::string::npos) << text;
  for (report::EventLine& line : report.events) line.record = changed(line, [](auto& record) { record.buffers[0].wrong = true; });
  EXPECT_NE(shown("terminal", report).find("       and 77 more groups of ranks whose books do not balance, -v has them\n"), std::string::npos);
  EXPECT_EQ(count(shown_as(report, {.detail = Detail::all}), "       rank "), 100u) << "-v has all";
}

TEST(text_for_people, says_once_what_the_micro_batches_of_a_long_window_have_in_common) {
  Report report = many(2, 1);
  report.events.clear();
  for (std::uint32_t e = 0; e < 20; ++e) {
    report::EventLine line = event_by_hand();
    line.event = e;
    line.ranks = {0, 1};
    line.what = e % 2 == 0 ? "backward of micro-batch " + std::to_string(e / 2) : "step (call " + std::to_string(e / 2) + " of 10)";
    if (e == 19) line.record = changed(line, [](auto& record) { record.collectives.emplace_back("all_reduce of the boundary"); });
    report.events.push_back(line);
  }
  const std::string text = shown("terminal", report);
  EXPECT_NE(text.find("       events 2 to 17: the same again, but for the number of the micro-batch or call, 8 times\n   18  backward of micro-batch 9\n"), std::string::npos)
      << text;
  EXPECT_NE(text.find("   19  step (call 9 of 10)\n"), std::string::npos) << text;
}

TEST(text_for_people, joins_the_columns_of_ranks_in_a_large_world) {
  Report report = many(1, 1);
  ref::AppliedRow& row = report.ledger[0];
  row.columns.clear();
  row.row.observed.clear();
  for (std::uint32_t r = 0; r < 64; ++r)
    for (std::uint32_t m = 0; m < 4; ++m) {
      row.columns.push_back({0, r, m});
      row.row.observed.push_back(m == 3 || r == 40 ? 0 : 1.0 / 256);
    }
  row.row.expected.assign(row.columns.size(), 1.0 / 256);
  const std::string text = shown("terminal", report);
  EXPECT_NE(text.find("r0-39 m0-2  r0-39 m3       r40 m0-3       r41-63 m0-2  r41-63 m3\n"), std::string::npos) << text;
  EXPECT_NE(text.find("1/256       [0 for 1/256]  [0 for 1/256]  1/256        [0 for 1/256]\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("more groups of contributions"), std::string::npos) << text;
}

TEST(text_for_people, names_the_first_of_the_elements_where_a_rank_has_many_and_counts_the_others) {
  Report report = many(1, 1);
  report.ledger[0].row.elements.clear();
  for (std::uint64_t i = 0; i < 20; ++i) report.ledger[0].row.elements.push_back({0, 10 * i, 10 * i + 5});
  EXPECT_NE(shown("terminal", report).find("  0     w0[0:5], and 19 more ranges  1/2"), std::string::npos) << shown("terminal", report);
  report.ledger[0].row.elements.resize(4);
  EXPECT_NE(shown("terminal", report).find("  0     w0[0:5], w0[10:15], w0[20:25], w0[30:35]  1/2"), std::string::npos);
  EXPECT_NE(shown_as(report, {.width = 90}).find("  0     w0[0:5], and 3 more ranges  1/2"), std::string::npos) << shown_as(report, {.width = 90});
}

TEST(text_for_people, names_the_elements_of_each_rank_where_there_are_few) {
  const std::string text = shown("terminal", many(2, 1));
  EXPECT_NE(text.find("  0     w0[0:4]   1/2"), std::string::npos) << text;
  EXPECT_NE(text.find("  1     w0[4:8]   1/2"), std::string::npos) << text;
}

TEST(text_for_people, does_not_join_what_differs) {
  Report one = many(64, 1);
  one.ledger[5].row.observed = {0.25, 0};
  for (report::EventLine& line : one.events)
    if (line.ranks.front() == 5 && line.event == 0) line.record = changed(line, [](auto& record) { record.buffers[0].wrong = false; });
  const std::string text = shown("terminal", one);
  EXPECT_NE(text.find("  0-4, 6-63"), std::string::npos) << text;
  EXPECT_NE(text.find("[1/4 for 1/2]"), std::string::npos) << text;
  EXPECT_NE(text.find("       rank 5  accumulator (local)"), std::string::npos) << text;
}

// Of its own a rank's elements have the first one; what is there of the second is due of other elements, and of the third, of which nothing is due, too.
Report with_misplaced() {
  Report out = report_by_hand();
  ref::AppliedRow& row = out.ledger[0];
  row.columns.push_back({1, 0, 0});
  row.row.observed = {0.5, 0, 0};
  row.row.expected = {0.5, 0.5, 0};
  row.row.misplaced = {false, true, true};
  return out;
}

TEST(text_for_people, shows_no_weight_as_due_that_is_of_other_elements) {
  Report report = with_misplaced();
  const std::string text = shown("terminal", report);
  EXPECT_NE(text.find("; [observed for due] is wrong; misplaced: what is there of the contribution is due of other elements)\n"), std::string::npos) << text;
  EXPECT_NE(text.find("s1 r0 m0           r0 m0  r0 m1\n"), std::string::npos) << text;
  EXPECT_NE(text.find("[misplaced for 0]  1/2    [misplaced for 1/2]\n"), std::string::npos) << text;
  report.ledger[0].row.observed[1] = 0.25;
  EXPECT_NE(shown("terminal", report).find("[1/4 and misplaced for 1/2]"), std::string::npos);
  report.ledger[0].row.observed[1] = 0.5;
  EXPECT_NE(shown("terminal", report).find("[1/2 and misplaced for 1/2]"), std::string::npos) << "beside its whole weight it is still wrong";
  report.ledger[0].row.misplaced = {};
  const std::string placed = shown("terminal", report);
  EXPECT_EQ(placed.find("misplaced"), std::string::npos) << placed;
  EXPECT_EQ(placed.find("s1 r0 m0"), std::string::npos) << "a column of nothing: " << placed;
}

TEST(text_for_people, does_not_join_a_misplaced_weight_with_one_that_is_missing) {
  Report report = report_by_hand();
  report.ledger[0].row.observed = {0, 0};
  EXPECT_NE(shown("terminal", report).find("r0 m0-1\n"), std::string::npos);
  report.ledger[0].row.misplaced = {true, false};
  EXPECT_NE(shown("terminal", report).find("[misplaced for 1/2]  [0 for 1/2]\n"), std::string::npos) << shown("terminal", report);
}

TEST(text_for_people, shows_no_weight_as_told_that_is_not) {
  Report report = report_by_hand();
  report.ledger[0].row.observed = report.ledger[0].row.expected;
  report.ledger[0].row.open = {true, false};
  const std::string text = shown("terminal", report);
  EXPECT_NE(text.find("; with ? it is due, and how much is there is not told)\n"), std::string::npos) << text;
  EXPECT_NE(text.find("1/2?   1/2\n"), std::string::npos) << text;
  report.ledger[0].row.open = {};
  EXPECT_EQ(shown("terminal", report).find("?"), std::string::npos);
  report.findings.clear();
  report.inconclusive_rows.by_reason = {};
  EXPECT_NE(shown("terminal", report).find("clean: every contribution of every rank and micro-batch has its due weight"), std::string::npos);
  report.inconclusive_rows.by_reason[static_cast<std::size_t>(ref::NotTold::approximated)] = 1;
  EXPECT_NE(shown("terminal", report).find("clean: every weight of a rank and micro-batch that is told is the one that is due"), std::string::npos);
}

TEST(text_for_people, has_every_rank_and_its_norms_where_all_is_asked_for) {
  const std::string text = shown_as(many(3, 2), {.detail = Detail::all});
  EXPECT_EQ(count(text, "*accumulator (local, "), 3u * 4u);
  EXPECT_EQ(count(text, "notes (scratch, 9)"), 3u * 4u);
  EXPECT_EQ(text.find("the same again"), std::string::npos);
}

TEST(text_for_people, is_the_verdict_and_what_was_judged_where_no_more_is_asked_for) {
  const std::string text = shown_as(report_by_hand(), {.detail = Detail::verdict});
  EXPECT_TRUE(text.starts_with("a: discarded-gradient\ndiscarded-gradient: one micro-batch is missing\njudged: 10 of 14")) << text;
  EXPECT_EQ(text.find("ledger of the gradient"), std::string::npos) << text;
  EXPECT_EQ(text.find("events:"), std::string::npos) << text;
}

TEST(text_for_people, is_no_wider_than_the_terminal) {
  Report wide = many(8, 2);
  for (ref::AppliedRow& row : wide.ledger) {
    row.columns.clear();
    row.row.observed.clear();
    row.row.expected.clear();
    for (std::uint32_t r = 0; r < 8; ++r)
      for (std::uint32_t m = 0; m < 2; ++m) {
        row.columns.push_back({row.step, r, m});
        row.row.observed.push_back(m == 0 ? 1.0 / 16 : 0);
        row.row.expected.push_back(1.0 / 16);
      }
  }
  for (report::EventLine& line : wide.events)
    line.record = changed(line, [](auto& record) { record.collectives.insert(record.collectives.end(), 6, "reduce_scatter sum of 4096 bf16 (gradient)"); });
  for (const std::size_t width : {80u, 100u, 132u}) {
    const std::string text = shown_as(wide, {.width = width});
    std::size_t widest = 0;
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = text.find('\n', begin);
      widest = std::max(widest, end - begin);
      EXPECT_LE(end - begin, width) << text.substr(begin, end - begin);
      begin = end + 1;
    }
    EXPECT_GT(widest, width - 20) << "and the width is used";
    EXPECT_EQ(count(text, "[0 for 1/16]"), count(shown("terminal", wide), "[0 for 1/16]")) << "no cell is left out";
  }
}

TEST(text_for_people, shows_no_control_characters_of_a_file) {
  Report bad = report_by_hand();
  bad.scenario = "a\033[2Jb";
  bad.driver_notes = {"line\rother"};
  const std::string text = shown("terminal", bad);
  EXPECT_EQ(text.find('\033'), std::string::npos);
  EXPECT_EQ(text.find('\r'), std::string::npos);
}

}  // namespace
}  // namespace gradledger::testing
