// Which shard a process is, by what the launchers set in its environment.
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "tools/gradledger/launcher.h"

namespace gradledger::testing {
namespace {

using Variables = std::map<std::string, std::string>;

Result<tool::Launched> launched(const Variables& variables) {
  return tool::launched([&](const char* name) -> const char* {
    const auto at = variables.find(name);
    return at == variables.end() ? nullptr : at->second.c_str();
  });
}

// "2/4 by OpenMPI"
std::string place(const Variables& variables) {
  const auto out = launched(variables);
  if (!out) return out.error().text();
  return std::to_string(out->number) + "/" + std::to_string(out->of) + " by " + out->launcher;
}

Variables slurm_array(const std::string& id, const std::string& min, const std::string& max, const std::string& step, const std::string& count) {
  return {{"SLURM_ARRAY_TASK_ID", id}, {"SLURM_ARRAY_TASK_MIN", min}, {"SLURM_ARRAY_TASK_MAX", max}, {"SLURM_ARRAY_TASK_STEP", step}, {"SLURM_ARRAY_TASK_COUNT", count}};
}

Variables with(Variables some, const Variables& more) {
  some.insert(more.begin(), more.end());
  return some;
}

void expect_refused(const Variables& variables, const std::vector<std::string>& parts) {
  const auto out = launched(variables);
  ASSERT_FALSE(out) << place(variables);
  EXPECT_EQ(out.error().where, "--shard");
  EXPECT_TRUE(out.error().message.starts_with("auto: ")) << out.error().message;
  for (const std::string& part : parts) EXPECT_NE(out.error().message.find(part), std::string::npos) << out.error().message << "\nlacks " << part;
}

TEST(a_launcher, numbers_the_process) {
  EXPECT_EQ(place({{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "4"}}), "2/4 by OpenMPI");
  EXPECT_EQ(place({{"PMI_RANK", "0"}, {"PMI_SIZE", "3"}}), "0/3 by MPICH");
  EXPECT_EQ(place({{"RANK", "7"}, {"WORLD_SIZE", "8"}}), "7/8 by torchrun");
  EXPECT_EQ(place({{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}}), "1/2 by srun");
  EXPECT_EQ(place({{"JOB_COMPLETION_INDEX", "4"}, {"GRADLEDGER_SHARDS", "5"}}), "4/5 by Kubernetes");
  EXPECT_EQ(place(slurm_array("5", "0", "15", "1", "16")), "5/16 by Slurm array");
  EXPECT_EQ(place({{"RANK", "0"}, {"WORLD_SIZE", "1"}}), "0/1 by torchrun");
}

TEST(a_launcher, is_told_with_the_variables_that_were_read) {
  const auto out = launched({{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"HOME", "/root"}});
  ASSERT_TRUE(out);
  EXPECT_EQ(out->variables, (std::vector<std::pair<std::string, std::string>>{{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "4"}}));
}

TEST(a_slurm_array, has_ids_from_any_number_on_by_any_step) {
  EXPECT_EQ(place(slurm_array("1", "1", "4", "1", "4")), "0/4 by Slurm array");
  EXPECT_EQ(place(slurm_array("4", "1", "4", "1", "4")), "3/4 by Slurm array");
  EXPECT_EQ(place(slurm_array("9", "1", "9", "2", "5")), "4/5 by Slurm array");
  EXPECT_EQ(place(slurm_array("10", "10", "38", "7", "5")), "0/5 by Slurm array");
  EXPECT_EQ(place({{"SLURM_ARRAY_TASK_ID", "2"}, {"SLURM_ARRAY_TASK_MIN", "1"}, {"SLURM_ARRAY_TASK_COUNT", "3"}}), "1/3 by Slurm array");
}

TEST(a_slurm_array, of_a_list_of_ids_is_refused) {
  expect_refused(slurm_array("7", "1", "7", "1", "3"), {"SLURM_ARRAY_TASK_ID is 7", "--array=0-15"});
  expect_refused(slurm_array("2", "1", "9", "2", "5"), {"SLURM_ARRAY_TASK_ID is 2"});
  expect_refused(slurm_array("0", "1", "4", "1", "4"), {"SLURM_ARRAY_TASK_ID is 0"});
  expect_refused(slurm_array("1", "1", "4", "0", "4"), {"SLURM_ARRAY_TASK_STEP is 0"});
  expect_refused({{"SLURM_ARRAY_TASK_ID", "3"}, {"SLURM_ARRAY_TASK_MIN", "0"}, {"SLURM_ARRAY_TASK_COUNT", "3"}}, {"SLURM_ARRAY_TASK_ID makes this number 3 of 3"});
}

TEST(nothing_set_or_half_of_it, is_an_error_that_names_the_variable) {
  expect_refused({}, {"no launcher", "OMPI_COMM_WORLD_RANK", "SLURM_ARRAY_TASK_ID", "GRADLEDGER_SHARDS", "--shard I/N"});
  expect_refused({{"RANK", ""}, {"WORLD_SIZE", ""}}, {"no launcher"});
  for (const auto& [one, other] : {std::pair("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), std::pair("PMI_RANK", "PMI_SIZE"), std::pair("RANK", "WORLD_SIZE"),
                                   std::pair("JOB_COMPLETION_INDEX", "GRADLEDGER_SHARDS")}) {
    expect_refused({{one, "0"}}, {std::string(one) + " is set and " + other + " is not"});
    expect_refused({{other, "2"}}, {std::string(other) + " is set and " + one + " is not"});
  }
  expect_refused({{"SLURM_ARRAY_TASK_ID", "0"}}, {"SLURM_ARRAY_TASK_MIN is not set"});
  expect_refused({{"SLURM_ARRAY_TASK_ID", "0"}, {"SLURM_ARRAY_TASK_MIN", "0"}}, {"SLURM_ARRAY_TASK_COUNT is not set"});
  expect_refused({{"SLURM_PROCID", "0"}}, {"no launcher", "SLURM_NTASKS"});
}

TEST(a_number_that_is_none, or_too_large_is_an_error_that_names_the_variable) {
  for (const char* wrong : {"x", "-1", "1x", "1.5", " 1", "99999999999999999999", "4294967296"}) {
    expect_refused({{"RANK", wrong}, {"WORLD_SIZE", "4"}}, {"RANK is \"" + std::string(wrong) + "\"; expected a whole number"});
    expect_refused({{"PMI_RANK", "0"}, {"PMI_SIZE", wrong}}, {"PMI_SIZE is \"" + std::string(wrong) + "\""});
  }
  expect_refused({{"RANK", "4"}, {"WORLD_SIZE", "4"}}, {"RANK makes this number 4 of 4"});
  expect_refused({{"RANK", "0"}, {"WORLD_SIZE", "0"}}, {"torchrun are 0 processes"});
  expect_refused({{"RANK", "0"}, {"WORLD_SIZE", "2000000"}}, {"expected 1 to 1048576"});
  expect_refused({{"JOB_COMPLETION_INDEX", "5"}, {"GRADLEDGER_SHARDS", "5"}}, {"JOB_COMPLETION_INDEX makes this number 5 of 5"});
}

TEST(two_launchers, that_say_the_same_are_one) {
  EXPECT_EQ(place({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"RANK", "1"}, {"WORLD_SIZE", "4"}}), "1/4 by OpenMPI");
}

TEST(two_launchers, that_disagree_are_an_error_that_names_both) {
  expect_refused({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"RANK", "5"}, {"WORLD_SIZE", "16"}}, {"OpenMPI says 1 of 2", "torchrun says 5 of 16"});
  expect_refused(with(slurm_array("1", "0", "3", "1", "4"), {{"JOB_COMPLETION_INDEX", "1"}, {"GRADLEDGER_SHARDS", "4"}}), {"SLURM_ARRAY_TASK_ID and JOB_COMPLETION_INDEX"});
}

// Slurm sets SLURM_PROCID for whatever starts another launcher.
TEST(srun, counts_only_where_no_other_launcher_does) {
  EXPECT_EQ(place({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}, {"RANK", "5"}, {"WORLD_SIZE", "16"}}), "5/16 by torchrun");
  EXPECT_EQ(place({{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "8"}, {"SLURM_STEP_NUM_TASKS", "2"}}), "1/2 by srun") << "a step may have fewer tasks than its job";
  EXPECT_EQ(place(with(slurm_array("1", "0", "3", "1", "4"), {{"SLURM_PROCID", "0"}})), "1/4 by Slurm array") << "as in every batch script";
}

