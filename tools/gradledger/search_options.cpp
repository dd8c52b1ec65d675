#include "tools/gradledger/search_options.h"

#include <string>

#include "tools/gradledger/mpi.h"
#include "tools/gradledger/numbers.h"

namespace gradledger::tool {
namespace {

void exclude(CLI::App* verb, const char* option, std::initializer_list<const char*> others) {
  for (const char* other : others) verb->get_option(option)->excludes(verb->get_option(other));
}

}  // namespace

void add_mutants(CLI::App* gate, Options& options) {
  CLI::Option* mutants =
      gate->add_flag("--mutants", options.mutants, "Instead of scenarios: plant every fault of the catalogue in each of its engines; one that is not reported fails the gate");
  gate->add_option("--mutant", options.only_mutants, "This one alone, by name")->needs(mutants);
  gate->add_option("--cases", options.mutant_cases, "Cases in which a fault must be found, in each of its engines")
      ->check(whole_number)
      ->check(CLI::Range(1, 1 << 20))
      ->needs(mutants)
      ->capture_default_str();
  exclude(gate, "--mutants", {"--memory-limit", "--producer", "--ranks", "--deadline", "--compare", "--as-of", "--config"});
}

CLI::App* add_fuzz(CLI::App& app, FuzzOptions& fuzz) {
  CLI::App* verb = app.add_subcommand("fuzz", "Draw scenarios, judge them, and make each finding as small as it gets");
  const auto number = CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 40);
  CLI::Option* cases = verb->add_option("--cases", fuzz.cases, "Cases to draw, all shards together; 20000 without --time")->check(whole_number)->check(number);
  CLI::Option* time =
      verb->add_option("--time", fuzz.time_s, "Seconds after which the campaign ends, the making small of findings included")->check(whole_number)->check(CLI::Range(1, 604800));
  verb->add_option("--case", fuzz.only, "Draw this one case alone, by its number")
      ->check(whole_number)
      ->check(CLI::Range(std::uint64_t{0}, std::uint64_t{1} << 40))
      ->excludes(cases)
      ->excludes(time);
  verb->add_option("--engine", fuzz.engines, "Engines to draw: zero0, zero1, zero1-offload, bf16-optimizer, zero2, zero2-offload, zero3, zero3-offload; default: all");
  verb->add_option("--as-of", fuzz.as_of, "Release or change that the engines are of")->capture_default_str();
  verb->add_option("--switch", fuzz.switches, "name=value: a behaviour switch on top of it");
  verb->add_option("--shard", fuzz.shard, "i/n: of n campaigns that share the cases, the one with number i; auto: as the launcher of the processes says")->capture_default_str();
  verb->add_option("--jobs", fuzz.jobs, "Threads; what is found does not depend on them")->check(whole_number)->check(CLI::Range(1, 1024))->capture_default_str();
  verb->add_option("--findings", fuzz.findings, "Folder that findings are written to, and whose files are replayed first")->check(some_text)->capture_default_str();
  verb->add_flag("--any-script", fuzz.any_script, "Also scripts that leave the documentation, in which a correct framework loses gradients too");
  verb->add_flag("--resume", fuzz.resume, "Go on with the unfinished campaign of these options, where the folder of findings holds one")->excludes("--case");
  CLI::Option* differ =
      verb->add_option("--differ", fuzz.differ, "Releases, changes, engines or producers, comma-separated: find scripts on which they apply different gradients")->check(some_text);
  verb->add_option("--catalogue", fuzz.catalogue, "Folder of scenarios: how many cases each of its known defects takes to be found from nothing")
      ->check(some_text)
      ->excludes(differ);
  return verb;
}

void limit_fuzz(CLI::App* fuzz) {
  exclude(fuzz, "--differ", {"--producer", "--memory-limit", "--resume"});
  exclude(fuzz, "--catalogue", {"--case", "--engine", "--as-of", "--switch", "--shard", "--jobs", "--findings", "--any-script", "--resume", "--producer", "--ranks", "--deadline"});
}

CLI::App* add_explore(CLI::App& app, ExploreVerb& verb) {
  CLI::App* out = app.add_subcommand("explore", "Try every sequence of events up to a length, or every order of a script's streams");
  CLI::Option* file = out->add_option("FILE", verb.file, "A scenario whose world and configuration are explored, - for standard input; default: a small world for each engine");
  out->add_option("--engine", verb.engines, "Engines, without FILE; as with fuzz")->excludes(file);
  out->add_option("--as-of", verb.as_of, "Release or change, in place of what FILE says; default without FILE: head")->check(some_text);
  out->add_option("--switch", verb.switches, "name=value: a behaviour switch on top of it")->excludes(file);
  out->add_option("--world-size", verb.world_size, "Ranks, without FILE")->check(whole_number)->check(CLI::Range(1, 16))->excludes(file)->capture_default_str();
  out->add_option("--tensor-parallel", verb.tensor_parallel, "Ranks that hold one copy of the model together: of ddp, fsdp2 and fsdp2-offload, named by --engine")
      ->check(whole_number)
      ->check(CLI::Range(1, 16))
      ->excludes(file)
      ->capture_default_str();
  out->add_option("--alphabet", verb.alphabet,
                  "Events, comma-separated: backward, backward(unscaled), loss.backward, step, boundary(T), boundary(F), engine.zero_grad, optimizer.zero_grad, raise, no_sync, "
                  "coalesce, end; "
                  "with @1 on rank 1 alone")
      ->check(some_text);
  out->add_option("--length", verb.length, "Events of the longest sequence")->check(whole_number)->check(CLI::Range(1, 64))->capture_default_str();
  out->add_option("--states-max", verb.states_max, "States after which the search ends, and says that it is not complete")
      ->check(whole_number)
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 28))
      ->capture_default_str();
  out->add_option("--time", verb.time_s, "Seconds after which it ends, likewise")->check(whole_number)->check(CLI::Range(1, 604800));
  out->add_option("--jobs", verb.jobs, "Threads; what is found does not depend on them")->check(whole_number)->check(CLI::Range(1, 1024))->capture_default_str();
  out->add_flag("--mpi", verb.mpi,
                std::string("Share the states with the other processes that mpirun started; what is found does not depend on how many there are") +
                    (has_mpi() ? "" : " (not in this build: it has no MPI)"));
  out->add_flag("--any-script", verb.any_script, "Also sequences that leave the documentation");
  out->add_flag("--streams", verb.streams, "All orders of the streams of FILE's script instead, held against the happens-before check")->needs(file);
  exclude(out, "--streams", {"--alphabet", "--length", "--time", "--jobs", "--mpi", "--any-script"});
  return out;
}

void limit_explore(CLI::App* explore) {
  for (const char* option : {"--memory-limit", "--config"}) explore->get_option(option)->needs(explore->get_option("FILE"));
  exclude(explore, "--mpi", {"--producer", "--driver-log"});
}

}  // namespace gradledger::tool
