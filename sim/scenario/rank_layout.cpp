#include "sim/scenario/rank_layout.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>

namespace gradledger {
namespace {

constexpr std::array<std::string_view, 8> in_an_order{"tp", "cp", "sp", "ep", "dp", "shard", "replicate", "pp"};

template <class Names>
bool among(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string listed() {
  std::string out;
  for (const std::string_view name : in_an_order) out += (out.empty() ? "" : ", ") + std::string(name);
  return out;
}

std::vector<std::string> cut(const std::string& order) {
  std::vector<std::string> out(1);
  for (const char c : order) {
    if (c == '-') out.emplace_back();
    else out.back() += c;
  }
  return out;
}

// "replicate" and "shard" are "dp" in two parts.
bool has_mesh(const std::map<std::string, std::uint32_t>& sizes, const std::vector<std::string>& names) {
  return sizes.contains("replicate") || sizes.contains("shard") || among(names, "replicate") || among(names, "shard");
}

std::vector<std::string> usual(const std::map<std::string, std::uint32_t>& sizes) {
  std::vector<std::string> out{"tp", "cp"};
  if (sizes.contains("sp")) out.emplace_back("sp");
  out.emplace_back("ep");
  if (has_mesh(sizes, {})) out.insert(out.end(), {"shard", "replicate"});
  else out.emplace_back("dp");
  out.emplace_back("pp");
  return out;
}

std::optional<InputError> order_problem(const std::vector<std::string>& names, const std::map<std::string, std::uint32_t>& sizes) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (!among(in_an_order, names[i]))
      return InputError{"/layout/order", "names \"" + names[i] + "\", which is no dimension; expected some of " + listed() + ", with - between them"};
    if (std::find(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(i), names[i]) != names.begin() + static_cast<std::ptrdiff_t>(i))
      return InputError{"/layout/order", "names " + names[i] + " again; expected each dimension once"};
  }
  if (has_mesh(sizes, names) && (sizes.contains("dp") || among(names, "dp")))
    return InputError{"/layout", "has dp beside replicate or shard, which are its parts; expected one or the other"};
  for (const auto& [name, size] : sizes)
    if (size > 1 && name != "etp" && !among(names, name))
      return InputError{"/layout/" + name, "is " + std::to_string(size) + ", but /layout/order does not say where its ranks lie; expected " + name + " in it"};
  return std::nullopt;
}

}  // namespace

bool RankLayout::is_dimension(std::string_view name) { return name == "etp" || among(in_an_order, name); }

// The first dimension's ranks are neighbours.
void RankLayout::lay(Grid& grid) {
  std::uint32_t stride = 1;
  for (Dimension& dimension : grid) {
    dimension.stride = stride;
    stride *= dimension.size;
  }
}

Result<RankLayout> RankLayout::of(const std::string& order, const std::map<std::string, std::uint32_t>& sizes, std::uint32_t world_size) {
  RankLayout out;
  out.order_ = order;
  out.sizes_ = sizes;
  out.world_size_ = world_size;
  const std::vector<std::string> names = order.empty() ? usual(sizes) : cut(order);
  if (auto problem = order_problem(names, sizes)) return *problem;
  // What is left of the world is data-parallel.
  const std::string rest = !has_mesh(sizes, names) ? "dp" : !sizes.contains("shard") ? "shard" : "replicate";
  std::uint64_t product = 1;
  std::string factors;
  for (const std::string_view name : in_an_order) {
    const auto size = sizes.find(std::string(name));
    if (size == sizes.end() || name == "ep") continue;
    product *= size->second;
    factors += (factors.empty() ? "" : " x ") + std::string(name) + " " + std::to_string(size->second);
    if (product > world_size) break;
  }
  const bool left = !sizes.contains(rest) && product <= world_size;
  if (left ? world_size % product != 0 : product != world_size)
    return InputError{"/layout", "comes to " + std::to_string(product) + " ranks (" + factors + "); expected " + (left ? "a divisor of" : "as many as") + " world_size, " +
                                     std::to_string(world_size)};
  const auto size_of = [&](const std::string& name) {
    if (left && name == rest) return static_cast<std::uint32_t>(world_size / product);
    const auto size = sizes.find(name);
    return size == sizes.end() ? 1 : size->second;
  };
  if (size_of(rest) > 1 && !among(names, rest))
    return InputError{"/layout/order", "does not say where the " + std::to_string(size_of(rest)) + " ranks of " + rest + " lie; expected " + rest + " in it"};
  for (const std::string& name : names)
    if (name != "ep") out.dense_.push_back({name, size_of(name), 1});
  for (const std::string_view name : {"tp", "cp", "pp"})
    if (!among(names, name)) out.dense_.push_back({std::string(name), 1, 1});
  lay(out.dense_);
  if (!sizes.contains("ep") && !sizes.contains("etp")) return out;
  auto grid = experts(names, sizes, out.size("tp"), out.size("pp"), world_size);
  if (!grid) return grid.error();
  out.expert_ = std::move(grid).value();
  const auto stride_of_stages = [](const Grid& in) { return std::find_if(in.begin(), in.end(), [](const Dimension& d) { return d.name == "pp"; })->stride; };
  if (out.size("pp") > 1 && stride_of_stages(out.dense_) != stride_of_stages(out.expert_))
    return InputError{"/layout/order", "has the stages of experts on other ranks than those of the rest; expected pp last, or sizes that agree"};
  return out;
}

