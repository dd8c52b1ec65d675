// Where in a document the items inside a block stand.
#pragma once

#include <string>

#include "sim/scenario/script.h"

namespace gradledger {

// here: the pointer of the block, or of a repeat.
inline std::string pointer_of_items(const ScriptItem& block, const std::string& here) {
  if (block.kind == ScriptKind::no_sync) return here + (block.ranks.empty() ? "/no_sync" : "/no_sync/of");
  return here + (block.kind == ScriptKind::coalesce ? "/coalesce" : "/repeat/of");
}

}  // namespace gradledger
