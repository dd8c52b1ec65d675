#include "tools/gradledger/table_options.h"

#include "tools/gradledger/numbers.h"
#include "tools/gradledger/run_options.h"

namespace gradledger::tool {

CLI::App* add_list(CLI::App& app, Options& options, std::string& what) {
  CLI::App* verb = app.add_subcommand("list", "What gradledger knows");
  verb->add_option("WHAT", what, "frameworks, engines, events, behaviours, changes, releases, findings, rules, buffers, entries, models, schemas or exit-codes")
      ->required()
      ->check(OneOf({"frameworks", "engines", "events", "behaviours", "changes", "releases", "findings", "rules", "buffers", "entries", "models", "schemas", "exit-codes"}));
  add_format(verb, options, "JSON instead of text");
  verb->add_option("--as-of", options.as_of, "behaviours: the values at this release or change")->capture_default_str();
  return verb;
}

CLI::App* add_explain(CLI::App& app, Options& options, std::string& what, std::string& corpus) {
  CLI::App* verb = app.add_subcommand("explain", "What a class of findings, or a known defect, is, what it does to training, and what to do about it");
  verb->add_option("WHAT", what, "A class, as boundary-leak, or an entry of the catalogue, as catalogue-1")->required();
  verb->add_option("--scenarios", corpus, "Folder of scenarios, in which those of an entry are looked for")->capture_default_str();
  add_format(verb, options, "JSON instead of text");
  return verb;
}

CLI::App* add_schema(CLI::App& app, std::string& name) {
  CLI::App* verb = app.add_subcommand("schema", "The JSON Schema of a record that is printed with --json, or of a scenario");
  verb->add_option("NAME", name, "As gradledger list schemas has it")->required();
  return verb;
}

}  // namespace gradledger::tool
