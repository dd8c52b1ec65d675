// One table of refusals: what it says is what engines raise, and they raise no refusal that it does not hold.
#include <gtest/gtest.h>

#include <set>

#include "sim/frameworks/deepspeed/behaviour.h"
#include "sim/frameworks/deepspeed/legality.h"
#include "sim/frameworks/deepspeed/settings.h"
#include "sim/frameworks/framework.h"
#include "tests/support/scenarios.h"

namespace gradledger::testing {
namespace {

struct Tried {
  EventKind kind;
  bool direct;
  std::vector<ScriptItem> script;  // whose last event is tried
  bool in_block;
};

std::vector<Tried> tried() {
  const auto block = [](ScriptKind kind, std::vector<ScriptItem> items) {
    ScriptItem out = event(kind);
    out.items = std::move(items);
    return out;
  };
  ScriptItem direct = backward();
  direct.direct = true;
  return {{EventKind::set_boundary, false, {boundary(true)}, false},
          {EventKind::no_sync_enter, false, {block(ScriptKind::no_sync, {})}, false},
          {EventKind::coalesce_enter, false, {block(ScriptKind::coalesce, {})}, false},
          {EventKind::no_sync_enter, false, {block(ScriptKind::no_sync, {block(ScriptKind::no_sync, {})})}, true},
          {EventKind::coalesce_enter, false, {block(ScriptKind::coalesce, {block(ScriptKind::coalesce, {})})}, true},
          {EventKind::step, false, {block(ScriptKind::coalesce, {step()})}, true},
          {EventKind::step, false, {block(ScriptKind::no_sync, {step()})}, true},
          {EventKind::backward, true, {direct}, false}};
}

// By type and message, as the first rank that raises one does: in a pipeline the first stage may wait for the last, which raised. Empty where none raises a refusal.
std::string raised_by(const Scenario& s) {
  class Errors final : public TraceSink {
   public:
    void engine_error(const EngineErrorRecord& r) override {
      if (text.empty()) text = r.type + ": " + r.message;
    }
    std::string text;
  } errors;
  class Ones final : public GradientSource {
   public:
    void gradient(std::uint32_t, std::uint32_t, std::uint32_t, std::uint64_t, std::span<double> out) const override { std::fill(out.begin(), out.end(), 1.0); }
  } source;
  const auto timeline = make_timeline(s);
  HostExecutor executor(s, *timeline);
  RunOptions run;
  run.linear = true;
  executor.run(source, run, errors);
  return errors.text;
}

TEST(legality, of_the_table_is_what_the_engines_raise) {
  std::set<std::string> refusals;
  std::size_t compared = 0;
  for (const char* as_of : {"head", "0.18.9", "before #8184", "before #7665"})
    for (std::uint32_t stage = 0; stage < 4; ++stage)
      for (const Dtype dtype : {Dtype::float32, Dtype::bfloat16, Dtype::float16})
        for (const bool managed : {true, false})
          for (const bool wide : {false, true})
            for (const std::uint32_t pipeline : {1u, 2u})
              for (const Tried& t : tried()) {
                Scenario s = base_scenario(2, {6, 6}, dtype);
                s.engine.as_of.base = as_of;
                deepspeed_config(s).zero.stage = stage;
                deepspeed_config(s).managed_gradient_accumulation = managed;
                s.engine.pipeline_stages = pipeline;
                if (pipeline == 2) s.parameters[1].pipeline_stage = 1;
                if (wide) deepspeed_config(s).grad_accum_dtype = Dtype::float32;
                s.script = t.script;
                const auto engine = deepspeed::select_wrapper(s);
                if (!engine.ok()) continue;
                const auto behaviour = resolve_behaviour(s.engine.as_of);
                Protocol protocol = protocol_of(s, *behaviour, *engine);
                // What surrounds it may be refused first.
                std::optional<FrameworkError> expected;
                if (t.in_block) expected = refusal_of(protocol, t.script[0].kind == ScriptKind::no_sync ? EventKind::no_sync_enter : EventKind::coalesce_enter);
                protocol.in_block = t.in_block;
                if (!expected) expected = refusal_of(protocol, t.kind, t.direct);
                const std::string raised = raised_by(s);
                ++compared;
                if (expected) {
                  EXPECT_EQ(raised, expected->type + ": " + expected->message);
                  refusals.insert(expected->message);
                } else {
                  EXPECT_EQ(raised.find("refused"), std::string::npos) << raised;
                }
              }
  EXPECT_GT(compared, 500u);
  // Every rule was met: those of no_sync name the stage, 2 or 3.
  EXPECT_EQ(refusals.size(), legality_rules().size() + 1) << ::testing::PrintToString(refusals);
}

}  // namespace
}  // namespace gradledger::testing
