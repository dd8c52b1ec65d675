#include "search/shrink/edits.h"
#include "search/shrink/layouts.h"
#include "sim/frameworks/search_space.h"

#include <algorithm>
#include <string>
#include <utility>

namespace gradledger::search {
namespace {

using Items = std::vector<ScriptItem>;
using Path = std::vector<std::size_t>;  // indices, block by block

bool is_block(const ScriptItem& item) { return item.kind == ScriptKind::no_sync || item.kind == ScriptKind::coalesce; }

Items unrolled(const Items& items) {
  Items out;
  for (const ScriptItem& item : items) {
    if (item.kind == ScriptKind::repeat) {
      const Items once = unrolled(item.items);
      for (std::uint32_t i = 0; i < item.times; ++i) out.insert(out.end(), once.begin(), once.end());
      continue;
    }
    out.push_back(item);
    if (is_block(item)) out.back().items = unrolled(item.items);
    if (item.kind != ScriptKind::backward) continue;
    out.back().micro_batches = 1;
    for (std::uint32_t i = 1; i < item.micro_batches; ++i) out.push_back(ScriptItem(out.back()));
  }
  return out;
}

template <class Visit>
void for_each_item(Items& items, Visit&& visit) {
  for (ScriptItem& item : items) {
    visit(item);
    for_each_item(item.items, visit);
  }
}

void list_paths(const Items& items, Path& at, std::vector<Path>& out) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    at.push_back(i);
    out.push_back(at);
    list_paths(items[i].items, at, out);
    at.pop_back();
  }
}

Items& holder_of(Scenario& s, const Path& path) {
  Items* items = &s.script;
  for (std::size_t i = 0; i + 1 < path.size(); ++i) items = &(*items)[path[i]].items;
  return *items;
}

// ---- events -----------------------------------------------------------------------------------------------------------------------

bool remove_range(Scenario& s, std::size_t from, std::size_t count) {
  if (count >= s.script.size()) return false;
  s.script.erase(s.script.begin() + static_cast<std::ptrdiff_t>(from), s.script.begin() + static_cast<std::ptrdiff_t>(from + count));
  return true;
}

bool remove_at(Scenario& s, const Path& path) {
  Items& items = holder_of(s, path);
  if (path.size() == 1 && items.size() == 1) return false;
  items.erase(items.begin() + static_cast<std::ptrdiff_t>(path.back()));
  return true;
}

bool unwrap_at(Scenario& s, const Path& path) {
  Items& items = holder_of(s, path);
  const auto at = items.begin() + static_cast<std::ptrdiff_t>(path.back());
  if (!is_block(*at)) return false;
  const Items inside = std::move(at->items);
  items.insert(items.erase(at), inside.begin(), inside.end());
  return true;
}

// The windows of a script: stretches that end with a step.
std::vector<std::pair<std::size_t, std::size_t>> windows_of(const Items& script) {
  std::vector<std::pair<std::size_t, std::size_t>> out;
  std::size_t from = 0;
  for (std::size_t i = 0; i < script.size(); ++i)
    if (script[i].kind == ScriptKind::step || i + 1 == script.size()) {
      out.emplace_back(from, i + 1 - from);
      from = i + 1;
    }
  return out;
}

void add_event_edits(const Scenario& s, std::vector<Edit>& out) {
  for (std::size_t count = s.script.size() / 2; count > 1; count /= 2)
    for (std::size_t from = 0; from + count <= s.script.size(); from += count) out.push_back([from, count](Scenario& x) { return remove_range(x, from, count); });
  std::vector<Path> paths;
  Path at;
  list_paths(s.script, at, paths);
  for (const Path& path : paths) out.push_back([path](Scenario& x) { return remove_at(x, path); });
  for (const Path& path : paths) out.push_back([path](Scenario& x) { return unwrap_at(x, path); });
  // A boundary call and the event that it is about, a backward and its step.
  for (std::size_t i = 0; i + 1 < s.script.size(); ++i) out.push_back([i](Scenario& x) { return remove_range(x, i, 2); });
}

