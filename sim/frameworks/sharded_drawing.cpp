#include "sim/frameworks/sharded_drawing.h"

namespace gradledger {

Units draw_units(Draws& draws, const Scenario& scenario, std::vector<std::string>* nested) {
  Units units;
  units.emplace();
  bool follows = false;
  for (const Parameter& p : scenario.parameters) {
    const bool of_the_root = draws.one_in(3);
    if (!of_the_root && (!follows || draws.one_in(2))) units->emplace_back();
    if (!of_the_root) units->back().push_back(p.name);
    else if (nested != nullptr && draws.one_in(4)) nested->push_back(p.name);
    follows = !of_the_root;
  }
  return units;
}

Mesh draw_mesh(Draws& draws, std::uint32_t shard_min, Scenario& out) {
  std::vector<std::uint32_t> sizes;  // of a shard
  for (std::uint32_t size = shard_min; size <= out.world_size; ++size)
    if (out.world_size % size == 0) sizes.push_back(size);
  const std::uint32_t shard = sizes[draws.below(static_cast<std::uint32_t>(sizes.size()))], replicas = out.world_size / shard;
  auto &of_shards = out.groups["shard"], &of_replicas = out.groups["replicate"];
  of_shards.resize(replicas);
  of_replicas.resize(shard);
  for (std::uint32_t r = 0; r < out.world_size; ++r) {
    of_shards[r / shard].push_back(r);
    of_replicas[r % shard].push_back(r);
  }
  return Mesh{"replicate", "shard"};
}

void draw_wider(Draws draws, bool taken, std::optional<Dtype>& param_dtype, std::optional<Dtype>& reduce_dtype) {
  if (!taken || !draws.one_in(3)) return;
  if (draws.one_in(2)) param_dtype = Dtype::float32;
  else reduce_dtype = Dtype::float32;
}

}  // namespace gradledger
