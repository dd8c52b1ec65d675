// The one shape that findings have in JSON: docs/schemas/common.schema.json.
#include <fmt/format.h>

#include "report/json_parts.h"
#include "report/words.h"

namespace gradledger::report {
namespace {

ordered_json contribution_json(const Contribution& c) { return {{"step", c.step}, {"rank", c.rank}, {"micro_batch", c.micro_batch}}; }

void add_contributions(ordered_json& out, const std::vector<ref::Miscounted>& contributions) {
  ordered_json listed = ordered_json::array();
  std::vector<Weighed> all;
  all.reserve(contributions.size());
  for (const ref::Miscounted& m : contributions) {
    all.push_back({m.contribution, m.expected, m.observed});
    if (listed.size() == listed_contributions_max) continue;
    listed.push_back(contribution_json(m.contribution));
    listed.back()["expected"] = number_json(m.expected);
    listed.back()["observed"] = number_json(m.observed);
  }
  out["contributions_not_listed"] = contributions.size() - listed.size();
  out["contributions"] = std::move(listed);
  out["contribution_blocks"] = blocks_json(all, [](ordered_json&, const Weighed&) {});
}

ordered_json alike_json(const std::vector<Contribution>& contributions) {
  ordered_json out = ordered_json::array();
  for (const Contribution& c : contributions) out.push_back(contribution_json(c));
  return out;
}

ordered_json worst_json(const std::vector<std::string>& parameters, const ref::WorstElement& w) {
  return {{"parameter", parameters.at(w.parameter)},
          {"element", w.element},
          {"observed", number_json(w.observed)},
          {"observed_hex", fmt::format("{:a}", w.observed)},
          {"observed_bits", fmt::format("0x{:0{}x}", w.bits, 2 * size_of(w.dtype))},
          {"expected", number_json(w.expected)},
          {"expected_hex", fmt::format("{:a}", w.expected)},
          {"error", number_json(w.error())},
          {"bound", number_json(w.bound)},
          {"error_over_bound", w.bound > 0 ? number_json(w.error() / w.bound) : ordered_json(nullptr)}};
}

ordered_json quantity_json(const ref::Quantity& q) {
  return {{"name", q.name}, {"observed", number_json(q.observed)}, {"due", number_json(q.due)}, {"bound", number_json(q.bound)}};
}

ordered_json race_json(const Finding& f) {
  ordered_json out = pair_json(f.race->record);
  out["in_bytes"] = f.race->record.in_bytes;
  out["other_pairs"] = f.race->others;
  out["further"] = ordered_json::array();
  for (const RaceRecord& more : f.race->further) {
    out["further"].push_back(pair_json(more));
    out["further"].back()["buffer"] = more.buffer;
  }
  out["schedules_tried"] = f.race->schedules_tried;
  out["schedule_seed"] = number_or_null(f.race->schedule_seed);
  out["command"] = or_null(f.race->schedule_seed ? f.race_command : "");
  return out;
}

ordered_json known_json(const ref::KnownDefect& d) {
  return {{"entry", d.entry},          {"name", d.name},  {"title", d.title}, {"origin", or_null(d.origin)}, {"since", or_null(d.since)}, {"fixed", or_null(d.fixed)},
          {"avoid", or_null(d.avoid)}, {"ranks", d.ranks}};
}

}  // namespace

ordered_json pair_json(const RaceRecord& r) {
  return {{"begin", r.begin},
          {"end", r.end},
          {"first", operation_json(r.first)},
          {"second", operation_json(r.second)},
          {"missing_wait", {{"stream", r.second.stream}, {"for", r.first.stream}}}};
}

ordered_json finding_json(const Finding& f, const FoundIn& in) {
  const ordered_json none(nullptr);
  ordered_json out;
  out["class"] = name_of(f.finding);
  out["sentence"] = f.sentence;
  out["scenario"] = in.scenario;
  out["file"] = or_null(in.file);
  out["pointer"] = f.pointer;
  out.update(position_json(f.at));
  out["step"] = f.step;
  out["event"] = f.event;
  out["first_event"] = f.first_event;
  out["rank"] = f.rank;
  out["buffer"] = f.buffer;
  out["role"] = name_of(f.role);
  out["elements"] = elements_json(in.parameters, f.elements);
  add_contributions(out, f.contributions);
  out["alike"] = alike_json(f.alike);
  out["lost_weight"] = number_json(f.lost_weight);
  out["excess_weight"] = number_json(f.excess_weight);
  out["as_if"] = or_null(f.as_if);
  out["also_in"] = f.also_in;
  out["worst"] = f.worst ? worst_json(in.parameters, *f.worst) : none;
  out["quantity"] = f.quantity ? quantity_json(*f.quantity) : none;
  out["race"] = f.race ? race_json(f) : none;
  out["blame"] = f.blame ? blame_json(*f.blame) : none;
  out["known"] = f.known ? known_json(*f.known) : none;
  out["known_too_large"] = f.too_large;
  out["occurrences"] = f.occurrences;
  out["seed"] = number_or_null(in.seed);
  out["fingerprint"] = fingerprint(in.scenario, name_of(f.finding), in.engine, buffer_family(f.buffer));
  return out;
}

ordered_json findings_json(const std::vector<Finding>& findings, const FoundIn& in) {
  ordered_json out = ordered_json::array();
  for (const Finding& f : findings) out.push_back(finding_json(f, in));
  return out;
}

}  // namespace gradledger::report
