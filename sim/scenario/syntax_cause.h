// Why a text is no JSON, where that is one of the usual reasons.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace gradledger {

// "; a comma stands before the closing bracket": what people write who know other formats. "" where it is none of them.
// byte: the number of the first one that the parser refused, from 1 on, as nlohmann::json counts.
std::string syntax_cause(std::string_view text, std::size_t byte);

}  // namespace gradledger
