// Runs on ranks in processes of their own: what the oracle says of them, and what becomes of ranks that fail.
#include <gtest/gtest.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cctype>
#include <filesystem>

#include <fmt/format.h>

#include "drivers/sessions/process_ranks.h"
#include "ref/oracle.h"
#include "sim/load.h"
#include "sim/producers/driver/driver_producer.h"

namespace gradledger::driver {
namespace {

namespace fs = std::filesystem;

std::string script(int micro_batches = 3, int steps = 2) {
  std::string out;
  for (int s = 0; s < steps; ++s) out += fmt::format(R"({}{{"backward": {{"micro_batches": {}}}}}, {{"step": {{}}}})", out.empty() ? "" : ", ", micro_batches);
  return out;
}

Scenario scenario(std::uint32_t world_size = 2, const std::string& events = script()) {
  const std::string text = fmt::format(R"({{"name": "x", "world_size": {}, "parameters": [{{"name": "a", "numel": 12}}, {{"name": "b", "numel": 5}}],
      "engine": {{"framework": "external", "config": {{"anything": true}}}}, "script": [{}]}})",
                                       world_size, events);
  return read_scenario(text, fs::path()).value();
}

std::unique_ptr<ProcessRanks> ranks(const std::string& name, std::chrono::milliseconds deadline = std::chrono::seconds(20), const std::string& log = "") {
  SessionOptions options;
  options.driver = name;
  options.python = GRADLEDGER_STAND_IN;
  options.deadline = deadline;
  options.log = log;
  return std::make_unique<ProcessRanks>(options);
}

ref::Verdict judged(DriverRanks& ranks, const Scenario& s) {
  const Timeline timeline = make_timeline(s).value();
  DriverProducer producer(s, timeline, ranks);
  return ref::judge(s, timeline, producer, {});
}

std::string failure_of(const std::string& name, std::chrono::milliseconds deadline = std::chrono::seconds(20)) {
  const auto them = ranks(name, deadline);
  try {
    const ref::Verdict verdict = judged(*them, scenario());
    return "no failure";
  } catch (const DriverFailure& failure) {
    return failure.what();
  }
}

std::set<std::string> classes(const ref::Verdict& verdict) {
  std::set<std::string> out;
  for (const ref::Finding& f : verdict.findings) out.insert(std::string(ref::name_of(f.finding)));
  return out;
}

// ---- verdicts -----------------------------------------------------------------------------------------------------------------------------

TEST(a_real_framework, that_is_right_is_clean_and_was_judged) {
  const auto them = ranks("right");
  const ref::Verdict verdict = judged(*them, scenario());
  EXPECT_TRUE(verdict.clean()) << verdict.findings.front().sentence;
  EXPECT_GT(verdict.coverage.judged, 0u);
  EXPECT_GT(verdict.ledger.elements, 0u);
  EXPECT_FALSE(verdict.facts.collectives.empty()) << "the process group saw the averages";
}

// Ranks are told of events before they come to them, so that answers of the others are still to come when a run ends early.
TEST(a_run_that_ends_early, leaves_nothing_to_the_next_scenario_on_the_same_ranks) {
  const auto them = ranks("cannot-do-event-9");
  for (int i = 0; i < 3; ++i) {
    EXPECT_THROW(judged(*them, scenario(3, script(20))), NotRun);
    EXPECT_TRUE(judged(*them, scenario(3)).clean());
  }
}

TEST(a_driver_that_offers_no_pipelines, is_not_asked_for_parameters_of_a_later_one) {
  const auto them = ranks("right");
  Scenario s = scenario();
  s.parameters[1].pipeline_stage = 1;
  try {
    judged(*them, s);
    ADD_FAILURE() << "it was run";
  } catch (const NotRun& why) {
    EXPECT_NE(std::string(why.what()).find("/parameters/1/pipeline_stage"), std::string::npos) << why.what();
  }
}

TEST(a_driver_that_sums_no_losses, is_not_asked_for_a_backward_of_several) {
  const auto them = ranks("right");
  Scenario s = scenario();
  s.script[0].sum_of = 2;
  try {
    judged(*them, s);
    ADD_FAILURE() << "it was run";
  } catch (const NotRun& why) {
    EXPECT_NE(std::string(why.what()).find("/script/0/backward/sum_of"), std::string::npos) << why.what();
  }
}

