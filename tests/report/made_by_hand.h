// Reports of no run at all: what a format shows is in the value alone.
#pragma once

#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "report/format.h"

namespace gradledger::testing {

inline const report::Version no_program{"9.8.7", "abcdef", "GNU 99", "Debug"};

inline report::EventLine event_by_hand() {
  report::EventLine::Record record;
  record.buffers = {{"accumulator", Role::local_accumulator, 1.5, true, true}, {"notes", Role::scratch, 9, true, false}};
  record.collectives = {"all_reduce"};
  record.facts = {{StepFact::skipped, 0}};
  return {3, {1}, "step (call 2 of 2)", std::make_shared<report::EventLine::Record>(record)};
}

// Its record, changed.
template <class Change>
std::shared_ptr<const report::EventLine::Record> changed(const report::EventLine& line, Change&& change) {
  auto out = std::make_shared<report::EventLine::Record>(*line.record);
  change(*out);
  return out;
}

inline ref::AppliedRow row_by_hand() {
  ref::AppliedRow row;
  row.step = 2;
  row.event = 3;
  row.rank = 1;
  row.buffer = "accumulator";
  row.columns = {{2, 0, 0}, {2, 0, 1}};
  row.row.elements = {{0, 0, 4}, {1, 2, 8}};
  row.row.observed = {0.5, 0};
  row.row.expected = {0.5, 0.5};
  return row;
}

inline report::Finding finding_by_hand() {
  report::Finding finding;
  finding.finding = ref::FindingClass::discarded_gradient;
  finding.step = 2;
  finding.event = 3;
  finding.rank = 1;
  finding.buffer = "accumulator";
  finding.role = Role::local_accumulator;
  finding.elements = row_by_hand().row.elements;
  finding.contributions = {{{2, 0, 1}, 0.5, 0}};
  finding.lost_weight = 0.5;
  finding.sentence = "discarded-gradient: one micro-batch is missing";
  finding.pointer = "/script/1";
  finding.blame = ref::Blame{ref::Whose::usage, "single-boundary", "Two backwards stand before the step."};
  finding.known = ref::KnownDefect{"catalogue-0", "a-name", "a defect", "Somewhere#1", "0.0.9", "0.2.0", "Wait.", 2};
  ref::WorstElement worst;
  worst.parameter = 1;
  worst.element = 2;
  worst.observed = 1;
  worst.expected = 3;
  worst.bound = 0.5;
  worst.bits = 0x3f80;
  worst.dtype = Dtype::bfloat16;
  finding.worst = worst;
  return finding;
}

inline ref::Coverage coverage_by_hand() {
  ref::Coverage coverage;
  coverage.judged = 10;
  coverage.not_judged[0] = 4;
  coverage.windows_closed = 3;
  coverage.windows_judged = 2;
  coverage.missing = {{3, 1, StepFact::skipped}};
  coverage.not_shown = {5};
  return coverage;
}

// Rank 1 applies no gradient of micro-batch 1 of rank 0 in step 2.
inline report::Report report_by_hand() {
  report::Report out;
  out.command = "gradledger replay a.json --seed 7";
  out.scenario = "a";
  out.file = "a.json";
  out.note = "a note\nof two lines";
  out.framework = "some framework";
  out.engine = "SomeOptimizer";
  out.described = "as it comes";
  out.as_of = {"0.1.0", {{"offload_keep", "never"}}};
  out.world_size = 2;
  out.parameters = {"w0", "w1"};
  out.elements = 12;
  out.model_dtype = Dtype::bfloat16;
  out.producer = "host";
  out.seed = 7;
  out.planted = {{8.0, "w1", {2, 0, 1}}};
  out.events = {event_by_hand()};
  out.ledger = {row_by_hand()};
  out.findings = {finding_by_hand()};
  out.open = true;
  out.coverage = coverage_by_hand();
  out.contributions = 40;
  out.contributions_not_decoded = 8;
  out.inconclusive_rows.by_reason = {2, 0, 0, 1};
  out.fingerprint_passes = 2;
  out.decode_passes = 3;
  out.value_passes = 4;
  out.collectives["gradient"] = {{0, 1}, {0, 1}};
  out.run.completed = true;
  out.run.trace_hash = 0xabc;
  out.run.value_hash = 0xdef;
  out.run.bytes_peak = 96;
  return out;
}

template <class Value>
std::string shown(const char* format, const Value& value) {
  const auto renderer = report::renderer(format, {}, {no_program, "gradledger whole"});
  if (!renderer) ADD_FAILURE() << "no format " << format;
  return renderer ? renderer->text(value) : "";
}

// The objects of a text with one in each line.
inline std::vector<nlohmann::json> objects_of(const std::string& text) {
  std::vector<nlohmann::json> out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    out.push_back(nlohmann::json::parse(line, nullptr, false));
    EXPECT_TRUE(out.back().is_object()) << line;
  }
  return out;
}

}  // namespace gradledger::testing
