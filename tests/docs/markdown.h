// The documents as tests read them: sections, tables, fenced blocks, links.
#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace gradledger::testing {

inline const std::filesystem::path source_folder = GRADLEDGER_SOURCE_DIR;

inline std::string text_of(const std::filesystem::path& file) {
  std::ifstream stream(file);
  EXPECT_TRUE(stream) << file;
  std::stringstream text;
  text << stream.rdbuf();
  return text.str();
}

struct Fence {
  std::string language, name;  // ```json minimal.json
  std::string text;
};

using Cells = std::vector<std::string>;

// What stands between a heading and the next one, of whatever level.
struct Section {
  std::string heading;
  std::string text;         // fenced blocks left out
  std::vector<Cells> rows;  // of all tables, without the lines that head them
};

struct Document {
  std::vector<Section> sections;
  std::vector<Fence> fences;
  std::vector<std::string> anchors;
  std::vector<std::string> links;

  std::string text() const {
    std::string out;
    for (const Section& s : sections) out += s.heading + "\n" + s.text;
    return out;
  }
  const Section* section(const std::string& heading) const {
    for (const Section& s : sections)
      if (s.heading == heading) return &s;
    return nullptr;
  }
};

inline std::string trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(" \t");
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

inline Cells cells_of(const std::string& line) {
  Cells out;
  std::size_t begin = 1;
  for (std::size_t end = line.find('|', begin); end != std::string::npos; begin = end + 1, end = line.find('|', begin)) out.push_back(trimmed(line.substr(begin, end - begin)));
  return out;
}

inline std::string without(const std::string& text, const std::string& what) { return std::regex_replace(text, std::regex(what), ""); }

// As the web pages make them: lower case, letters, digits, hyphens and underscores, spaces to hyphens.
inline std::string anchor_of(const std::string& heading) {
  std::string out;
  for (unsigned char c : heading) {
    if (std::isalnum(c) || c == '-' || c == '_') out += static_cast<char>(std::tolower(c));
    else if (c == ' ') out += '-';
  }
  return out;
}

// The spans between backticks.
inline std::vector<std::string> code_in(const std::string& text) {
  std::vector<std::string> out;
  const std::regex span("`([^`]+)`");
  for (std::sregex_iterator at(text.begin(), text.end(), span), end; at != end; ++at) out.push_back((*at)[1]);
  return out;
}

inline Document read_document(const std::filesystem::path& file) {
  Document out;
  out.sections.push_back({});
  std::map<std::string, int> anchors;
  std::istringstream lines(text_of(file));
  std::string line;
  bool fenced = false, in_table = false;
  while (std::getline(lines, line)) {
    if (line.starts_with("```")) {
      fenced = !fenced;
      if (fenced) {
        std::istringstream info(line.substr(3));
        Fence fence;
        info >> fence.language >> fence.name;
        out.fences.push_back(fence);
      }
      continue;
    }
    if (fenced) {
      out.fences.back().text += line + "\n";
      continue;
    }
    if (line.starts_with("#")) {
      out.sections.push_back({trimmed(line.substr(line.find_first_not_of('#'))), "", {}});
      const std::string anchor = anchor_of(out.sections.back().heading);
      const int before = anchors[anchor]++;
      out.anchors.push_back(before ? anchor + "-" + std::to_string(before) : anchor);
      continue;
    }
    out.sections.back().text += line + "\n";
    if (line.starts_with("|") && line.find_first_not_of("|-: ") != std::string::npos) {
      if (in_table) out.sections.back().rows.push_back(cells_of(line));
      in_table = true;
    } else if (!line.starts_with("|")) {
      in_table = false;
    }
  }
  const std::regex link(R"(\[[^\]]*\]\(([^)\s]+)\))");
  const std::string prose = without(out.text(), "`[^`]*`");
  for (std::sregex_iterator at(prose.begin(), prose.end(), link), end; at != end; ++at) out.links.push_back((*at)[1]);
  return out;
}

// Those in the root, and everything below docs/.
inline std::vector<std::filesystem::path> all_documents() {
  std::vector<std::filesystem::path> out;
  for (const auto& entry : std::filesystem::directory_iterator(source_folder))
    if (entry.path().extension() == ".md") out.push_back(entry.path());
  for (const auto& entry : std::filesystem::recursive_directory_iterator(source_folder / "docs"))
    if (entry.path().extension() == ".md") out.push_back(entry.path());
  std::sort(out.begin(), out.end());
  return out;
}

// Whether some row of some table holds these cells first, code marks aside.
inline bool has_row(const Document& document, const Cells& cells) {
  for (const Section& s : document.sections)
    for (const Cells& row : s.rows) {
      if (row.size() < cells.size()) continue;
      bool same = true;
      for (std::size_t i = 0; i < cells.size(); ++i) same = same && without(row[i], "`") == without(cells[i], "`");
      if (same) return true;
    }
  return false;
}

}  // namespace gradledger::testing