TEST(a_real_framework, that_loses_micro_batches_is_reported_with_those_that_are_lost) {
  const auto them = ranks("keeps-the-last-alone");
  const ref::Verdict verdict = judged(*them, scenario());
  ASSERT_FALSE(verdict.findings.empty());
  std::set<std::uint32_t> lost;
  for (const ref::Miscounted& m : verdict.findings.front().contributions) {
    lost.insert(m.contribution.micro_batch);
    EXPECT_EQ(m.observed, 0) << "its weight is gone";
  }
  EXPECT_EQ(lost, (std::set<std::uint32_t>{0, 1})) << verdict.findings.front().sentence;
}

TEST(a_real_framework, whose_rank_keeps_its_gradient_to_itself_is_reported_with_the_rank) {
  const auto them = ranks("keeps-to-itself");
  const ref::Verdict verdict = judged(*them, scenario());
  ASSERT_FALSE(verdict.findings.empty());
  EXPECT_TRUE(std::any_of(verdict.findings.begin(), verdict.findings.end(), [](const ref::Finding& f) { return f.rank == 1; }));
}

TEST(a_real_framework, that_shows_its_weights_alone_is_judged_by_them) {
  const auto them = ranks("black-box");
  const ref::Verdict verdict = judged(*them, scenario());
  EXPECT_TRUE(verdict.judged()) << verdict.coverage.nothing;
  EXPECT_GT(verdict.parameters.elements, 0u);
}

TEST(a_real_framework, that_raises_is_reported_with_what_it_said) {
  const auto them = ranks("raises");
  const ref::Verdict verdict = judged(*them, scenario());
  EXPECT_TRUE(classes(verdict).contains("engine-error"));
  EXPECT_NE(verdict.findings.front().sentence.find("out of bounds"), std::string::npos) << verdict.findings.front().sentence;
}

TEST(a_real_framework, whose_streams_touch_the_same_memory_and_do_not_wait_is_reported_with_both_call_sites) {
  const auto waiting = ranks("streams");
  EXPECT_TRUE(judged(*waiting, scenario()).clean());
  const auto racing = ranks("streams-race");
  const ref::Verdict verdict = judged(*racing, scenario());
  ASSERT_TRUE(classes(verdict).contains("stream-race"));
  const ref::Finding& finding = verdict.findings.front();
  EXPECT_EQ(finding.rank, 1u);
  ASSERT_TRUE(finding.race);
  EXPECT_EQ(finding.race->record.second.site, "bucket.py:3 fill");
  EXPECT_NE(finding.sentence.find("64 bytes from bucket.py:3 fill[0:64] in bytes"), std::string::npos) << finding.sentence;
  const auto silent = ranks("right");
  EXPECT_TRUE(judged(*silent, scenario()).facts.races.empty()) << "a driver without streams is not asked for them";
}

TEST(a_real_framework, that_raises_is_judged_by_what_it_holds_where_the_script_goes_on) {
  const auto them = ranks("raises");
  Scenario s = scenario();
  const ref::Verdict stopped = judged(*them, s);
  s.after_error = AfterError::go_on;
  const ref::Verdict went_on = judged(*them, s);
  EXPECT_TRUE(classes(went_on).contains("engine-error"));
  EXPECT_GT(went_on.coverage.judged, stopped.coverage.judged);
}

// What a rank holds behind such a backward is not asked for: it is in the middle of something.
TEST(a_real_framework, that_raises_in_a_backward_is_judged_by_what_optimizers_were_given_in_it) {
  const auto them = ranks("raises-behind-its-hooks");
  Scenario s = scenario();
  s.after_error = AfterError::go_on;
  std::set<std::string> buffers;
  for (const ref::Finding& finding : judged(*them, s).findings)
    if (finding.finding != ref::FindingClass::engine_error && finding.event == 0) buffers.insert(finding.buffer);
  EXPECT_EQ(buffers, std::set<std::string>{"hook[0]"}) << "the first of them stands for all";
}

TEST(a_real_framework, whose_ranks_disagree_on_a_collective_is_reported_at_once) {
  const auto them = ranks("disagrees");
  EXPECT_TRUE(classes(judged(*them, scenario())).contains("collective-mismatch"));
}

TEST(a_real_framework, whose_ranks_wait_for_one_that_never_comes_is_a_deadlock_and_no_hang) {
  const auto them = ranks("never-comes");
  EXPECT_TRUE(classes(judged(*them, scenario())).contains("deadlock"));
}

TEST(a_real_framework, gives_the_same_verdict_again_in_warm_processes) {
  const auto them = ranks("keeps-the-last-alone");
  const ref::Verdict once = judged(*them, scenario()), again = judged(*them, scenario());
  ASSERT_EQ(once.findings.size(), again.findings.size());
  for (std::size_t i = 0; i < once.findings.size(); ++i) EXPECT_EQ(once.findings[i].sentence, again.findings[i].sentence);
  EXPECT_EQ(once.facts.summary.trace_hash, again.facts.summary.trace_hash);
}

