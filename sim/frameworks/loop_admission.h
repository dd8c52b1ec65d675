// What PyTorch's wrappers have in common of what is not modelled.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/base/result.h"
#include "sim/scenario/scenario.h"

namespace gradledger {

// Of parameters, optimizer and degrees of parallelism. `wrapper`: as its users call it, for the message.
std::optional<InputError> model_problem(const Scenario& scenario, const std::string& wrapper);

// What a wrapper that averages over the data-parallel ranks of a layout does not take of it.
std::optional<InputError> layout_problem_of(const Scenario& scenario, const std::string& wrapper);

// Of a layout whose stages and shares of experts are no neighbours, as they are where no layout says otherwise.
std::optional<InputError> neighbours_problem(const Scenario& scenario, const std::string& framework);

// Of the parameters by name that are no DTensors on tensor-parallel ranks.
std::optional<InputError> plain_problem(const Scenario& scenario, const std::vector<std::string>& names);

// What a wrapper of PyTorch's, and the loop around it, do not take of an item of a script. scaled: the loop has a GradScaler.
std::optional<InputError> item_problem(const Scenario& s, const ScriptItem& item, const std::string& here, const std::string& wrapper, bool scaled);

// What a loop whose optimizer runs inside backwards says that no window of its contract has: its windows are the backwards that are reduced.
std::optional<InputError> inside_backwards_problem(const Scenario& scenario);

}  // namespace gradledger
