// Traces with something altered in them: whatever it is, they are judged or refused, and nothing breaks.
#include <array>

#include <nlohmann/json.hpp>

#include "conformance/trace/base64.h"
#include "conformance/trace/trace_reader.h"
#include "sim/base/hash.h"
#include "tests/conformance/traces.h"
#include "tests/support/sanitized.h"

namespace gradledger::conform {
namespace {

using nlohmann::json;

constexpr const char* small_scenario = R"({"name": "small", "world_size": 2, "parameters": [{"name": "a", "numel": 5}, {"name": "b", "numel": 2}],
  "engine": {"framework": "deepspeed", "as_of": "0.18.9", "config": {"gradient_accumulation_steps": 2, "gradient_clipping": 1.0, "zero_optimization": {"stage": 2}}},
  "script": [{"backward": {}}, {"step": {}}, {"backward": {}}, {"step": {}}]})";

// What became of a trace.
enum class Fate : std::uint8_t { refused, clean, findings };

Fate fate_of(const Scenario& scenario, const Timeline& timeline, const std::string& path) {
  auto opened = TraceFile::open(path);
  if (!opened) return Fate::refused;
  auto body = TraceFile(std::move(opened).value()).passes(scenario, timeline, 64u << 20);
  if (!body) return Fate::refused;
  try {
    ref::OracleOptions options;
    options.seed = options.schedule.seed = 3;
    return ref::judge(scenario, timeline, *body->producer, options).clean() ? Fate::clean : Fate::findings;
  } catch (const PassNotRecorded&) {
    return Fate::refused;
  }
}

// The values in a document that are none of objects and arrays.
void collect(const json& value, const json::json_pointer& place, std::vector<json::json_pointer>& out) {
  if (value.is_object())
    for (const auto& [key, inside] : value.items()) collect(inside, place / key, out);
  else if (value.is_array())
    for (std::size_t i = 0; i < value.size(); ++i) collect(value[i], place / i, out);
  else out.push_back(place);
}

json altered(const json& value, const json& other, SplitMix64& random) {
  switch (random.below(4)) {
    case 0: return other;
    case 1: {
      const std::array<json, 9> odd{0, 1, -1, 4294967295u, 2147483648u, 1e300, "nan", "inf", nullptr};
      return odd[random.below(odd.size())];
    }
    case 2: return value.is_number_unsigned() ? json(value.get<std::uint64_t>() + 1) : value.is_boolean() ? json(!value.get<bool>()) : other;
    default: break;
  }
  auto bytes = value.is_string() ? bytes_of_base64(value.get<std::string>()) : std::nullopt;
  if (!bytes || bytes->empty()) return other;
  for (int n = 0; n < 4; ++n) (*bytes)[random.below(static_cast<std::uint32_t>(bytes->size()))] = static_cast<std::byte>(random.below(2) ? 0xff : random.below(256));
  return base64_of(*bytes);
}

// Of some line but the first: a value of it is another, or the one that stands there in some other line; or a line is twice there, or not at all.
std::vector<std::string> mutant(std::vector<std::string> lines, SplitMix64& random) {
  const auto line = [&] { return 1 + random.below(static_cast<std::uint32_t>(lines.size() - 1)); };
  const std::uint32_t at = line(), from = line();
  if (random.below(12) == 0) {
    lines.erase(lines.begin() + at);
  } else if (random.below(12) == 0) {
    lines.insert(lines.begin() + at, lines[from]);
  } else {
    json document = json::parse(lines[at]);
    const json other = json::parse(lines[from]);
    std::vector<json::json_pointer> places;
    collect(document, json::json_pointer(), places);
    const json::json_pointer place = places[random.below(static_cast<std::uint32_t>(places.size()))];
    const json value = document[place];
    document[place] = altered(value, other.contains(place) ? other[place] : json(value), random);
    lines[at] = document.dump();
  }
  return lines;
}

TEST(a_trace_with_something_altered, is_judged_or_refused_and_breaks_nothing) {
  const Scenario scenario = read_scenario(small_scenario, "").value();
  const Timeline timeline = make_timeline(scenario).value();
  const testing::TemporaryFolder folder;
  const std::string path = folder.path() / "trace.jsonl";
  write_trace(scenario, path);
  ASSERT_EQ(fate_of(scenario, timeline, path), Fate::clean);
  std::vector<std::string> lines;
  LineReader reader = std::move(LineReader::open(path)).value();
  while (*reader.next()) lines.push_back(reader.line());
  std::array<int, 3> fates{};
  for (std::uint64_t seed = 0; seed < (testing::sanitized ? 150 : 600); ++seed) {
    SplitMix64 random(seed);
    std::string text;
    for (const std::string& line : mutant(lines, random)) text += line + "\n";
    SCOPED_TRACE(seed);
    EXPECT_NO_THROW(++fates[static_cast<std::size_t>(fate_of(scenario, timeline, folder.write("mutant.jsonl", text)))]);
  }
  for (const int fate : fates) EXPECT_GT(fate, 0) << "each fate is met";
}

}  // namespace
}  // namespace gradledger::conform
