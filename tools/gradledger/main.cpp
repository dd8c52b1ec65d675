// gradledger: replay scenarios, gate a corpus, judge recordings, list what is known.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <new>
#include <optional>
#include <system_error>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "report/version/version.h"
#include "sim/base/contract.h"
#include "sim/base/lines.h"
#include "tools/gradledger/allocator.h"
#include "tools/gradledger/audit.h"
#include "tools/gradledger/call.h"
#include "tools/gradledger/completion.h"
#include "tools/gradledger/devices.h"
#include "tools/gradledger/drivers.h"
#include "tools/gradledger/exit_codes.h"
#include "tools/gradledger/gate_options.h"
#include "tools/gradledger/interruption.h"
#include "tools/gradledger/look.h"
#include "tools/gradledger/man_page.h"
#include "tools/gradledger/merge.h"
#include "tools/gradledger/numbers.h"
#include "tools/gradledger/output.h"
#include "tools/gradledger/result_files.h"
#include "tools/gradledger/run_options.h"
#include "tools/gradledger/search_options.h"
#include "tools/gradledger/sharding.h"
#include "tools/gradledger/standard_input.h"
#include "tools/gradledger/table_options.h"
#include "tools/gradledger/verbs.h"
#include "verbs/compare.h"

namespace gradledger::tool {

namespace {

CLI::App* add_replay(CLI::App& app, Options& options, std::vector<std::string>& paths) {
  CLI::App* verb = app.add_subcommand("replay", "Run scenarios and judge every rank's accumulators after every event");
  verb->add_option("FILE", paths, "Scenario files; - is standard input")->required();
  add_common(verb, options);
  add_overrides(verb, options);
  add_compare(verb, options);
  CLI::Option* accounting = verb->add_flag("--accounting", options.accounting, "Bytes held and sent, by a dry run that judges nothing; also beyond --memory-limit");
  verb->add_option("--trace", options.trace, "Write every record of the primary pass to this file, as JSON lines")->excludes(accounting);
  verb->add_option("--chrome-trace", options.chrome_trace, "Write the operations of every rank and stream to this file, for Perfetto or chrome://tracing; no clock")
      ->excludes(accounting);
  add_html(verb, options);
  verb->add_option("--schedule", options.schedule, "seeded, round-robin, or a trace file whose decisions are replayed")->capture_default_str();
  verb->add_option("--schedule-seed", options.schedule_seed, "Seed of the schedule alone, where it is not --seed")->check(whole_number);
  verb->add_flag("--ledger", options.full_ledger, "Decode the ledger of every step, also where it balances")->excludes(accounting);
  verb->add_flag("--summary", options.summary, "No line for each event and rank; with --accounting, one row a scenario");
  add_results(verb, options, {"--accounting"});
  add_executor(verb, options, {"--accounting", "--compare"});
  return verb;
}

struct RankPlace {
  std::uint32_t number = 0;
  std::string address;
};

// Nobody but gradledger itself starts it, so the help does not speak of it.
CLI::App* add_rank(CLI::App& app, Options& options, RankPlace& place) {
  CLI::App* verb = app.add_subcommand("rank", "One rank of the gpu producer")->group("");
  verb->add_option("--rank", place.number, "Its number")->required();
  verb->add_option("--address", place.address, "At which the other side waits")->required();
  add_deadline(verb, options);
  return verb;
}

CLI::App* add_coverage(CLI::App& app, Options& options, std::string& folder) {
  CLI::App* verb = app.add_subcommand("coverage", "Hold a corpus against the catalogue of known defects");
  verb->add_option("FOLDER", folder, "Folder of scenarios")->capture_default_str();
  add_common(verb, options);
  add_html(verb, options);
  verb->add_option("--write", options.write_page, "Write the page to this file");
  verb->add_option("--check", options.check_page, "Fail where this page is out of date");
  return verb;
}

CLI::App* add_gate(CLI::App& app, Options& options, GateVerb& gate, std::vector<std::string>& paths) {
  CLI::App* verb = app.add_subcommand("gate", "Hold scenarios against what they expect, or the oracle against faults that it must report");
  verb->add_option("PATH", paths, "Scenario files, or folders of them; - is standard input");
  add_common(verb, options);
  add_overrides(verb, options);
  add_compare(verb, options);
  add_mutants(verb, options);
  add_results(verb, options, {"--mutants"});
  add_executor(verb, options, {"--mutants", "--compare"});
  add_html(verb, options);
  add_records(verb, options);
  add_gate_options(verb, options, gate);
  return verb;
}

// The verbs over what was recorded.
struct Recordings {
  std::string scenario, trace, run;
  bool alone = false;
  CLI::App *record = nullptr, *conform = nullptr, *judge = nullptr;
};

void add_recordings(CLI::App& app, Options& options, std::vector<std::string>& paths, Recordings& verbs) {
  verbs.record = app.add_subcommand("record", "Run a scenario as often as the oracle needs, and write what the ranks showed to a file for judge");
  verbs.record->add_option("FILE", verbs.scenario, "Scenario file; - is standard input")->required();
  verbs.record->add_option("-o,--output", verbs.trace, "The trace to write; gzip where the name ends in .gz")->required();
  add_common(verbs.record, options, "trace");
  add_overrides(verbs.record, options);

  verbs.conform = app.add_subcommand("conform", "Hold recorded runs of a real framework against replays by the engine and release that produced them");
  verbs.judge = app.add_subcommand("judge", "Judge recorded runs by the oracle alone, with no engine: what was applied against what is due");
  for (CLI::App* verb : {verbs.conform, verbs.judge}) {
    verb->add_option(verb == verbs.judge ? "TRACE" : "FILE", paths, "Recordings in any of the forms, or traces: JSON lines, plain or gzip; - is standard input")->required();
    add_format(verb, options, "One JSON object a run, totals last");
  }
  verbs.conform->add_flag("--judge", verbs.alone, "As gradledger judge: by the oracle alone, with no engine");
  verbs.judge->add_option("--run", verbs.run, "Of files that hold several runs, those of this name");
  verbs.judge->add_flag("--summary", options.summary, "No line for each event and rank");
  add_memory_limit(verbs.judge, options);
}

// A file that is opened while standard output is closed would become standard output.
void occupy_standard_streams() {
  while (true) {
    const int lowest = open("/dev/null", O_RDONLY);
    if (lowest < 0 || lowest > STDERR_FILENO) {
      if (lowest > STDERR_FILENO) close(lowest);
      return;
    }
  }
}

// `verb` with the devices, or the ranks of a real framework, that the options ask for.
template <class Verb>
int with_producer(Options& options, Verb&& verb) {
  const auto made = make_devices(options);
  if (!made) {
    complain(made.error());
    return made.error().unavailable ? unavailable : bad_input;
  }
  if (made->served) return *made->served;
  options.devices = made->devices.get();
  const auto driver = make_driver(options);
  if (!driver) {
    complain(driver.error());
    return bad_input;
  }
  options.driver = driver->get();
  return verb();
}

std::string exit_code_text() {
  std::string out = "Exit codes:\n";
  for (const ExitCodeInfo& e : exit_codes) out += fmt::format("  {}  {}\n", static_cast<int>(e.code), e.meaning);
  return out;
}

CLI::App* add_whole_fuzz(CLI::App& app, Options& options, FuzzOptions& fuzz) {
  CLI::App* verb = add_fuzz(app, fuzz);
  add_common(verb, options, "finding, and one of the whole,");
  add_results(verb, options, {"--differ", "--catalogue"});
  add_html(verb, options);
  add_records(verb, options);
  limit_fuzz(verb);
  return verb;
}

CLI::App* add_whole_explore(CLI::App& app, Options& options, ExploreVerb& explore) {
  CLI::App* verb = add_explore(app, explore);
  add_run(verb, options, "finding and engine");
  add_real_producer(verb, options);
  add_config(verb, options);
  add_html(verb, options);
  add_records(verb, options);
  limit_explore(verb);
  return verb;
}

CLI::App* add_whole_audit(CLI::App& app, Options& options, AuditVerb& audit) {
  CLI::App* verb = add_audit(app, audit);
  add_run(verb, options, "audit");
  add_html(verb, options);
  return verb;
}

// What a verb does once its options are read.
struct Verb {
  const CLI::App* app;
  bool asks_for_producer;
  std::function<int(const Output&)> run;
  // Those that may be "-", and how much of it is read.
  std::function<std::vector<std::string*>()> files = {};
  std::uint64_t bytes_max = limits::file_bytes_max;
};

// What a run breaks off with, told as an error.
int guarded(const std::function<int()>& run) {
  try {
    return run();
  } catch (const std::system_error& error) {
    complain({"", error.what()}, bad_input);
    return bad_input;
  } catch (const gradledger::RunFailure& error) {
    complain_lines(error.what(), broken_run);
    return broken_run;
  } catch (const std::bad_alloc&) {
    complain({"", "out of memory; see --memory-limit"}, unavailable);
    return unavailable;
  } catch (const std::exception& error) {
    complain({"", std::string("internal error: ") + error.what() + ". Please report it with the command line and the scenario."}, internal_error);
    return internal_error;
  }
}

int dispatch(const std::vector<Verb>& verbs, Options& options, const CLI::App& chosen) {
  ResultFiles files(options, chosen.get_name());
  report::Summary summary;
  summary.verb = chosen.get_name();
  if (chosen.get_option_no_throw("--seed")) summary.seed = options.seed;
  auto records = RecordsFile::open(options.records, options.repeat);
  Output out(options, files, records ? std::move(records).value() : RecordsFile(), std::move(summary));
  if (!records) {
    complain(records.error());
    out.end(bad_input);
    return bad_input;
  }
  const int code = guarded([&] {
    return with_results(files, [&] {
      const auto verb = std::find_if(verbs.begin(), verbs.end(), [&](const Verb& one) { return one.app == &chosen; });
      expects(verb != verbs.end(), "a verb of the table");
      const auto run = [&] {
        const auto no_input = verb->files ? take_standard_input(verb->files(), verb->bytes_max) : std::nullopt;
        if (no_input) out.refuse(no_input->where, *no_input);
        if (options.shard) out.print(*options.shard);
        return out.finish(no_input ? bad_input : verb->run(out));
      };
      return verb->asks_for_producer ? with_producer(options, run) : run();
    });
  });
  out.end(code);
  return code;
}

// Options that cannot be read: whether they ask for JSON is seen from the words themselves.
int refuse(const InputError& error, const std::vector<std::string>& words, const std::string& verb) {
  Options options;
  options.repeat = command_line(without_form(words));
  const auto end = std::find(words.begin(), words.end(), "--");
  for (auto word = words.begin(); word != end; ++word) options.json |= *word == "--json" || *word == "--format=json" || (*word == "json" && *std::prev(word) == "--format");
  ResultFiles none(options, "");
  report::Summary summary;
  summary.verb = verb;
  Output out(options, none, {}, std::move(summary));
  complain(error);
  out.end(bad_input);
  return bad_input;
}

// Every verb with its options. What they are read into outlives them.
struct Words {
  Options options;
  std::vector<std::string> paths;
  std::string what, folder = "scenarios", shell;
  FuzzOptions fuzz;
  GateVerb gate;
  ExploreVerb explore;
  AuditVerb audit;
  Recordings recordings;
  MergeVerb merge;
  RankPlace place;
};

std::vector<Verb> add_verbs(CLI::App& app, Words& w) {
  std::vector<Verb> verbs;
  const auto add = [&](const CLI::App* verb, std::function<int(const Output&)> run, bool asks_for_producer = true) { verbs.push_back({verb, asks_for_producer, std::move(run)}); };
  add(add_replay(app, w.options, w.paths), [&w](const Output& out) { return replay(w.paths, w.options, out); });
  add(add_gate(app, w.options, w.gate, w.paths),
      [&w](const Output& out) { return w.options.mutants ? gate_mutants(w.paths, w.options, out) : gate(w.paths, w.options, w.gate, out); });
  add(add_coverage(app, w.options, w.folder), [&w](const Output& out) { return coverage(w.folder, w.options, out); });
  add(add_whole_fuzz(app, w.options, w.fuzz), [&w](const Output& out) { return fuzz(w.options, w.fuzz, out); });
  add(add_whole_explore(app, w.options, w.explore), [&w](const Output& out) { return explore(w.options, w.explore, out); });
  add(
      add_whole_audit(app, w.options, w.audit), [&w](const Output& out) { return audit(w.options, w.audit, out); }, false);
  add(add_explain(app, w.options, w.what, w.folder), [&w](const Output& out) { return explain(w.what, w.folder, w.options, out); });
  add_recordings(app, w.options, w.paths, w.recordings);
  add(
      w.recordings.conform, [&w](const Output& out) { return w.recordings.alone ? judge_recordings(w.paths, w.recordings.run, w.options, out) : conform(w.paths, out); }, false);
  add(
      w.recordings.judge, [&w](const Output& out) { return judge_recordings(w.paths, w.recordings.run, w.options, out); }, false);
  add(
      add_merge(app, w.options, w.merge), [&w](const Output& out) { return merge(w.merge, w.options, out); }, false);
  add(w.recordings.record, [&w](const Output& out) { return record(w.recordings.scenario, w.recordings.trace, w.options, out); });
  add(
      add_completion(app, w.shell),
      [&w, &app](const Output&) {
        fmt::print("{}", completion_script(app, w.shell));
        return clean;
      },
      false);
  add(
      add_man_page(app),
      [&app](const Output&) {
        fmt::print("{}", man_page(app));
        return clean;
      },
      false);
  add(
      add_schema(app, w.what), [&w](const Output&) { return schema(w.what); }, false);
  add(
      add_rank(app, w.options, w.place), [&w](const Output&) { return rank(w.options, w.place.number, w.place.address); }, false);
  add(
      add_list(app, w.options, w.what), [&w](const Output& out) { return list(w.what, w.options, out); }, false);
  return verbs;
}

// An exit code where there is nothing to run.
std::optional<int> parse(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::CallForVersion& asked) {
    return app.exit(asked);
  } catch (const CLI::ParseError& error) {
    const std::vector<CLI::App*> verb = app.get_subcommands();
    return refuse({"", error.what() + what_was_meant(app, error, argc, argv) + "; see gradledger --help"}, {argv, argv + argc}, verb.empty() ? "" : verb.front()->get_name());
  }
  if (app.get_subcommands().empty()) {
    fmt::print("{}", app.help());
    return bad_input;  // a script that lost its verb must not pass
  }
  return std::nullopt;
}

// Which verbs read standard input where a file is "-".
void take_dashes(std::vector<Verb>& verbs, Words& w) {
  const auto paths = [&w] {
    std::vector<std::string*> out;
    for (std::string& path : w.paths) out.push_back(&path);
    return out;
  };
  for (Verb& verb : verbs) {
    const std::string& name = verb.app->get_name();
    const bool of_recordings = name == "judge" || name == "conform";
    if (name == "replay" || name == "gate" || of_recordings) verb.files = paths;
    else if (name == "explore") verb.files = [&w] { return std::vector{&w.explore.file}; };
    else if (name == "record") verb.files = [&w] { return std::vector{&w.recordings.scenario}; };
    else if (name == "audit") verb.files = [&w] { return files_of(w.audit); };
    if (of_recordings) verb.bytes_max = limits::unpacked_bytes_max;
  }
}

int run(int argc, char** argv) {
  CLI::App app{"Replays gradient accumulation on virtual ranks and says which contribution is missing, doubled, stale or private."};
  app.require_subcommand(0, 1);
  app.set_version_flag("--version", report::version_text(), "Version, commit, compiler and build type");
  app.footer(exit_code_text());
  Words words;
  std::vector<Verb> verbs = add_verbs(app, words);
  take_dashes(verbs, words);
  if (const auto code = parse(app, argc, argv)) return *code;
  if (!words.explore.file.empty()) words.options.instead_as_of = words.explore.as_of;
  std::vector<std::string> given{argv, argv + argc};
  const std::string verb = app.get_subcommands().front()->get_name();
  auto error = take_overrides(words.options);
  if (!error) error = take_sharding(verb, given, words.options, words.fuzz, words.gate, words.explore);
  if (error) return refuse(*error, given, verb);
  if (!words.options.html.empty()) words.options.full_ledger = true;  // a heat map wants the steps that balance too
  words.options.command_line = command_line(given);
  words.options.repeat = command_line(without_form(given));
  return dispatch(verbs, words.options, *app.get_subcommands().front());
}

}  // namespace
}  // namespace gradledger::tool

int main(int argc, char** argv) {
  using namespace gradledger::tool;
  occupy_standard_streams();
  take_signals_of_writing_as_errors();
  keep_freed_memory();
  const int code = guarded([&] { return run(argc, argv); });
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  say("the report cannot be written to standard output");
  return std::max<int>(code, bad_input);
}
