// The same function in several spellings: does each get the plan that the best one gets?
//
//     build/bench/spellings [FUNCTION...]     the table, and how many rows are not the best
//     build/bench/spellings --worse           these rows only
//     build/bench/spellings --most N          fails if more than N rows are not the best
//     build/bench/spellings --digits          by how much each spelling's gradients are off more than the derivative as it is written down
//     build/bench/spellings --random N        N random respellings of the first spellings (bench/respelling.h), in turn: how many are
//                                             worse than it, and which; --seed S: from this one on
//
// Functions: bench/spellings/*.xh, one op per spelling; ops that others call are parts of them. The first lines have the sizes of the
// plans, and small ones at which every spelling's results and gradients, after all passes, are compared with the first one's.
// Nothing is timed. A row is not the best if another spelling is better by more than a tenth in a column (a star), and worse in none
// (bench/spelling_costs.h); that one stands in the last column. Spellings with other results or gradients at ties (of whole numbers, in
// which extremes and comparisons have equal operands) are other functions: marked by ', '', …, and compared with those of the same mark.
#include <iostream>

#include "bench/respelling.h"
#include "bench/spelling_costs.h"

namespace {

using namespace xhat;
using bench::Function;
using bench::SpellingCost;

struct Count {
  int rows = 0, worse = 0, different = 0, at_ties = 0;
};

Count print_function(const Function& f, bool worse_only) {
  std::vector<std::string> heading = {f.name};
  heading.insert(heading.end(), SpellingCost::kColumns.begin(), SpellingCost::kColumns.end());
  heading.emplace_back("than");
  std::vector<std::vector<std::string>> rows = {heading};
  std::vector<SpellingCost> costs;
  for (const auto& op : f.spellings) costs.push_back(bench::cost_of(*op, f.sizes));
  Count count;
  const std::vector<int> at_ties = bench::functions_at_ties(f);
  const Arrays data = bench::data_for(*f.spellings[0], f.small);
  const Arrays expected = bench::results_of(*f.spellings[0], data, f.small);
  for (size_t i = 0; i < costs.size(); ++i) {
    size_t better = 0;
    while (better < costs.size() && (at_ties[better] != at_ties[i] || !bench::worse(costs[i], costs[better]))) ++better;
    const bool is_worse = better < costs.size();
    std::vector<std::string> row = {f.spellings[i]->name + std::string(static_cast<size_t>(at_ties[i]), '\'')};
    for (size_t k = 0; k < costs[i].values.size(); ++k)
      row.push_back(fmt::format("{}{}", costs[i].values[k], is_worse && bench::worse(costs[i], costs[better], k) ? "*" : " "));
    row.push_back(is_worse ? f.spellings[better]->name : "");
    ++count.rows;
    count.at_ties += at_ties[i] > 0;
    count.worse += is_worse;
    if (!worse_only || is_worse) rows.push_back(row);
    const std::string differs = bench::difference(expected, bench::results_of(*f.spellings[i], data, f.small));
    if (differs.empty()) continue;
    ++count.different;
    std::cout << f.name << ", " << f.spellings[i]->name << ": " << differs << "\n";
  }
  if (rows.size() > 1) std::cout << table_text(rows, {1, 2, 3, 4, 5, 6}, "  ") << "\n";
  return count;
}

int print_digits(const std::vector<Function>& functions) {
  constexpr double kAllowed = 4;
  int beyond = 0, rows = 0;
  double most = 0;
  for (const Function& f : functions)
    for (const auto& op : f.spellings) {
      const bench::LostDigits lost = bench::lost_digits(*op, f.small);
      ++rows;
      beyond += lost.factor > kAllowed;
      most = std::max(most, lost.factor);
      if (lost.factor > kAllowed) std::cout << fmt::format("{:24} {:20} {:6.1f}  {}\n", f.name, op->name, lost.factor, lost.where);
    }
  std::cout << fmt::format(
      "{} spellings: gradients of {} are off by more than {} times what the written derivative is off in f32; at most {:.1f} times\n", rows,
      beyond, kAllowed, most);
  return beyond;
}

Count random_respellings(const std::vector<Function>& functions, int count, int first, bool show) {
  constexpr int kSteps = 12;
  Count all;
  std::map<std::string, Count> by_function;
  for (int k = 0; k < count; ++k) {
    const Function& f = functions[static_cast<size_t>(k) % functions.size()];
    const Program& plain = *f.spellings[0];
    const Program other = parse_op(bench::Respelling(plain, static_cast<uint64_t>(first + k)).text(kSteps));
    const SpellingCost least = bench::cost_of(plain, f.sizes), cost = bench::cost_of(other, f.sizes);
    const Arrays data = bench::data_for(plain, f.small);
    const std::string differs = bench::difference(bench::results_of(plain, data, f.small), bench::results_of(other, data, f.small));
    const bool worse = bench::worse(cost, least);
    ++all.rows;
    all.worse += worse;
    all.different += !differs.empty();
    ++by_function[f.name].rows;
    by_function[f.name].worse += worse;
    if (!differs.empty()) std::cout << f.name << ", seed " << first + k << ": " << differs << "\n" << print(other) << "\n";
    if (!worse || !show) continue;
    std::cout << "# " << f.name << ", seed " << first + k << ":";
    for (size_t i = 0; i < cost.values.size(); ++i)
      if (bench::worse(cost, least, i))
        std::cout << fmt::format(" {} {} instead of {}", SpellingCost::kColumns[i], cost.values[i], least.values[i]);
    std::cout << "\n" << print(other) << "\n";
  }
  for (const auto& [name, c] : by_function)
    if (c.worse > 0) std::cout << fmt::format("{:20} {} of {} worse\n", name, c.worse, c.rows);
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::vector<std::string> words(argv + 1, argv + argc);
    auto number_after = [&](const char* word, int otherwise) {
      auto at = std::ranges::find(words, word);
      if (at == words.end() || at + 1 == words.end()) return otherwise;
      const int number = std::stoi(*(at + 1));
      words.erase(at, at + 2);
      return number;
    };
    const int most = number_after("--most", INT_MAX), random = number_after("--random", 0), seed = number_after("--seed", 1);
    const bool worse_only = std::erase(words, "--worse") > 0;
    const bool digits = std::erase(words, "--digits") > 0;
    const std::vector<Function> functions = bench::read_functions(words);
    if (digits) return print_digits(functions) > most;
    if (random > 0) {
      const Count c = random_respellings(functions, random, seed, worse_only);
      std::cout << fmt::format("{} random respellings: {} are worse than the plain spelling, {} give another result\n", c.rows, c.worse,
                               c.different);
      return c.different > 0 || c.worse > most;
    }
    Count all;
    for (const Function& f : functions) {
      const Count c = print_function(f, worse_only);
      all = {all.rows + c.rows, all.worse + c.worse, all.different + c.different, all.at_ties + c.at_ties};
    }
    std::cout << fmt::format(
        "{} functions, {} spellings: {} are not the best of their function, {} are other functions at ties, {} give another result\n",
        functions.size(), all.rows, all.worse, all.at_ties, all.different);
    return all.different > 0 || all.worse > most;
  } catch (const std::exception& e) {
    std::cerr << "spellings: " << e.what() << "\n";
    return 1;
  }
}