void add_detail_edits(const Scenario& s, std::vector<Edit>& out) {
  std::vector<Path> paths;
  Path at;
  list_paths(s.script, at, paths);
  const auto on_item = [&](auto&& change) {
    for (const Path& path : paths)
      out.push_back([path, change](Scenario& x) {
        ScriptItem& item = holder_of(x, path)[path.back()];
        const ScriptItem before = item;
        change(item);
        return !(item == before);
      });
  };
  on_item([](ScriptItem& i) {
    i.direct = false;
    i.phases = 1;
    i.raises_after.reset();
    i.scale_wrt_gas = true;
    i.order.clear();
    if (i.kind == ScriptKind::backward) i.uses.clear();
  });
  on_item([](ScriptItem& i) { i.ranks.clear(); });
  on_item([](ScriptItem& i) { i.direct = false; });
  on_item([](ScriptItem& i) { i.phases = 1; });
  on_item([](ScriptItem& i) { i.raises_after.reset(); });
  on_item([](ScriptItem& i) {
    if (i.raises_after) i.raises_after = 0;
  });
  on_item([](ScriptItem& i) { i.scale_wrt_gas = true; });
  on_item([](ScriptItem& i) { i.order.clear(); });
  on_item([](ScriptItem& i) {
    if (i.kind == ScriptKind::backward) i.uses.clear();
  });
  on_item([](ScriptItem& i) {
    if (i.kind == ScriptKind::set_gradient) i.factor = 2.0;
  });
  on_item([](ScriptItem& i) { i.planted = PlantedValue::infinity; });
  out.push_back([](Scenario& x) { return std::exchange(x.after_error, AfterError::stop) != AfterError::stop; });
}

// Every backward runs its own forward.
bool drop_forwards(Scenario& s) {
  bool any = false;
  const auto drop = [&](auto&& self, Items& items) -> void {
    any |= std::erase_if(items, [](const ScriptItem& i) { return i.kind == ScriptKind::forward; }) > 0;
    for (ScriptItem& item : items) {
      any |= item.of.has_value();
      item.of.reset();
      self(self, item.items);
    }
  };
  drop(drop, s.script);
  return any && !s.script.empty();
}

// ---- ranks and parameters ------------------------------------------------------------------------------------------------------------

bool remove_parameter(Scenario& s, std::uint32_t p) {
  const std::uint32_t parts = s.parameters[p].part ? s.parameters[p].part->count : 1;
  if (s.parameters.size() == parts || (s.parameters[p].part && s.parameters[p].part->number > 0)) return false;
  const std::string name = s.parameters[p].name;
  if (parts > 1 && !(s.engine.param_groups.empty() && std::none_of(s.parameters.begin(), s.parameters.end(), [](const Parameter& other) { return other.tied_to.has_value(); })))
    return false;
  s.parameters.erase(s.parameters.begin() + p, s.parameters.begin() + p + parts);
  if (const SearchSpace* space = framework_of(s).search_space()) space->forget_parameter(s, name);
  std::erase_if(s.parameters, [&](const Parameter& other) { return other.tied_to == p; });
  for (Parameter& other : s.parameters)
    if (other.tied_to && *other.tied_to > p) --*other.tied_to;
  for (OptimizerGroup& group : s.engine.param_groups) {
    std::erase(group.parameters, p);
    for (std::uint32_t& member : group.parameters) member -= member > p;
  }
  std::erase_if(s.engine.param_groups, [](const OptimizerGroup& group) { return group.parameters.empty(); });
  const auto of_it = [&](auto&& self, Items& items) -> void {
    std::erase_if(items, [&](const ScriptItem& i) { return i.kind == ScriptKind::set_gradient && i.uses.front() == name; });
    for (ScriptItem& item : items) self(self, item.items);
  };
  of_it(of_it, s.script);
  for_each_item(s.script, [&](ScriptItem& item) {
    std::erase(item.uses, name);
    for (auto& [rank, names] : item.order) std::erase(names, name);
    std::erase_if(item.order, [](const auto& entry) { return entry.second.empty(); });
  });
  return true;
}