TEST(a_real_framework, serves_worlds_of_several_sizes_one_after_the_other) {
  const auto them = ranks("right");
  for (const std::uint32_t world_size : {2u, 3u, 1u, 3u}) EXPECT_TRUE(judged(*them, scenario(world_size)).clean()) << world_size;
}

TEST(a_real_framework, plays_a_script_of_more_events_than_ranks_are_told_of_ahead) {
  const auto them = ranks("right");
  const ref::Verdict verdict = judged(*them, scenario(2, script(1, 50)));
  EXPECT_TRUE(verdict.clean());
  EXPECT_EQ(verdict.coverage.windows_judged, 50u);
}

TEST(a_real_framework, that_refuses_the_configuration_or_cannot_do_an_event_was_not_run) {
  const auto refusing = ranks("refuses");
  EXPECT_THROW(judged(*refusing, scenario()), NotRun);
  const auto right = ranks("right");
  EXPECT_THROW(judged(*right, scenario(2, R"({"set_boundary": true}, {"backward": {}}, {"step": {}})")), NotRun);
  EXPECT_TRUE(judged(*right, scenario()).clean()) << "the next scenario is run";
}

// Rank 0 waits for the rank that refuses, and rank 1 for both: it is configured.
TEST(a_real_framework, that_refuses_on_one_rank_while_another_waits_for_it_was_not_run_and_says_why) {
  const auto them = ranks("refuses-on-a-rank", std::chrono::seconds(20));
  for (int i = 0; i < 2; ++i) {
    try {
      judged(*them, scenario(3));
      ADD_FAILURE() << "it was run";
    } catch (const NotRun& why) {
      EXPECT_NE(std::string(why.what()).find("no such option"), std::string::npos) << why.what();
    }
  }
}

// ---- failures -------------------------------------------------------------------------------------------------------------------------------

TEST(a_rank, that_ends_is_reported_with_how_and_with_what_it_printed) {
  const std::string what = failure_of("ends");
  EXPECT_NE(what.find("rank 1 was ended by signal 9"), std::string::npos) << what;
  EXPECT_NE(what.find("Segmentation fault in the optimizer"), std::string::npos) << what;
}

TEST(a_rank, that_is_silent_is_given_up_after_the_deadline) {
  const std::string what = failure_of("is-silent", std::chrono::seconds(1));
  EXPECT_NE(what.find("rank 1 did not answer within 1 s"), std::string::npos) << what;
}

TEST(a_rank, that_is_never_ready_is_named_and_not_those_that_are) {
  const std::string what = failure_of("is-silent-at-first", std::chrono::seconds(1));
  EXPECT_NE(what.find("rank 1 did not answer within 1 s"), std::string::npos) << what;
}

TEST(a_rank, that_sends_what_nobody_understands_is_reported) {
  EXPECT_NE(failure_of("sends-noise").find("no MessagePack"), std::string::npos);
  EXPECT_NE(failure_of("announces-too-much").find("announced a frame of 4294967295 bytes"), std::string::npos);
  EXPECT_NE(failure_of("nests").find("no MessagePack map of at most"), std::string::npos);
  EXPECT_NE(failure_of("answers-another-event").find("answered event"), std::string::npos);
  EXPECT_NE(failure_of("shows-what-is-not-there").find("/buffers/0/pieces/0"), std::string::npos);
  EXPECT_NE(failure_of("fails").find("cannot go on"), std::string::npos);
  EXPECT_NE(failure_of("streams-of-another-time").find("told of its streams what cannot be read: /number"), std::string::npos);
  EXPECT_NE(failure_of("streams-in-no-memory").find("/entries/1/5/0/0: 5 is no allocation"), std::string::npos);
}

TEST(a_driver, that_does_not_start_is_reported) {
  EXPECT_NE(failure_of("never-there").find("ended with code 7"), std::string::npos);
  EXPECT_NE(failure_of("of-another-version", std::chrono::seconds(2)).find("the process of the driver"), std::string::npos);
  EXPECT_NE(failure_of("lets-go-before-it-ends").find("the process of the driver ended with code 3"), std::string::npos);
  SessionOptions options;
  options.python = "/no/such/python";
  ProcessRanks missing(options);
  EXPECT_THROW(missing.hello(), DriverFailure);
}

TEST(ranks, are_started_again_after_a_failure) {
  const auto them = ranks("ends");
  EXPECT_THROW(judged(*them, scenario()), DriverFailure);
  EXPECT_THROW(judged(*them, scenario()), DriverFailure) << "they end again, and were there";
}