// The same ranks, cut for experts: data-parallel and context-parallel ranks together are theirs.
Result<RankLayout::Grid> RankLayout::experts(const std::vector<std::string>& names, const std::map<std::string, std::uint32_t>& sizes, std::uint32_t tensor, std::uint32_t stages,
                                             std::uint32_t world_size) {
  const std::uint32_t shares = sizes.contains("ep") ? sizes.at("ep") : 1, cut_in = sizes.contains("etp") ? sizes.at("etp") : tensor;
  if (!among(names, "dp")) return InputError{"/layout/order", "has replicate or shard, and experts whose data-parallel ranks are others; expected dp"};
  if (shares > 1 && !among(names, "ep")) return InputError{"/layout/order", "does not say where the ranks of ep lie; expected ep in it"};
  const std::uint64_t product = std::uint64_t{shares} * cut_in * stages;
  if (world_size % product != 0)
    return InputError{"/layout/ep", "comes to " + std::to_string(product) + " ranks with etp " + std::to_string(cut_in) + " and pp " + std::to_string(stages) +
                                        "; expected a divisor of world_size, " + std::to_string(world_size)};
  Grid out;
  for (const std::string& name : names) {
    if (name == "tp") out.push_back({"etp", cut_in, 1});
    if (name == "ep") out.push_back({"ep", shares, 1});
    if (name == "dp") out.push_back({"expert_dp", static_cast<std::uint32_t>(world_size / product), 1});
    if (name == "pp") out.push_back({"pp", stages, 1});
  }
  for (const std::string_view name : {"etp", "ep", "pp"})
    if (std::none_of(out.begin(), out.end(), [&](const Dimension& d) { return d.name == name; })) out.push_back({std::string(name), name == "etp" ? cut_in : 1, 1});
  lay(out);
  return out;
}

const RankLayout::Dimension* RankLayout::find(std::string_view name) const {
  for (const Grid* grid : {&dense_, &expert_})
    for (const Dimension& dimension : *grid)
      if (dimension.name == name) return &dimension;
  return nullptr;
}

bool RankLayout::has(std::string_view dimension) const { return find(dimension) != nullptr; }

std::uint32_t RankLayout::size(std::string_view dimension) const {
  const Dimension* found = find(dimension);
  return found ? found->size : 1;
}

std::uint32_t RankLayout::place(std::string_view dimension, std::uint32_t rank) const {
  const Dimension* found = find(dimension);
  return found ? rank / found->stride % found->size : 0;
}

// Ranks that have the same place in every other dimension, by their first.
RankLayout::Sets RankLayout::sets(const Grid& grid, const std::vector<std::string_view>& names) const {
  Sets by_first(world_size_);
  for (std::uint32_t r = 0; r < world_size_; ++r) {
    std::uint32_t first = r;
    for (const Dimension& dimension : grid)
      if (among(names, dimension.name)) first -= r / dimension.stride % dimension.size * dimension.stride;
    by_first[first].push_back(r);
  }
  std::erase_if(by_first, [](const auto& set) { return set.empty(); });
  return by_first;
}

std::map<std::string, RankLayout::Sets> RankLayout::groups() const {
  std::map<std::string, Sets> out;
  for (const Dimension& dimension : dense_) out[dimension.name] = sets(dense_, {dimension.name});
  out["dp"] = sets(dense_, {"dp", "replicate", "shard"});
  out["dp_cp"] = sets(dense_, {"dp", "replicate", "shard", "cp", "sp"});
  out["mp"] = sets(dense_, {"tp", "pp"});
  out["tp_cp"] = sets(dense_, {"tp", "cp", "sp"});
  out["tp_dp_cp"] = sets(dense_, {"tp", "dp", "replicate", "shard", "cp", "sp"});
  // First and last stage, which share an embedding; a stage between them is by itself.
  for (const std::vector<std::uint32_t>& stages : out["pp"]) {
    out["embedding"].push_back({stages.front()});
    if (stages.size() > 1) out["embedding"].back().push_back(stages.back());
    for (std::size_t i = 1; i + 1 < stages.size(); ++i) out["embedding"].push_back({stages[i]});
  }
  if (expert_.empty()) return out;
  for (const Dimension& dimension : expert_)
    if (dimension.name != "pp") out[dimension.name] = sets(expert_, {dimension.name});
  out["expert_mp"] = sets(expert_, {"etp", "ep", "pp"});
  return out;
}

}  // namespace gradledger
