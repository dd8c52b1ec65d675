// Rules of the source tree that a compiler does not know. Each search is also shown to find what it looks for.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include <boost/regex.hpp>

#include "tests/tidy/source_tree.h"

namespace gradledger::testing {
namespace {

constexpr std::size_t file_lines_max = 400;
constexpr std::size_t function_lines_max = 60;

// This file names what it forbids.
bool names_rules(const SourceFile& file) { return file.in("tests/tidy"); }

std::string place(const SourceFile& file, std::size_t line) { return file.path + ":" + std::to_string(line + 1) + ": " + file.lines[line]; }

// ---- who may include whom -----------------------------------------------------------------------------------------------------------

// Folders and files that a folder may include from; the longest matching folder decides.
const std::map<std::string, std::vector<std::string>>& may_include() {
  static const std::map<std::string, std::vector<std::string>> table{
      {"sim/base", {"sim/base"}},
      {"sim/numeric", {"sim/numeric", "sim/base"}},
      {"sim/scenario", {"sim/scenario", "sim/base", "sim/numeric/dtype.h", "sim/numeric/dtype_names.h"}},
      {"sim/trace", {"sim/trace", "sim/scenario", "sim/base", "sim/numeric/dtype.h"}},
      {"sim/program", {"sim/program", "sim/trace", "sim/base", "sim/numeric"}},
      {"sim/engine", {"sim/engine", "sim/program", "sim/scenario", "sim/base", "sim/numeric/dispatch_dtype.h"}},
      {"sim/frameworks", {"sim/frameworks", "sim/engine", "sim/program", "sim/scenario", "sim/base", "sim/numeric/dtype.h", "sim/numeric/dtype_names.h"}},
      {"sim/execution", {"sim/execution", "sim/frameworks/framework.h", "sim/engine", "sim/program", "sim/trace", "sim/scenario", "sim/base", "sim/numeric"}},
      {"sim/producers", {"sim/producers", "sim/execution", "sim/frameworks/framework.h", "sim/trace", "sim/scenario"}},
      {"sim/producers/driver", {"sim/producers/driver", "sim/execution/collectives.h", "sim/execution/stream_order.h", "sim/trace", "sim/scenario", "sim/base", "sim/numeric"}},
      {"sim/transport", {"sim/transport", "sim/base"}},
      {"sim", {"sim"}},
      {"ref",
       {"ref", "sim/scenario/contract.h", "sim/scenario/factor.h", "sim/scenario/predicate.h", "sim/scenario/timeline.h", "sim/scenario/workload.h", "sim/trace", "sim/base",
        "sim/numeric/dtype.h"}},
      {"search", {"search", "ref", "sim"}},
      {"drivers/sessions", {"drivers/sessions", "sim/producers/driver", "sim/transport", "sim/base"}},
      {"gpu", {"gpu", "sim"}},
      {"report", {"report", "ref", "sim"}},
      {"loops", {"loops", "sim/base"}},
      {"conformance", {"conformance", "loops", "ref", "sim"}},
      {"library", {"library", "report", "search", "ref", "sim"}},
      {"library/include", {}},  // what users are promised, and what they alone have
      {"drivers/cpp", {}},
      {"examples", {}},
      {"verbs", {"verbs", "conformance", "report", "search", "ref", "sim", "gpu"}},
      {"audit", {"audit", "loops", "verbs", "report", "search", "ref", "sim"}},
      {"tools", {"tools", "audit", "loops", "verbs", "conformance", "report", "search", "sim", "ref", "gpu", "drivers/sessions"}},
      {"tests", {"tests", "examples", "tools", "audit", "loops", "verbs", "conformance", "report", "search", "sim", "ref", "gpu", "drivers/sessions"}},
  };
  return table;
}

const boost::regex our_include(R"re(^\s*#include "((sim|loops|ref|search|drivers|gpu|conformance|report|library|verbs|audit|tools|tests|examples)/[^"]+)")re");

const std::vector<std::string>* rule_of(const SourceFile& file) {
  const std::vector<std::string>* rule = nullptr;
  for (const auto& [folder, allowed] : may_include())
    if (file.in(folder)) rule = &allowed;  // in the map's order a folder comes before what lies in it
  return rule;
}

bool allowed(const std::vector<std::string>& rule, const std::string& included) {
  return std::any_of(rule.begin(), rule.end(), [&](const std::string& from) { return included == from || included.starts_with(from + "/"); });
}

TEST(includes, follow_the_arrows_of_the_architecture) {
  std::size_t seen = 0;
  for (const SourceFile& file : source_tree()) {
    const auto* rule = rule_of(file);
    boost::smatch include;
    for (std::size_t l = 0; l < file.lines.size(); ++l) {
      if (!boost::regex_search(file.lines[l], include, our_include)) continue;
      ++seen;
      ASSERT_TRUE(rule) << place(file, l);
      EXPECT_TRUE(allowed(*rule, include[1])) << place(file, l);
    }
  }
  EXPECT_GT(seen, 0u);
}

TEST(includes, of_a_framework_are_its_own_and_the_registrys) {
  const boost::regex of_a_framework(R"re(#include "(sim/frameworks/[^"]+)/[^"/]+")re");
  std::set<std::string> seen;
  for (const SourceFile& file : source_tree()) {
    if (file.in("tests") || file.in("conformance")) continue;
    for (std::size_t l = 0; l < file.lines.size(); ++l) {
      boost::smatch include;
      if (!file.lines[l].starts_with("#include \"sim/frameworks/") || !boost::regex_search(file.lines[l], include, of_a_framework)) continue;
      const std::string folder = include[1];
      if (file.in(folder) || file.in(folder.substr(0, folder.find('/', std::string("sim/frameworks/").size())))) continue;
      EXPECT_EQ(file.path, "sim/frameworks/registry.cpp") << place(file, l);
      seen.insert(folder);
    }
  }
  EXPECT_TRUE(seen.contains("sim/frameworks/deepspeed") && seen.contains("sim/frameworks/torch/ddp")) << "the registry lists frameworks, and this search sees it";
}

// Sockets are for those who talk to the processes of ranks. Elsewhere a simulator would wait for somebody.
bool may_have_sockets(const SourceFile& file) { return file.in("sim/transport") || file.in("drivers/sessions") || file.in("gpu/ranks") || file.in("tests"); }
const boost::regex of_sockets(R"re(^\s*#include ("sim/transport/|<boost/asio))re");

TEST(includes, of_sockets_are_those_of_who_talks_to_ranks) {
  std::size_t seen = 0;
  for (const SourceFile& file : source_tree())
    for (std::size_t l = 0; l < file.lines.size(); ++l) {
      const bool sockets = boost::regex_search(file.lines[l], of_sockets);
      seen += sockets;
      EXPECT_TRUE(!sockets || may_have_sockets(file)) << place(file, l);
    }
  EXPECT_GT(seen, 0u);
  EXPECT_FALSE(may_have_sockets({"sim/producers/producers.cpp", {}}) || may_have_sockets({"verbs/session.cpp", {}}));
}

TEST(includes, of_engines_and_arithmetic_are_refused_to_the_oracle) {
  const std::vector<std::string>& oracle = *rule_of({"ref/model.cpp", {}});
  for (const char* included : {"sim/engine/engine.h", "sim/execution/collectives.h", "sim/program/program.h", "sim/numeric/kernels.h", "sim/scenario/scenario.h",
                               "sim/frameworks/deepspeed/config.h", "sim/frameworks/deepspeed/contract.h", "verbs/session.h"})
    EXPECT_FALSE(allowed(oracle, included)) << included;
  EXPECT_FALSE(allowed(*rule_of({"sim/engine/engine.cpp", {}}), "sim/numeric/kernels.h")) << "engines do not compute";
  EXPECT_FALSE(allowed(*rule_of({"sim/load.cpp", {}}), "ref/oracle.h"));
}

// ---- forbidden words ------------------------------------------------------------------------------------------------------------------

struct Rule {
  std::string what;
  std::vector<std::string> folders;
  boost::regex forbidden;
  std::string example;                   // a line that the search must find
  std::string unless = "\n";             // a line with this is an exception that says so
  std::vector<std::string> except = {};  // folders, of those above
};

const std::vector<Rule>& rules() {
  static const std::vector<Rule> all{
      {"a tolerance is derived, not written down",
       {"sim", "ref", "search", "drivers/sessions", "gpu", "conformance", "report", "library", "verbs", "loops", "audit", "tests", "tools"},
       boost::regex(R"([0-9.]e-[0-9])"),
       "if (error < 1e-6)",
       "no tolerance:"},
      {"equality up to a few ulps is a tolerance", {"tests"}, boost::regex(R"(EXPECT_(NEAR|FLOAT_EQ|DOUBLE_EQ)|ASSERT_(NEAR|FLOAT_EQ|DOUBLE_EQ))"), "  EXPECT_NEAR(a, b, c);"},
      {"no wall clock",
       {"sim", "ref", "search", "conformance", "report", "library", "verbs", "loops", "audit"},
       boost::regex(R"(std::chrono|<chrono>|gettimeofday|clock_gettime|\bclock\(\)|\btime\(nullptr\))"),
       "std::chrono::steady_clock::now()",
       "\n",
       {"sim/transport"}},
      {"random numbers come from the seed by sim/base/hash.h",
       {"sim", "ref", "search", "conformance", "report", "library", "verbs", "loops", "audit"},
       boost::regex(R"(<random>|random_device|_distribution\b|\brand\(\))"),
       "#include <random>"},
      {"no order that a hash table or a pointer decides",
       {"sim", "ref", "search", "conformance", "report", "library", "verbs", "loops", "audit"},
       boost::regex(R"(std::unordered_|std::hash<|reinterpret_cast<std::uintptr_t>)"),
       "std::unordered_map<int, int> x;"},
      {"the simulator and the oracle know nothing of CUDA",
       {"sim", "ref", "search", "conformance", "report", "library", "verbs", "loops", "audit"},
       boost::regex(R"(#include [<"](cuda|nccl))"),
       "#include <cuda_runtime_api.h>"},
      {"producers are made by sim/producers/producers.h",
       {"search", "tools", "conformance", "library", "verbs", "loops", "audit"},
       boost::regex(R"(\bHostExecutor\b|sim/execution/host_executor\.h)"),
       "#include \"sim/execution/host_executor.h\""},
      {"floating point is never fast",
       {"cmake", "sim", "ref", "search", "gpu", "conformance", "report", "library", "verbs", "loops", "audit", "tools", "tests"},
       boost::regex(R"(-ffast-math|-Ofast|use_fast_math|-ffp-contract=(fast|on))"),
       "add_compile_options(-ffast-math)"},
      {"the library prints nothing",
       {"conformance", "report", "library", "verbs", "loops", "audit"},
       boost::regex(R"(fmt::print|std::cout|std::cerr|\bf?printf\(|\bputs\()"),
       "  fmt::print(\"{}\", text);"},
      {"no tabs and no blanks at the end",
       {"sim", "ref", "search", "drivers/sessions", "drivers/cpp", "gpu", "conformance", "report", "library", "verbs", "loops", "audit", "tools", "tests", "examples", "cmake"},
       boost::regex("\t| +$"),
       "int x; "},
      {"no line longer than a screen",
       {"sim", "ref", "search", "drivers/sessions", "drivers/cpp", "gpu", "conformance", "report", "library", "verbs", "loops", "audit", "tools", "tests", "examples"},
       boost::regex(".{201}"),
       std::string(201, 'x')},
  };
  return all;
}

TEST(words, that_are_forbidden_do_not_occur) {
  for (const Rule& rule : rules()) {
    std::size_t searched = 0;
    for (const SourceFile& file : source_tree()) {
      if (names_rules(file) || file.path.ends_with(".md") || file.path.ends_with(".json")) continue;  // text and data
      const auto lies_in = [&](const std::string& folder) { return file.in(folder); };
      if (std::none_of(rule.folders.begin(), rule.folders.end(), lies_in) || std::any_of(rule.except.begin(), rule.except.end(), lies_in)) continue;
      for (std::size_t l = 0; l < file.lines.size(); ++l, ++searched)
        EXPECT_FALSE(boost::regex_search(file.lines[l], rule.forbidden) && file.lines[l].find(rule.unless) == std::string::npos) << rule.what << ": " << place(file, l);
    }
    EXPECT_GT(searched, 0u) << rule.what;
  }
}

TEST(words, that_are_forbidden_are_found_where_they_occur) {
  for (const Rule& rule : rules()) EXPECT_TRUE(boost::regex_search(rule.example, rule.forbidden)) << rule.what;
}

// ---- sizes --------------------------------------------------------------------------------------------------------------------------

// Lines of the functions, tests included: from a line that opens a body to the brace that closes it at the same depth.
std::vector<std::pair<std::size_t, std::size_t>> functions_of(const SourceFile& file) {
  static const boost::regex opens(R"(^( *)[^ /#:].*\).*\{$)"),
      no_function(R"(^ *(if|for|while|switch|do|else|namespace|class|struct|enum|\}|static const std::vector|const std::vector)\b)");
  std::vector<std::pair<std::size_t, std::size_t>> out;
  for (std::size_t l = 0; l < file.lines.size(); ++l) {
    boost::smatch match;
    if (!boost::regex_search(file.lines[l], match, opens) || boost::regex_search(file.lines[l], no_function)) continue;
    // The last of a constructor's members, each on a line of its own, stands six columns behind the brace that closes the body.
    const bool initialises = l > 0 && file.lines[l - 1].ends_with(",") && match[1].length() >= 6;
    const std::string closing = match[1].str().substr(initialises ? 6 : 0) + "}";
    for (std::size_t end = l + 1; end < file.lines.size(); ++end)
      if (file.lines[end].starts_with(closing)) {
        out.emplace_back(l, end - l + 1);
        break;
      }
  }
  return out;
}

TEST(sizes, of_files_and_functions_stay_readable) {
  std::size_t functions = 0;
  for (const SourceFile& file : source_tree()) {
    if (!file.is_cpp()) continue;
    EXPECT_LE(file.lines.size(), file_lines_max) << file.path;
    for (const auto& [line, length] : functions_of(file)) {
      ++functions;
      EXPECT_LE(length, function_lines_max) << place(file, line);
    }
  }
  EXPECT_GT(functions, 1000u);
}

TEST(sizes, of_a_function_are_counted_from_its_head_to_its_brace) {
  SourceFile file{"x.cpp", {"void f(int x) {", "  if (x) {", "    g();", "  }", "}", "", "class C {", "  int h() const {", "    return 1;", "  }", "};"}};
  const auto functions = functions_of(file);
  ASSERT_EQ(functions.size(), 2u);
  EXPECT_EQ(functions[0], (std::pair<std::size_t, std::size_t>{0, 5}));
  EXPECT_EQ(functions[1], (std::pair<std::size_t, std::size_t>{7, 3}));
}

// ---- arithmetic flags -----------------------------------------------------------------------------------------------------------------

TEST(floating_point, is_stated_once_for_every_target) {
  std::string flags;
  for (const SourceFile& file : source_tree())
    if (file.path == "cmake/Arithmetic.cmake")
      for (const std::string& line : file.lines) flags += line + "\n";
  for (const char* flag : {"-ffp-contract=off", "--fmad=false"}) EXPECT_NE(flags.find(flag), std::string::npos) << flag;
}

}  // namespace
}  // namespace gradledger::testing