TEST(ranks, that_failed_and_ended_do_not_fail_the_next_scenario_for_it) {
  const auto them = ranks("fails-and-ends");
  for (int run = 0; run < 3; ++run) {
    try {
      judged(*them, scenario());
      ADD_FAILURE() << "it fails whenever it is asked";
    } catch (const DriverFailure& failure) {
      EXPECT_NE(std::string(failure.what()).find("cannot go on"), std::string::npos) << failure.what();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(200));  // its process ends behind what it said
  }
}

std::vector<int> processes_named(const std::string& name) {
  std::vector<int> out;
  std::error_code gone;  // processes come and go while they are listed
  for (fs::directory_iterator at("/proc", gone), end; !gone && at != end; at.increment(gone)) {
    const fs::directory_entry& entry = *at;
    if (!std::isdigit(static_cast<unsigned char>(entry.path().filename().string()[0]))) continue;
    const int file = open((entry.path() / "cmdline").c_str(), O_RDONLY);
    if (file < 0) continue;
    std::string line(4096, '\0');
    line.resize(static_cast<std::size_t>(std::max<ssize_t>(0, read(file, line.data(), line.size()))));  // nothing of one that ends just now
    close(file);
    if (line.find(GRADLEDGER_STAND_IN) != std::string::npos && line.find(name) != std::string::npos) out.push_back(std::stoi(entry.path().filename()));
  }
  return out;
}

std::size_t hosts_and_ranks(ProcessRanks& them, const std::string& name, std::initializer_list<std::uint32_t> sizes) {
  for (const std::uint32_t world_size : sizes) EXPECT_TRUE(judged(them, scenario(world_size)).clean()) << world_size;
  return processes_named(name).size();
}

TEST(ranks, of_several_sizes_of_the_world_stay_where_the_size_changes_often) {
  const std::string name = "right-in-turn";
  {
    const auto them = ranks(name);
    EXPECT_EQ(hosts_and_ranks(*them, name, {2, 1, 2, 1}), 1u + 1u) << "a host, and the ranks of one world";
    EXPECT_EQ(hosts_and_ranks(*them, name, {2, 1, 2, 1, 2, 1}), (1u + 1u) + (1u + 2u));
    const std::vector<int> before = processes_named(name);
    hosts_and_ranks(*them, name, {2, 1, 2, 1});
    EXPECT_EQ(processes_named(name), before) << "none was started again";
    EXPECT_EQ(hosts_and_ranks(*them, name, {3}), (1u + 1u) + (1u + 2u) + (1u + 3u));
    EXPECT_EQ(hosts_and_ranks(*them, name, {16, 2}), (1u + 1u) + (1u + 2u) + (1u + 16u)) << "a world that is too many takes the place of the last one";
  }
  EXPECT_TRUE(processes_named(name).empty());
}

TEST(a_run_that_ends_early, leaves_nothing_to_the_next_scenario_on_ranks_of_another_size) {
  const auto them = ranks("cannot-do-event-9");
  for (int i = 0; i < 6; ++i) {
    EXPECT_THROW(judged(*them, scenario(3, script(20))), NotRun);
    EXPECT_TRUE(judged(*them, scenario(2)).clean());
    EXPECT_TRUE(judged(*them, scenario(3)).clean());
  }
}

TEST(ranks, that_are_killed_at_any_moment_are_reported_and_leave_no_process) {
  const std::string name = "right-until-killed";
  for (int moment = 0; moment < 12; ++moment) {
    const auto log = fs::temp_directory_path() / fmt::format("gradledger-killed-{}.jsonl", getpid());
    {
      const auto them = ranks(name, std::chrono::seconds(20), log.string());
      them->provide(2, false);
      const std::vector<int> all = processes_named(name);
      ASSERT_EQ(all.size(), 3u) << "a host and two ranks";
      // A child of this process kills one of them a little later.
      const pid_t killer = fork();
      if (killer == 0) {
        usleep(static_cast<useconds_t>(moment * 700));
        kill(all[static_cast<std::size_t>(moment) % all.size()], SIGKILL);
        _exit(0);
      }
      try {
        for (int run = 0; run < 1000; ++run) judged(*them, scenario());
        ADD_FAILURE() << "nobody noticed";
      } catch (const DriverFailure& failure) {
        EXPECT_NE(std::string(failure.what()).find("signal 9"), std::string::npos) << failure.what();
      }
      int status = 0;
      waitpid(killer, &status, 0);
    }
    EXPECT_TRUE(processes_named(name).empty());
    EXPECT_GT(fs::file_size(log), 0u);
    fs::remove(log);
  }
}

}  // namespace
}  // namespace gradledger::driver
