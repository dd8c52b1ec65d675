// A campaign: cases one after the other, what they show, each finding once and as small as it gets.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ref/oracle.h"
#include "search/draw/generator.h"
#include "search/campaign/screen.h"
#include "sim/frameworks/framework.h"
#include "sim/producers/driver/driver_producer.h"

namespace gradledger::search {

struct CampaignState;
struct Found;
struct JudgedCase;

struct Counts {
  std::uint64_t cases = 0, events = 0, rank_events = 0, operations = 0, compared = 0, suspicious = 0, judged = 0, reruns = 0;
  std::uint64_t not_run = 0;                  // cases that a real framework, or its driver, does not take
  std::optional<std::string> nondeterminism;  // where two runs of one case parted
  bool operator==(const Counts&) const = default;
};

// All that is needed beside what was found to go on as if nothing had come between.
struct Checkpoint {
  std::uint64_t next = 0;  // number of the first case that was not taken
  Counts counts;
  std::map<std::uint64_t, std::uint32_t> alike;                         // suspicious cases, by what they look like
  std::map<std::pair<std::string, std::string>, std::uint32_t> shrunk;  // findings that were made small, by class and engine
  std::vector<std::pair<std::uint64_t, std::string>> broken;            // cases that the simulator or the oracle could not run, and why
  bool operator==(const Checkpoint&) const = default;
};

struct CampaignOptions {
  Profile profile;
  std::uint64_t seed = 0;
  std::uint64_t cases = 20'000;         // of all shards together
  std::uint64_t first = 0;              // number of the first case
  std::uint32_t shard = 0, shards = 1;  // this one takes the cases whose number leaves `shard` when divided
  std::uint32_t jobs = 1;
  std::uint32_t judged_of_alike = 3;                  // cases that look the same and go before the oracle
  std::uint32_t shrunk_of_class = 12;                 // findings of one class and engine that are made small
  std::uint32_t judge_every = 64;                     // also of cases in which nothing looks wrong
  std::uint32_t rerun_every = 101;                    // run twice and compared, decision by decision
  EngineFactory factory;                              // empty: those of the scenario's framework
  Devices* devices = nullptr;                         // not owned; one job
  driver::DriverRanks* driver = nullptr;              // likewise: a real framework, which runs and judges every case
  std::optional<Checkpoint> resume;                   // goes on there; `first` is where it once began
  std::function<bool()> stop = [] { return false; };  // asked before each case and each step of shrinking, by every thread
  // What is new, once and in an order that no thread decides; as it is found, so that an end at any moment takes nothing away.
  std::function<void(const Found&)> found = [](const Found&) {};
  std::function<void(const CampaignState&)> progress = [](const CampaignState&) {};  // after each round
  std::function<void(const Checkpoint&)> checkpoint = [](const Checkpoint&) {};      // likewise
  std::function<void(const JudgedCase&)> judged;                                     // what join_campaigns() needs of each round; empty: nobody joins
};

// A case that showed something, or whose judgement depends on cases before it: what a shard decided alone is decided again where all shards are joined.
struct JudgedCase {
  // A class that the case shows.
  struct Shown {
    std::string finding;
    std::optional<Scenario> scenario;  // the smallest one, where the shard made it small
    bool minimal = false;
    std::string broken;  // what making it small broke with
  };
  std::uint64_t number = 0;
  std::optional<std::uint64_t> alike;  // what it looks like; none where nothing looked wrong, or it was not judged for that
  std::string broken;                  // what running or judging it broke with
  std::string nondeterministic;        // where two runs of it parted
  std::vector<Shown> shown;
};

// One finding of a campaign: a class, on an engine, in a shape.
struct Found {
  std::string finding;                 // class
  std::string engine;                  // variant, or the framework's class where no variant is its name
  std::string shape;                   // what distinguishes it: events of the smallest script
  ref::Blame blame;                    // whose it is
  std::string sentence;                // the oracle's, of the smallest script
  std::optional<ref::Finding> detail;  // likewise; none after a campaign was resumed
  std::string pointer;                 // JSON pointer of the script item at which it was seen
  std::uint64_t number = 0;            // case
  std::uint64_t alike = 1;             // shrunk findings that came to the same shape
  Scenario scenario;                   // smallest, with what it reports expected
  bool minimal = false;
  std::uint32_t events = 0;
};

// A case that the simulator or the oracle could not run: a bug of gradledger.
struct Broken {
  std::uint64_t number = 0;
  std::string what;
  Scenario scenario;
};

struct CampaignState : Counts {
  std::vector<Found> found;  // what was known first
  std::vector<Broken> broken;
  bool stopped = false;  // by `stop`, with cases left
};

// The result does not depend on the number of jobs.
CampaignState run_campaign(const CampaignOptions& options, std::vector<Found> known = {});

// What the shards of a campaign come to together.
struct Joined {
  CampaignState state;
  std::vector<std::pair<std::uint64_t, std::string>> further;  // cases and classes that one campaign over all cases would not have judged: enough like them were before
  std::uint64_t made_small = 0;                                // findings that no shard had made small, since it had enough like them
};

// As if one campaign had taken the cases of all shards. `options` are those of the whole, of the simulator; `cases` those of all shards, by number; `together` the sum
// of their counts. What no shard made small is made small here.
Joined join_campaigns(const CampaignOptions& options, const std::vector<JudgedCase>& cases, const Counts& together, std::vector<Found> known = {});

// What one case shows, by the whole oracle.
ref::Verdict judge_case(const Scenario& scenario, const Timeline& timeline, const CampaignOptions& options);

// Names an engine as --engine does.
std::string engine_of(const Scenario& scenario);

// The smallest scenario that shows a class on the same engine, named and with its expectations.
Found shrink_finding(const Scenario& scenario, ref::FindingClass finding, std::uint64_t number, const CampaignOptions& options);

// Of a scenario as it stands: its class, engine, shape and sentence. Nothing where it does not show the class.
std::optional<Found> found_in(const Scenario& scenario, ref::FindingClass finding, const CampaignOptions& options);

}  // namespace gradledger::search
