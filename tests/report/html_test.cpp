// The text of the HTML page. That a browser draws it is held by tests/report/html.
#include <algorithm>
#include <regex>
#include <string>

#include <gtest/gtest.h>

#include "report/html/html.h"
#include "tests/report/made_by_hand.h"

namespace gradledger::testing {
namespace {

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t out = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++out;
  return out;
}

std::string page_of(const std::vector<std::string>& parts) { return report::html_page("a title", parts); }

// What a browser takes for the data of each part.
std::vector<nlohmann::json> parts_of(const std::string& page) {
  static const std::regex part(R"re(<script type="application/json" class="part">([^<]*)</script>)re");
  std::vector<nlohmann::json> out;
  for (std::sregex_iterator at(page.begin(), page.end(), part), end; at != end; ++at) {
    out.push_back(nlohmann::json::parse((*at)[1].str(), nullptr, false));
    EXPECT_TRUE(out.back().is_object());
  }
  return out;
}

// One step in which each of 8 ranks applies 64 micro-batches of 8 ranks, half of them lost, with a lane of operations for each.
report::Report eight_ranks_by_64() {
  report::Report out = report_by_hand();
  out.world_size = 8;
  out.ledger.clear();
  out.events.clear();
  report::Lanes& lanes = out.lanes.emplace();
  lanes.ranks.resize(8);
  for (std::uint32_t r = 0; r < 8; ++r) {
    ref::AppliedRow row = row_by_hand();
    row.rank = r;
    row.columns.clear();
    row.row.observed.clear();
    row.row.expected.clear();
    for (std::uint32_t k = 0; k < 8 * 64; ++k) {
      row.columns.push_back({2, k / 64, k % 64});
      row.row.observed.push_back(k % 2 ? 0 : 1.0 / 512);
      row.row.expected.push_back(1.0 / 512);
    }
    out.ledger.push_back(row);
    for (std::uint32_t e = 0; e < 2 * 64; ++e) {
      report::EventLine line = event_by_hand();
      line.event = e;
      line.ranks = {r};
      out.events.push_back(line);
      if (r == 0) lanes.events.push_back({"backward of micro-batch", 2});
      for (std::uint64_t i = 0; i < 10; ++i) lanes.ranks[r].push_back({OpKind::deposit, i % 2 ? Stream::compute : Stream::host, e, e * 10, false, e * 10 + i, e * 10 + i + 1, {}});
    }
  }
  return out;
}

TEST(html_page, loads_nothing_and_forbids_that_anything_is_loaded) {
  const std::string page = page_of({report::Html().text(report_by_hand())});
  EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
  for (const char* word : {" src=", "@import", "url(", "fetch(", "XMLHttpRequest", "WebSocket", "import(", "<link rel=\"stylesheet", "https:", "innerHTML", "eval("})
    EXPECT_EQ(page.find(word), std::string::npos) << word;
  EXPECT_EQ(count_of(page, "http:"), count_of(page, "http://www.w3.org/2000/svg")) << "the name of a namespace is no address";
  EXPECT_EQ(count_of(page, "href="), 1u);
  EXPECT_NE(page.find("href=\"data:,\""), std::string::npos);
}

TEST(html_page, is_one_document_with_one_script_beside_its_data) {
  const std::string page = page_of({report::Html().text(report_by_hand()), report::Html().text(report_by_hand())});
  EXPECT_TRUE(page.starts_with("<!DOCTYPE html>\n<html lang=\"en\">"));
  EXPECT_TRUE(page.ends_with("</script>\n</body>\n</html>\n"));
  for (const char* tag : {"head", "body", "style", "title", "main", "nav", "noscript"}) {
    EXPECT_EQ(count_of(page, std::string("</") + tag + ">"), 1u) << tag;
    EXPECT_TRUE(std::regex_search(page, std::regex(std::string("<") + tag + "[ >]"))) << tag;
  }
  EXPECT_EQ(count_of(page, "<script"), 3u);
  EXPECT_EQ(count_of(page, "</script>"), 3u);
  EXPECT_EQ(parts_of(page).size(), 2u);
}

TEST(html_page, takes_names_that_look_like_markup_for_data) {
  report::Report report = report_by_hand();
  report.scenario = "</script><script>alert(1)</script><!-- \" ' & \x01\n";
  report.file = "in\xff valid";
  report.parameters = {"<b>w0</b>", "w1\""};
  const std::string page = page_of({report::Html().text(report)});
  EXPECT_EQ(count_of(page, "<script"), 2u);
  EXPECT_EQ(page.find("alert(1)<"), std::string::npos);
  EXPECT_EQ(page.find("<b>"), std::string::npos);
  const auto parts = parts_of(page);
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0]["title"], report.scenario);
  EXPECT_EQ(parts[0]["file"], "in\xef\xbf\xbd valid");
  EXPECT_NE(parts[0]["ledger"]["rows"][0]["elements"].get<std::string>().find("<b>w0</b>"), std::string::npos);
  EXPECT_NE(report::html_page("a </title><b>", {}).find("<title>a &lt;/title&gt;&lt;b&gt;</title>"), std::string::npos);
}

