#include "tools/gradledger/drivers.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "drivers/sessions/process_ranks.h"
#include "sim/scenario/spelling.h"
#include "tools/gradledger/numbers.h"

namespace gradledger::tool {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 8> drivers{"deepspeed", "ddp", "fsdp2", "fsdp1", "megatron", "megatron-fsdp", "megatron-fsdp-v2", "torch"};
constexpr std::array<std::string_view, 6> without_streams{"ddp", "fsdp1", "megatron", "megatron-fsdp", "megatron-fsdp-v2", "torch"};
constexpr std::string_view own = "python:", program = "program:";

// The package of drivers: where the environment says, beside the command, or in the sources that it was built of. A wheel has it where
// Python finds it by itself.
std::vector<std::string> package_path() {
  if (const char* given = std::getenv("GRADLEDGER_DRIVERS"); given && *given) return {given};
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  for (const fs::path& place : {self.parent_path() / "../share/gradledger/python", fs::path(GRADLEDGER_PYTHON_PACKAGE)})
    if (fs::exists(place / "gradledger" / "host.py", error)) return {fs::weakly_canonical(place, error).string()};
  return {};
}

// A program has one process group, which waits for every collective.
std::optional<InputError> program_problem(const std::string& path, const Options& options) {
  if (path.empty()) return std::nullopt;
  std::error_code error;
  if (path.find('/') != path.npos && !fs::is_regular_file(path, error))
    return InputError{"--producer", "program:" + path + " names no file; expected a program that serves a wrapper"};
  if (options.backend != "gradledger") return InputError{"--backend", "is of drivers in Python; expected none with --producer program:" + path};
  if (options.deliver != "eager")
    return InputError{"--deliver", "is of asynchronous collectives, which programs in C++ have none of; expected none with --producer program:" + path};
  return std::nullopt;
}

}  // namespace

std::string check_producer(const std::string& text) {
  if (text == "host" || text == "gpu" || std::find(drivers.begin(), drivers.end(), text) != drivers.end()) return "";
  if (text.starts_with(own) && std::count(text.begin(), text.end(), ':') == 2 && !text.ends_with(':')) return "";
  if (text.starts_with(program) && text.size() > program.size()) return "";
  std::vector<std::string> known{"host", "gpu"};
  known.insert(known.end(), drivers.begin(), drivers.end());
  return fmt::format("\"{}\" is no producer; expected {}, python:MODULE:FACTORY, or program:PATH{}", text, fmt::join(known, ", "), suggestion(text, known));
}

void add_driver(CLI::App* verb, Options& options) {
  if (const char* python = std::getenv("GRADLEDGER_PYTHON"); python && *python) options.python = python;
  verb->add_option("--python", options.python, "Python that has the framework, where the producer is one; GRADLEDGER_PYTHON is the default where it is set")->capture_default_str();
  verb->add_option("--backend", options.backend, "Process group of a real framework: gradledger's own, gloo or nccl")
      ->check(OneOf({"gradledger", "gloo", "nccl"}))
      ->capture_default_str();
  verb->add_option("--deliver", options.deliver, "When results of a real framework's asynchronous collectives arrive: at once, when they are waited for, or by the seed")
      ->check(OneOf({"eager", "late", "seeded"}))
      ->capture_default_str();
  verb->add_option("--against", options.against, "gate: hold the weights of a real framework against its model's too")->check(OneOf({"sim"}));
  verb->add_option("--driver-log", options.driver_log, "Write every message between the command and the ranks of a real framework to this file, as JSON lines");
}

Result<std::unique_ptr<driver::DriverRanks>> make_driver(const Options& options) {
  if (options.executor == "symbolic" && options.producer != "host")
    return InputError{"--executor", "symbolic works on the simulator's own operations; expected it without --producer " + options.producer};
  if (options.producer == "host" || options.producer == "gpu") {
    if (!options.against.empty()) return InputError{"--against", "holds a real framework against its model; expected --producer with a driver"};
    if (!options.streams.empty()) return InputError{"--streams", "is of a real framework; the simulator's streams are always looked at"};
    return std::unique_ptr<driver::DriverRanks>();
  }
  if (!options.compare.empty()) return InputError{"--compare", "goes with host and gpu; expected it without --producer " + options.producer};
  if (options.accounting) return InputError{"--accounting", "is a dry run of the simulator; expected it without --producer " + options.producer};
  if (!options.streams.empty() && std::find(without_streams.begin(), without_streams.end(), options.producer) != without_streams.end())
    return InputError{"--streams", options.producer + " makes no streams that can be replaced; expected --producer deepspeed, fsdp2, or a driver of your own"};
  if (!options.streams.empty() && options.backend != "gradledger") return InputError{"--streams", "needs gradledger's process group; expected no --backend " + options.backend};
  const std::string own_program = options.producer.starts_with(program) ? options.producer.substr(program.size()) : "";
  if (const auto problem = program_problem(own_program, options)) return *problem;
  driver::SessionOptions session;
  session.program = own_program;
  session.driver = options.producer.starts_with(own) ? options.producer.substr(own.size()) : options.producer;
  session.python = options.python;
  session.python_path = package_path();
  session.backend = options.backend;
  session.deliver = options.deliver;
  session.virtual_streams = options.streams == "virtual";
  session.seed = options.seed;
  session.deadline = std::chrono::seconds(options.deadline_s);
  session.log = options.driver_log;
  try {
    return std::unique_ptr<driver::DriverRanks>(std::make_unique<driver::ProcessRanks>(std::move(session)));
  } catch (const std::runtime_error& error) {
    return InputError{"--driver-log", error.what()};
  }
}

}  // namespace gradledger::tool
