#include "tools/gradledger/launcher.h"

#include <charconv>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/gradledger/numbers.h"

namespace gradledger::tool {
namespace {

InputError wrong(const std::string& what) { return {"--shard", "auto: " + what}; }

// What one of those who count says.
struct Count {
  Launched said;
  bool there = false;
};

class Reader {
 public:
  explicit Reader(const Environment& environment) : environment_(environment) {}

  bool has(const char* name) const {
    const char* value = environment_(name);
    return value && *value;
  }

  // Notes what it reads.
  Result<std::uint64_t> number(const char* name, Launched& into) const {
    const std::string value = environment_(name);
    into.variables.emplace_back(name, value);
    std::uint64_t out = 0;
    const auto [end, failed] = std::from_chars(value.data(), value.data() + value.size(), out);
    constexpr std::uint64_t number_max = (1ull << 32) - 1;
    if (failed == std::errc{} && end == value.data() + value.size() && out <= number_max) return out;
    return wrong(fmt::format("{} is \"{}\"; expected a whole number", name, value));
  }

  // The process or job `rank` of `size`. Nothing where neither is set.
  Result<Count> count(const std::string& launcher, const char* rank, const char* size, const std::string& who_sets_it) const {
    if (!has(rank) && !has(size)) return Count{};
    for (const auto& [missing, there] : {std::pair(rank, size), std::pair(size, rank)})
      if (!has(missing)) return wrong(fmt::format("{} is set and {} is not; expected both, {}", there, missing, who_sets_it));
    Count out;
    const auto number = this->number(rank, out.said), of = this->number(size, out.said);
    if (!number) return number.error();
    if (!of) return of.error();
    return placed(std::move(out), launcher, rank, *number, *of);
  }

  static Result<Count> placed(Count out, const std::string& launcher, const std::string& name, std::uint64_t number, std::uint64_t of) {
    if (of == 0 || of > shards_max) return wrong(fmt::format("{} are {} processes; expected 1 to {}", launcher, of, shards_max));
    if (number >= of) return wrong(fmt::format("{} makes this number {} of {}, counted from 0; expected less than {}", name, number, of, of));
    out.there = true;
    out.said.launcher = launcher;
    out.said.number = static_cast<std::uint32_t>(number);
    out.said.of = static_cast<std::uint32_t>(of);
    return out;
  }