TEST(html_page, of_8_ranks_and_64_micro_batches_is_below_a_megabyte) {
  const std::string page = page_of({report::Html().text(eight_ranks_by_64())});
  EXPECT_LT(page.size(), std::size_t{1} << 20);
  EXPECT_GT(page.size(), std::size_t{50} << 10) << "it holds all of them";
}

TEST(html_part, of_a_replay_holds_every_weight_of_its_ledger) {
  const auto part = nlohmann::json::parse(report::Html().text(eight_ranks_by_64()));
  ASSERT_EQ(part["ledger"]["rows"].size(), 8u);
  for (const auto& row : part["ledger"]["rows"]) {
    std::size_t cells = 0;
    for (std::size_t i = 1; i < row["cells"].size(); i += 2) cells += row["cells"][i].get<std::size_t>();
    EXPECT_EQ(cells, 512u);
  }
  EXPECT_EQ(part["ledger"]["columns"].size(), 1u) << "columns that rows have in common stand once";
  EXPECT_EQ(part["ledger"]["pairs"].size(), 2u);
}

TEST(html_part, of_a_replay_says_which_weights_are_misplaced) {
  report::Report report = report_by_hand();
  report.ledger.push_back(report.ledger[0]);
  report.ledger[1].row.misplaced = {false, true};
  const auto ledger = nlohmann::json::parse(report::Html().text(report))["ledger"];
  const auto pairs = nlohmann::json::parse(R"([[0.5, 0.5, "1/2", "1/2", false, false], [0.0, 0.5, "0", "1/2", false, false], [0.0, 0.5, "misplaced", "1/2", true, false]])");
  EXPECT_EQ(ledger["pairs"], pairs);
  EXPECT_EQ(ledger["rows"][0]["cells"], nlohmann::json::parse("[0, 1, 1, 1]"));
  EXPECT_EQ(ledger["rows"][1]["cells"], nlohmann::json::parse("[0, 1, 2, 1]"));
}

TEST(html_part, of_a_replay_says_which_weights_are_not_told) {
  report::Report report = report_by_hand();
  report.ledger[0].row.observed = report.ledger[0].row.expected = {0.5, 0.5};
  report.ledger[0].row.open = {true, false};
  const auto ledger = nlohmann::json::parse(report::Html().text(report))["ledger"];
  EXPECT_EQ(ledger["pairs"], nlohmann::json::parse(R"([[0.5, 0.5, "1/2", "1/2", false, true], [0.5, 0.5, "1/2", "1/2", false, false]])"));
  EXPECT_EQ(ledger["rows"][0]["cells"], nlohmann::json::parse("[0, 1, 1, 1]"));
}

