#include "search/shrink/shrink.h"

#include <memory>
#include <utility>

#include <rapidcheck/seq/Create.h>
#include <rapidcheck/seq/Transform.h>
#include <rapidcheck/shrinkable/Create.h>

#include "sim/load.h"
#include "sim/scenario/parse.h"

namespace gradledger::search {
namespace {

// By the reader of files, so that whatever comes out can be written to one.
bool served(const Scenario& scenario) {
  const auto read = read_scenario(serialise(scenario), ".");
  return read.ok() && *read == scenario && make_timeline(scenario).ok();
}

rc::Seq<Scenario> simpler(const Scenario& scenario) {
  const auto edits = std::make_shared<const std::vector<Edit>>(edits_of(scenario));
  return rc::seq::mapMaybe(rc::seq::range(std::size_t{0}, edits->size()), [edits, scenario](std::size_t i) -> rc::Maybe<Scenario> {
    Scenario next = scenario;
    if (!(*edits)[i](next)) return rc::Nothing;
    make_canonical(next);
    if (!served(next)) return rc::Nothing;
    return next;
  });
}

}  // namespace

rc::Shrinkable<Scenario> shrinkable(Scenario scenario) {
  unroll(scenario);
  return rc::shrinkable::shrinkRecur(std::move(scenario), [](const Scenario& s) { return simpler(s); });
}

Shrunk shrink(const Scenario& scenario, const std::function<bool(const Scenario&)>& shows, const ShrinkLimits& limits) {
  Shrunk out;
  rc::Shrinkable<Scenario> node = shrinkable(scenario);
  while (!out.minimal) {
    out.minimal = true;
    rc::Seq<rc::Shrinkable<Scenario>> steps = node.shrinks();
    for (auto next = steps.next(); next; next = steps.next()) {
      if (out.tried == limits.tried_max || limits.stop()) {
        out.scenario = node.value();
        out.minimal = false;
        return out;
      }
      ++out.tried;
      if (!shows(next->value())) continue;
      node = std::move(*next);
      out.minimal = false;
      break;
    }
  }
  out.scenario = node.value();
  return out;
}

}  // namespace gradledger::search
