#include "tests/docs/page_commands.h"

#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "tests/docs/markdown.h"
#include "tests/support/temporary_folder.h"

namespace gradledger::testing {
namespace {

namespace fs = std::filesystem;

// The pieces of `expected` between its "...", one behind the other, from the first character to the last.
bool line_matches(const std::string& expected, const std::string& line) {
  std::size_t begin = 0, at = 0;
  for (;;) {
    const std::size_t end = expected.find("...", begin);
    const std::string piece = expected.substr(begin, end == std::string::npos ? end : end - begin);
    if (end == std::string::npos) return begin == 0 ? line == piece : line.size() >= at + piece.size() && line.ends_with(piece);
    const std::size_t found = line.find(piece, at);
    if (found == std::string::npos || (begin == 0 && found != 0)) return false;
    at = found + piece.size();
    begin = end + 3;
  }
}

// A shell for one page: each command has the folder of the page, and the exit code of the one before.
class Shell {
 public:
  explicit Shell(fs::path folder) : folder_(std::move(folder)) {}

  std::vector<std::string> run(const std::string& command) {
    const fs::path script = folder_ / ".command";
    // Long verbs say every minute how far they are, which a slow machine must not fail by.
    std::ofstream(script) << "cd '" << folder_.string() << "'\nunset GRADLEDGER_PYTHON GITHUB_STEP_SUMMARY\nexport NO_COLOR=1 TERM=dumb LC_ALL=C\n"
                          << "gradledger() {\n  case \"$1\" in\n"
                          << "    -*|completion|man) '" GRADLEDGER_COMMAND "' \"$@\" ;;\n"
                          << "    fuzz|explore|gate) '" GRADLEDGER_COMMAND "' \"$@\" --width 90 2>/dev/null ;;\n"
                          << "    *) '" GRADLEDGER_COMMAND "' \"$@\" --width 90 ;;\n  esac\n}\n"
                          << "(exit " << code_ << ")\n"
                          << command << "\n";
    std::string printed;
    FILE* pipe = popen(("sh '" + script.string() + "' 2>&1").c_str(), "r");
    EXPECT_NE(pipe, nullptr);
    if (!pipe) return {};
    char buffer[4096];
    while (const std::size_t n = fread(buffer, 1, sizeof buffer, pipe)) printed.append(buffer, n);
    const int status = pclose(pipe);
    code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 255;
    fs::remove(script);
    return lines_of(printed);
  }

 private:
  fs::path folder_;
  int code_ = 0;
};

std::string joined(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) out += line + "\n";
  return out;
}

// The lines of one block ```console: commands with what they print.
void run_block(Shell& shell, const std::vector<std::string>& block, PageRun& into) {
  for (std::size_t i = 0; i < block.size();) {
    if (!block[i].starts_with("$ ")) {
      into.differing.push_back("a block begins with a line that is no command: " + block[i++]);
      continue;
    }
    std::string command = block[i].substr(2);
    into.page += block[i++] + "\n";
    while (command.ends_with("\\") && i < block.size()) {
      command += "\n" + block[i];
      into.page += block[i++] + "\n";
    }
    std::vector<std::string> expected;
    while (i < block.size() && !block[i].starts_with("$ ")) expected.push_back(block[i++]);
    const std::vector<std::string> printed = shell.run(command);
    ++into.commands;
    const bool same = matches(expected, printed);
    if (!same) into.differing.push_back("$ " + command + "\nprints\n" + joined(printed) + "and the page has\n" + joined(expected));
    into.page += joined(same ? expected : printed);
  }
}

}  // namespace

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) out.push_back(line);
  return out;
}

bool matches(const std::vector<std::string>& expected, const std::vector<std::string>& printed) {
  std::vector<std::vector<std::string>> parts{{}};  // between the lines "..."
  for (const std::string& line : expected) {
    if (line == "...") parts.emplace_back();
    else parts.back().push_back(line);
  }
  std::size_t at = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::vector<std::string>& part = parts[i];
    if (printed.size() < at + part.size()) return false;
    const std::size_t latest = printed.size() - part.size(), last = i == 0 ? 0 : latest;
    std::size_t place = i + 1 == parts.size() ? latest : at;
    while (place <= last && !std::equal(part.begin(), part.end(), printed.begin() + static_cast<std::ptrdiff_t>(place), line_matches)) ++place;
    if (place > last) return false;
    at = place + part.size();
  }
  return true;
}

PageRun run_page(const fs::path& page) {
  const TemporaryFolder folder;
  fs::create_directory_symlink(source_folder / "scenarios", folder.path() / "scenarios");
  Shell shell(folder.path());
  PageRun out;
  const std::vector<std::string> lines = lines_of(text_of(page));
  for (std::size_t i = 0; i < lines.size(); ++i) {
    out.page += lines[i] + "\n";
    if (!lines[i].starts_with("```")) continue;
    std::istringstream info(lines[i].substr(3));
    std::string language, name;
    info >> language >> name;
    std::vector<std::string> block;
    for (++i; i < lines.size() && !lines[i].starts_with("```"); ++i) block.push_back(lines[i]);
    if (language == "console") {
      run_block(shell, block, out);
    } else {
      out.page += joined(block);
      if (!name.empty()) {
        fs::create_directories((folder.path() / name).parent_path());
        std::ofstream(folder.path() / name) << joined(block);
      }
    }
    if (i < lines.size()) out.page += lines[i] + "\n";
  }
  return out;
}

}  // namespace gradledger::testing