TEST(html_part, of_a_replay_says_which_buffer_is_out_of_balance) {
  const auto part = nlohmann::json::parse(report::Html().text(report_by_hand()));
  EXPECT_EQ(part["balance"]["buffers"][0][0], "accumulator");
  EXPECT_EQ(part["balance"]["lines"], nlohmann::json::parse("[[3, [[1, 1]], 0]]")) << "event, ranks from and to, what they hold";
  EXPECT_EQ(part["balance"]["held"][0][0][2], 1);
  report::Report balanced = report_by_hand();
  balanced.events[0].record = changed(balanced.events[0], [](auto& record) { record.buffers[0].wrong = false; });
  EXPECT_EQ(nlohmann::json::parse(report::Html().text(balanced))["balance"]["held"][0][0][2], 0);
}

TEST(html_part, of_lanes_that_no_browser_could_draw_says_so) {
  report::Report report = report_by_hand();
  report::Lanes& lanes = report.lanes.emplace();
  lanes.ranks.resize(1);
  lanes.events = {{"one", 0}, {"other", 0}};
  for (std::uint32_t i = 0; i < 100'001; ++i) lanes.ranks[0].push_back({OpKind::deposit, Stream::compute, i % 2, i, false, i, i + 1, {}});
  const auto part = nlohmann::json::parse(report::Html().text(report));
  EXPECT_NE(part["lanes"]["left_out"].get<std::string>().find("--chrome-trace"), std::string::npos);
  lanes.ranks[0].pop_back();
  EXPECT_FALSE(nlohmann::json::parse(report::Html().text(report))["lanes"].contains("left_out"));
}

TEST(html_part, of_a_gate_has_a_row_for_each_scenario_and_its_status) {
  report::GateReport gate;
  gate.files = 3;
  gate.rows.resize(3);
  gate.rows[0].scenario = "good";
  gate.rows[1].scenario = "bad";
  gate.rows[1].unmet = {"expected clean"};
  gate.rows[2].scenario = "elsewhere";
  gate.rows[2].not_run = "the framework refuses it";
  const auto part = nlohmann::json::parse(report::Html().text(gate));
  ASSERT_EQ(part["rows"].size(), 3u);
  EXPECT_EQ(part["rows"][0]["status"], "right");
  EXPECT_EQ(part["rows"][1]["status"], "wrong");
  EXPECT_EQ(part["rows"][1]["details"][0], "expected clean");
  EXPECT_EQ(part["rows"][2]["status"], "open");
  EXPECT_EQ(part["sentences"][0], "1 passed, 1 failed, 1 not run");
}

TEST(html_part, of_mutants_is_a_matrix_of_faults_and_engines) {
  report::MutantReport report;
  report.rows = {{"a", "X", {}, {}, true, 3}, {"a", "Y", {}, {}, false, 24}, {"b", "Y", {}, {}, true, 1}};
  const auto part = nlohmann::json::parse(report::Html().text(report));
  ASSERT_EQ(part["rows"].size(), 2u);
  EXPECT_EQ(part["columns"], nlohmann::json({"X", "Y"}));
  EXPECT_EQ(part["rows"][0]["cells"][1][1], "ALIVE");
  EXPECT_TRUE(part["rows"][1]["cells"][0].is_null());
}

TEST(html_part, of_a_campaign_tells_findings_that_are_gone_from_those_that_are_there) {
  report::FuzzReport report;
  report.found.resize(2);
  report.found[0].status = "new";
  report.found[0].finding = "boundary-leak";
  report.found[1].status = "gone";
  report.found[1].finding = "stale-gradient";
  report.canary = 2;
  const auto part = nlohmann::json::parse(report::Html().text(report));
  EXPECT_EQ(part["rows"][0]["status"], "wrong");
  EXPECT_EQ(part["rows"][1]["status"], "right");
  EXPECT_EQ(part["rows"][0]["cells"].size(), part["columns"].size());
  EXPECT_EQ(part["rows"][1]["cells"].size(), part["columns"].size());
}

}  // namespace
}  // namespace gradledger::testing
