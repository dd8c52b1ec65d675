// The engines as a campaign names them.
#pragma once

#include <span>
#include <string_view>

#include "sim/base/result.h"
#include "sim/frameworks/search_space.h"

namespace gradledger::search {

using gradledger::Variant;

// Of the framework that scenarios have where they name none: what is searched where nobody names an engine.
std::span<const Variant> variants();

// Of any framework. Errors name the nearest variant, if one is near.
Result<const Variant*> variant_named(std::string_view name, std::string_view where);

// The framework whose engine it is.
const Framework& framework_of(const Variant& variant);

}  // namespace gradledger::search
