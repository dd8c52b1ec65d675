// What decides gradients in the second version: arguments of megatron_fsdp.experimental.fully_shard, and how a model is cut into modules.
#pragma once

#include <optional>
#include <string>

#include "sim/frameworks/megatron_fsdp/config.h"

namespace gradledger::megatron_fsdp::v2 {

// Everything is sharded over the ranks; with a mesh over those of one shard, and copied between shards.
struct V2Config {
  MixedPrecision mixed_precision;
  Wrap wrap = Wrap::layers;
  Units units;
  std::optional<Mesh> mesh;
  bool calls_unused_units = false;  // a forward calls modules none of whose parameters it uses

  bool operator==(const V2Config&) const = default;
  std::string json_text() const;
};

}  // namespace gradledger::megatron_fsdp::v2