 private:
  const Environment& environment_;
};

// Ids from SLURM_ARRAY_TASK_MIN on, SLURM_ARRAY_TASK_STEP apart.
Result<Count> slurm_array(const Reader& reader) {
  constexpr const char *id_name = "SLURM_ARRAY_TASK_ID", *min_name = "SLURM_ARRAY_TASK_MIN", *count_name = "SLURM_ARRAY_TASK_COUNT";
  constexpr const char *step_name = "SLURM_ARRAY_TASK_STEP", *max_name = "SLURM_ARRAY_TASK_MAX";
  if (!reader.has(id_name) && !reader.has(min_name) && !reader.has(count_name)) return Count{};
  for (const char* name : {id_name, min_name, count_name})
    if (!reader.has(name)) return wrong(fmt::format("{} is not set; expected {}, {} and {}, as Slurm sets them in an array", name, id_name, min_name, count_name));
  Count out;
  const auto id = reader.number(id_name, out.said), min = reader.number(min_name, out.said), count = reader.number(count_name, out.said);
  const auto step = reader.has(step_name) ? reader.number(step_name, out.said) : Result<std::uint64_t>(1);
  for (const auto* one : {&id, &min, &count, &step})
    if (!*one) return one->error();
  if (*step == 0) return wrong(fmt::format("{} is 0; expected 1 or more", step_name));
  const auto max = reader.has(max_name) ? reader.number(max_name, out.said) : Result<std::uint64_t>(*min + (std::max<std::uint64_t>(*count, 1) - 1) * *step);
  if (!max) return max.error();
  const bool evenly = *id >= *min && (*id - *min) % *step == 0 && *max >= *min && (*max - *min) / *step + 1 == *count;
  if (!evenly)
    return wrong(fmt::format("{} is {} in an array of {} from {} to {} by {}; expected ids from one number to another by one step, as --array=0-15 or --array=1-9:2", id_name, *id,
                             *count, *min, *max, *step));
  return Reader::placed(std::move(out), "Slurm array", id_name, (*id - *min) / *step, *count);
}

Result<Count> kubernetes(const Reader& reader) {
  return reader.count("Kubernetes", "JOB_COMPLETION_INDEX", "GRADLEDGER_SHARDS", "the first from an indexed Job, the second from its manifest: as many as it has completions");
}

// Slurm sets SLURM_PROCID in every batch script and SLURM_NTASKS in every allocation: half of the two says nothing.
Result<Count> srun(const Reader& reader) {
  const char* size = reader.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  if (!reader.has("SLURM_PROCID") || !reader.has(size)) return Count{};
  return reader.count("srun", "SLURM_PROCID", size, "from srun");
}

// The processes of one job. srun may only have started what started them.
Result<Count> processes(const Reader& reader) {
  const auto torchrun = reader.count("torchrun", "RANK", "WORLD_SIZE", "as torchrun sets them");
  const auto openmpi = reader.count("OpenMPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "as mpirun of OpenMPI sets them");
  const auto mpich = reader.count("MPICH", "PMI_RANK", "PMI_SIZE", "as mpirun of MPICH or Intel MPI sets them");
  Count out;
  for (const Result<Count>* one : {&openmpi, &mpich, &torchrun}) {
    if (!*one) return one->error();
    if (!(*one)->there) continue;
    const Launched& said = (*one)->said;
    if (out.there && (said.number != out.said.number || said.of != out.said.of))
      return wrong(fmt::format("{} says {} of {}, and {} says {} of {}; expected one of them, or --shard I/N", out.said.launcher, out.said.number, out.said.of, said.launcher,
                               said.number, said.of));
    if (!out.there) out = **one;
  }
  return out.there ? Result<Count>(out) : srun(reader);
}

}  // namespace

Result<Launched> launched(const Environment& environment) {
  const Reader reader(environment);
  const auto array = slurm_array(reader), pods = kubernetes(reader), ranks = processes(reader);
  for (const Result<Count>* one : {&array, &pods, &ranks})
    if (!*one) return one->error();
  if (array->there && pods->there) return wrong("SLURM_ARRAY_TASK_ID and JOB_COMPLETION_INDEX are both set; expected one of them, or --shard I/N");
  const Count& jobs = array->there ? *array : *pods;
  if (!jobs.there && !ranks->there)
    return wrong(
        "no launcher has numbered this process; expected OMPI_COMM_WORLD_RANK (OpenMPI), PMI_RANK (MPICH, Intel MPI), SLURM_ARRAY_TASK_ID or SLURM_PROCID with SLURM_NTASKS "
        "(Slurm), "
        "JOB_COMPLETION_INDEX with GRADLEDGER_SHARDS (Kubernetes) or RANK (torchrun), or --shard I/N");
  if (!jobs.there || !ranks->there) return jobs.there ? jobs.said : ranks->said;
  Launched out = jobs.said;
  const std::uint64_t of = std::uint64_t{out.of} * ranks->said.of;
  if (of > shards_max) return wrong(fmt::format("{} jobs of {} processes are {} shards; expected at most {}", out.of, ranks->said.of, of, shards_max));
  out.number = out.number * ranks->said.of + ranks->said.number;
  out.of = static_cast<std::uint32_t>(of);
  out.launcher += " with " + ranks->said.launcher;
  out.variables.insert(out.variables.end(), ranks->said.variables.begin(), ranks->said.variables.end());
  return out;
}

}  // namespace gradledger::tool