// Parameters take the defaults one by one, sizes get smaller.
void add_parameter_edits(const Scenario& s, std::vector<Edit>& out) {
  for (std::uint32_t p = static_cast<std::uint32_t>(s.parameters.size()); p-- > 0;) out.push_back([p](Scenario& x) { return remove_parameter(x, p); });
  const auto on_parameter = [&](auto&& change) {
    for (std::uint32_t p = 0; p < s.parameters.size(); ++p)
      out.push_back([p, change](Scenario& x) {
        if (x.parameters[p].part) return false;
        const Parameter before = x.parameters[p];
        change(x.parameters[p]);
        return !(x.parameters[p] == before);
      });
  };
  on_parameter([](Parameter& p) { p.used_by.reset(); });
  on_parameter([](Parameter& p) { p.trainable = true; });
  on_parameter([](Parameter& p) { p.tied_to.reset(); });
  on_parameter([](Parameter& p) { p.on_side_stream = false; });
  on_parameter([](Parameter& p) { p.hooked_outputs = 1; });
  on_parameter([](Parameter& p) { p.expert.reset(); });
}

void add_size_edits(const Scenario& s, std::vector<Edit>& out) {
  for (std::uint32_t p = 0; p < s.parameters.size(); ++p)
    for (std::uint64_t numel : {std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{4}, std::uint64_t{8}, s.parameters[p].numel / 2})
      out.push_back([p, numel](Scenario& x) {
        if (numel == 0 || numel >= x.parameters[p].numel) return false;
        x.parameters[p].numel = numel;
        for (Parameter& other : x.parameters)
          if (other.part && other.name == x.parameters[p].name) other.numel = numel;
        for (Parameter& other : x.parameters)
          if (other.tied_to == p) other.numel = numel;
        return true;
      });
}

}  // namespace

// With a layout, fewer data-parallel ranks.
bool with_fewer_ranks(Scenario& s, std::uint32_t size) {
  if (s.layout && !lay_out(s, s.layout->stated(), size)) return false;
  const auto shrink = [&](auto&& self, Items& items) -> void {
    std::erase_if(items, [&](ScriptItem& item) {
      const bool named = !item.ranks.empty();
      std::erase_if(item.ranks, [&](std::uint32_t r) { return r >= size; });
      std::erase_if(item.order, [&](const auto& entry) { return entry.first >= size; });
      return named && item.ranks.empty();
    });
    for (ScriptItem& item : items) self(self, item.items);
  };
  shrink(shrink, s.script);
  s.world_size = size;
  return !s.script.empty();
}

void unroll(Scenario& scenario) { scenario.script = unrolled(scenario.script); }

void make_canonical(Scenario& s) {
  for_each_item(s.script, [&](ScriptItem& item) {
    if (item.ranks.size() == s.world_size) item.ranks.clear();
  });
}

std::size_t events_of(const Items& items) {
  std::size_t count = 0;
  for (const ScriptItem& item : items)
    if (item.kind != ScriptKind::overflow)
      count += is_block(item) ? 2 + events_of(item.items) : item.kind == ScriptKind::repeat ? item.times * events_of(item.items) : item.micro_batches;
  return count;
}

void add_option_edits(const Scenario& scenario, std::vector<Edit>& out);  // edits_options.cpp

std::vector<Edit> edits_of(const Scenario& s) {
  std::vector<Edit> out;
  for (const auto& [from, count] : windows_of(s.script)) out.push_back([from = from, count = count](Scenario& x) { return remove_range(x, from, count); });
  for (std::uint32_t size = 1; size < s.world_size; ++size) out.push_back([size](Scenario& x) { return with_fewer_ranks(x, size); });
  add_event_edits(s, out);
  out.push_back(drop_forwards);
  add_parameter_edits(s, out);
  add_detail_edits(s, out);
  add_option_edits(s, out);
  add_size_edits(s, out);
  return out;
}

}  // namespace gradledger::search
