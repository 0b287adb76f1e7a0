// Random programs for property tests: valid by construction, of small sizes, with everything the language's pure part has.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

namespace xhat::testing {

struct RandomProgramOptions {
  bool differentiable = true;  // no stop_gradient, so that finite differences are the gradient
  int definitions = 4;         // at most
  int depth = 3;               // of nested expressions
  bool shielded = false;       // reductions that conditions and ranges around them keep in bounds, or away from nan
};

// The text of a program; its last op is the one. Equal seeds, equal texts.
std::string random_program(uint64_t seed, const RandomProgramOptions& options = {});

// Is this `./test --long` (XHAT_TEST_LONG=1), which tries everything that the usual run takes samples of?
bool long_run();

// How many programs a test tries: XHAT_PROPERTY_COUNT, else `all` in a long run, else `usual`. The first seed: XHAT_PROPERTY_SEED, else 1.
int property_count(int usual, int all);
uint64_t property_seed();

// A word for what was thrown, so that the reducer does not slide from one failure to another.
std::string failure_kind(const std::string& message);

// A smaller program that still fails: fails(text) gives what is wrong, or nothing. Drops outputs, statements, parameters,
// and replaces expressions by their parts, as long as the message's first word stays.
std::string reduced(const std::string& text, const std::function<std::string(const std::string&)>& fails);

// Tries every parts-th program of `count`, from the part-th on, until three have failed: seed, what is wrong, and the
// reduced program of each. Empty if none fails. ctest can so run the parts side by side.
std::string failing_programs(int part, int parts, int count, const std::function<std::string(uint64_t)>& program,
                             const std::function<std::string(const std::string&, uint64_t)>& failure);

}  // namespace xhat::testing