TEST(an_array_of_jobs, has_a_shard_for_each_process_of_each_job) {
  const Variables second_job = slurm_array("1", "0", "2", "1", "3");
  EXPECT_EQ(place(with(second_job, {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "4"}})), "4/12 by Slurm array with OpenMPI");
  EXPECT_EQ(place(with(second_job, {{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}})), "3/6 by Slurm array with srun");
  EXPECT_EQ(place({{"JOB_COMPLETION_INDEX", "1"}, {"GRADLEDGER_SHARDS", "2"}, {"RANK", "3"}, {"WORLD_SIZE", "4"}}), "7/8 by Kubernetes with torchrun");
  expect_refused(with(slurm_array("0", "0", "2047", "1", "2048"), {{"RANK", "0"}, {"WORLD_SIZE", "1024"}}), {"2048 jobs of 1024 processes are 2097152 shards"});
  std::set<std::uint32_t> seen;
  for (int job = 0; job < 3; ++job)
    for (int rank = 0; rank < 2; ++rank)
      seen.insert(launched(with(slurm_array(std::to_string(2 * job + 1), "1", "5", "2", "3"), {{"PMI_RANK", std::to_string(rank)}, {"PMI_SIZE", "2"}})).value().number);
  EXPECT_EQ(seen, (std::set<std::uint32_t>{0, 1, 2, 3, 4, 5}));
}

}  // namespace
}  // namespace gradledger::testing
