// Megatron-Core's history, as lists, audits and blame see it. history/audited.json says how each release was compared with the one before it.
#pragma once

#include <span>
#include <string_view>

#include "sim/frameworks/history.h"

namespace gradledger::megatron {

// The releases that were compared, patches among them, oldest first.
std::span<const std::string_view> compared_releases();

const History& history();

}  // namespace gradledger::megatron
