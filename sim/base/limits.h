// Limits on everything that a scenario file can ask for. Checked before memory is taken; docs/scenario-format.md lists them.
#pragma once

#include <cstdint>

namespace gradledger::limits {

inline constexpr std::uint64_t file_bytes_max = 64ull << 20;
inline constexpr std::uint32_t json_depth_max = 64;
inline constexpr std::uint32_t world_size_max = 1u << 16;
inline constexpr std::uint32_t real_ranks_max = 128;  // of a real framework or of devices, each a process or a thread
inline constexpr std::uint32_t parameters_max = 4096;
inline constexpr std::uint64_t parameter_numel_max = 1ull << 40;
inline constexpr std::uint32_t recorded_numel_max = 1u << 31;  // of a parameter in a recording, which has them as numbers
inline constexpr std::uint64_t model_numel_max = 1ull << 40;
inline constexpr std::uint64_t whole_bucket_numel_max = 1ull << 20;  // reduce_bucket_size where all of a bucket is reduced
inline constexpr std::uint32_t events_max = 1u << 22;                // after repeats are unrolled
inline constexpr std::uint32_t repeat_times_max = 1u << 16;
inline constexpr std::uint32_t micro_batches_max = 1u << 16;  // in one backward event
inline constexpr std::uint32_t gradient_accumulation_steps_max = 1u << 16;
inline constexpr std::uint64_t named_uses_max = 1ull << 24;   // parameters named by backwards, after repeats are unrolled
inline constexpr std::uint32_t gradients_set_max = 1u << 12;  // after repeats are unrolled
inline constexpr std::uint32_t formula_factors_max = 16;
inline constexpr std::uint32_t formula_number_max = (1u << 31) - 1;
inline constexpr std::uint32_t tokens_max = (1u << 31) - 1;  // of a micro-batch
inline constexpr std::uint32_t group_names_max = 64;
inline constexpr std::uint32_t loop_events_max = 1u << 12;       // that change gradients outside the engine, after repeats are unrolled
inline constexpr std::uint64_t batch_size_max = 1ull << 40;      // train_batch_size and its parts
inline constexpr std::uint32_t collectives_max = 1u << 20;       // expected in a step
inline constexpr std::uint64_t bytes_max = (1ull << 53) - 1;     // expected of collectives and memory
inline constexpr std::uint32_t loss_scale_steps_max = 1u << 30;  // loss_scale_window and hysteresis
inline constexpr std::uint32_t mlp_layers_max = 64;
inline constexpr std::uint32_t mlp_width_max = 1u << 16;     // inputs and outputs of a layer
inline constexpr std::uint32_t condition_length_max = 1024;  // characters of "micro_batch < 3"
inline constexpr std::uint32_t name_length_max = 256;
inline constexpr std::uint64_t compared_elements_max = 1ull << 22;  // of all contributions of a run that is judged again to find its known defect
inline constexpr std::uint64_t compared_tensors_max = 1ull << 16;   // likewise without numbers: tensors of all contributions that are run one by one
inline constexpr std::uint64_t ledger_cells_max = 1ull << 22;       // weights of contributions in stretches of snapshots, of one ledger
inline constexpr std::uint64_t listed_cells_max = 1ull << 18;       // of these, weights that are as due, in a report without --ledger
inline constexpr std::uint32_t races_reported_max = 64;             // pairs of operations of a rank that are named
inline constexpr std::uint32_t race_schedules_max = 64;             // schedules tried for one that shows a race in the values
inline constexpr std::uint64_t race_operations_max = 1ull << 24;    // operations of all of them together
inline constexpr std::uint64_t stream_states_max = 1ull << 20;      // of a search of stream orders
inline constexpr std::uint32_t stream_variants_max = 64;            // of its states that differ in values alone, where there are too many
inline constexpr std::uint64_t stream_bytes_max = 4ull << 30;       // held by it
inline constexpr std::uint32_t stream_witnesses_max = 16;           // outcomes that it shows an order of
inline constexpr std::uint64_t memory_bytes_default = 8ull << 30;   // --memory-limit

}  // namespace gradledger::limits
