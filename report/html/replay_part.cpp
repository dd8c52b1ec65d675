// One replay, as the page draws it: what was found, the ledger, and which buffers were out of balance when.
#include <cmath>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "ref/describe.h"
#include "report/html/html.h"
#include "report/html/parts.h"
#include "report/words.h"

namespace gradledger::report {
namespace {

// Pairs of an observed weight and the one that is due, with whether something else is there that is misplaced and whether it is not told, each once.
class Pairs {
 public:
  std::size_t number(const ref::LedgerRow& row, std::size_t column) {
    const double observed = row.observed[column], expected = row.expected[column];
    const bool misplaced = row.misplaced_at(column), open = row.open_at(column);
    // By text: a weight that is no number equals nothing, itself not either.
    const auto [found, fresh] = known_.try_emplace(fmt::format("{:a} {:a} {} {}", observed, expected, misplaced, open), list_.size());
    if (fresh) list_.push_back({number_json(observed), number_json(expected), ref::observed_text(observed, misplaced), ref::weight_text(expected), misplaced, open});
    return found->second;
  }
  const ordered_json& json() const { return list_; }

 private:
  std::map<std::string, std::size_t> known_;
  ordered_json list_ = ordered_json::array();
};

// Cells as number of their pair and how many of them follow each other.
ordered_json cells_json(const ref::LedgerRow& row, Pairs& pairs) {
  ordered_json out = ordered_json::array();
  for (std::size_t k = 0; k < row.observed.size();) {
    const std::size_t pair = pairs.number(row, k);
    std::size_t next = k + 1;
    while (next < row.observed.size() && pairs.number(row, next) == pair) ++next;
    out.push_back(pair);
    out.push_back(next - k);
    k = next;
  }
  return out;
}

ordered_json ledger_part(const Report& report) {
  Pairs pairs;
  std::map<std::vector<Contribution>, std::size_t> known;
  ordered_json columns = ordered_json::array(), rows = ordered_json::array();
  for (const ref::AppliedRow& row : report.ledger) {
    const auto [found, fresh] = known.try_emplace(row.columns, columns.size());
    if (fresh) {
      ordered_json list = ordered_json::array();
      for (const Contribution& c : row.columns) list.push_back({c.step, c.rank, c.micro_batch});
      columns.push_back(std::move(list));
    }
    rows.push_back({{"step", row.step},
                    {"event", row.event},
                    {"rank", row.rank},
                    {"buffer", row.buffer},
                    {"elements", ref::elements_text(report.parameters, row.row.elements)},
                    {"columns", found->second},
                    {"cells", cells_json(row.row, pairs)}});
  }
  return {{"pairs", pairs.json()}, {"columns", columns}, {"rows", rows}};
}

// Records that events share stand once; ranks as ranges, first and last.
ordered_json balance_part(const Report& report) {
  std::map<std::pair<std::string, Role>, std::size_t> known;
  std::map<const EventLine::Record*, std::size_t> records;
  ordered_json buffers = ordered_json::array(), held = ordered_json::array(), lines = ordered_json::array(), events = ordered_json::object();
  for (const EventLine& line : report.events) {
    events[std::to_string(line.event)] = line.what;
    const auto [record, is_new] = records.try_emplace(line.record.get(), held.size());
    if (is_new) {
      ordered_json list = ordered_json::array();
      for (const EventLine::Buffer& buffer : line.record->buffers) {
        if (buffer.role == Role::scratch) continue;
        const auto [found, fresh] = known.try_emplace({buffer.name, buffer.role}, buffers.size());
        if (fresh) buffers.push_back({buffer.name, name_of(buffer.role)});
        list.push_back({found->second, buffer.norm ? fmt::format("{:.4g}", *buffer.norm) : "", buffer.wrong ? 1 : 0});
      }
      held.push_back(std::move(list));
    }
    ordered_json ranks = ordered_json::array();
    for (std::size_t i = 0, next = 0; i < line.ranks.size(); i = next) {
      for (next = i + 1; next < line.ranks.size() && line.ranks[next] == line.ranks[next - 1] + 1;) ++next;
      ranks.push_back({line.ranks[i], line.ranks[next - 1]});
    }
    lines.push_back({line.event, std::move(ranks), record->second});
  }
  return {{"events", events}, {"buffers", buffers}, {"held", held}, {"lines", lines}};
}

ordered_json known_part(const ref::KnownDefect& d, std::uint32_t world_size) {
  return {{"entry", d.entry}, {"name", d.name},   {"title", d.title}, {"origin", d.origin},
          {"since", d.since}, {"fixed", d.fixed}, {"avoid", d.avoid}, {"of_fewer_ranks", of_fewer_ranks(d, world_size)}};
}

ordered_json finding_part(const Report& report, const Finding& f) {
  ordered_json out{{"class", name_of(f.finding)},
                   {"sentence", f.sentence},
                   {"step", f.step},
                   {"event", f.event},
                   {"first_event", f.first_event},
                   {"rank", f.rank},
                   {"buffer", f.buffer},
                   {"pointer", f.pointer},
                   {"elements", ref::elements_text(report.parameters, f.elements)}};
  if (!f.contributions.empty()) out["contributions"] = ref::contributions_text(f.contributions, f.step);
  if (f.lost_weight > 0) out["lost"] = number_json(f.lost_weight);
  if (f.excess_weight > 0) out["excess"] = number_json(f.excess_weight);
  if (f.blame) out["blame"] = blame_json(*f.blame);
  if (f.known) out["known"] = known_part(*f.known, report.world_size);
  if (f.too_large) out["known_not_looked_for"] = known_not_looked_for;
  if (!f.race_command.empty()) out["command"] = f.race_command;
  return out;
}

ordered_json coverage_part(const Report& report) {
  const ref::Coverage& c = report.coverage;
  ordered_json out = ordered_json::array();
  if (!c.nothing.empty()) out.push_back("nothing was judged: " + c.nothing);
  out.push_back(fmt::format("{} of {} snapshots of gradients were judged, and {} of {} windows that a step closes", c.judged, c.snapshots(), c.windows_judged, c.windows_closed));
  if (report.contributions_not_decoded > 0)
    out.push_back(fmt::format("{} of {} contributions were not decoded: they are past the limit of one judgement", report.contributions_not_decoded, report.contributions));
  for (const std::string& rows : inconclusive_rows(report)) out.push_back("inconclusive: " + rows);
  if (report.not_taken_apart > 0)
    out.push_back(fmt::format("{} more snapshots have wrong weights that no finding names: they are past the limit of one ledger", report.not_taken_apart));
  if (report.not_listed > 0) out.push_back(fmt::format("the applied gradients of {} more snapshots are not listed: they are past the limit of one ledger", report.not_listed));
  for (const std::string& sentence : report.runs_leave_out) out.push_back("not judged: " + sentence);
  if (report.open) out.push_back("the script ends with gradients that no step has applied");
  for (const std::string& note : report.driver_notes) out.push_back("the driver of the real framework replaced: " + note);
  return out;
}

std::string as_of_text(const Report& report) {
  std::string out = report.as_of.base;
  for (const auto& [name, value] : report.as_of.switches) out += fmt::format(", {}={}", name, value);
  return out;
}

}  // namespace

std::string Html::text(const Report& report) const {
  ordered_json out{{"kind", "replay"}, {"title", report.scenario}, {"command", report.command}, {"file", report.file}, {"note", report.note}};
  out["engine"] = report.engine;
  out["described"] = report.described;
  out["as_of"] = as_of_text(report);
  out["world_size"] = report.world_size;
  out["elements"] = report.elements;
  out["parameters"] = report.parameters.size();
  out["dtype"] = name_of(report.model_dtype);
  out["producer"] = report.producer;
  out["verdict"] = name_of(report.outcome());
  out["coverage"] = coverage_part(report);
  out["findings"] = ordered_json::array();
  for (const Finding& f : report.findings) out["findings"].push_back(finding_part(report, f));
  out["ledger"] = ledger_part(report);
  if (!report.in_short) out["balance"] = balance_part(report);
  if (report.lanes) out["lanes"] = lanes_part(*report.lanes);
  if (report.accounting) out["accounting"] = accounting_part(*report.accounting);
  return json_line(out);
}

std::string Html::text(const AccountingReport& report) const {
  ordered_json out{{"kind", "accounting"},    {"title", report.scenario}, {"command", report.command},      {"file", report.file},
                   {"engine", report.engine}, {"as_of", report.as_of},    {"world_size", report.world_size}};
  out["accounting"] = accounting_part(report.accounting);
  return json_line(out);
}

}  // namespace gradledger::report
