// Text of any bytes, as the formats of reports take it.
#pragma once

#include <string>
#include <string_view>

namespace gradledger::report {

// Bytes that are no UTF-8 become the sign for that.
std::string valid_utf8(std::string_view text);

// Likewise, on one line and without control characters: "\x1b" stands for one, "\n" for the end of a line.
std::string printable_line(std::string_view text);

// Likewise, with the ends of lines and tabs as they are: what XML has a form for.
std::string printable_text(std::string_view text);

// A path as a reference of a URI: relative as it is, absolute with its scheme.
std::string path_uri(const std::string& path);

}  // namespace gradledger::report
