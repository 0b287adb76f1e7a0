// The same function in several spellings: does each get the plan that the best one gets?
//
//     build/bench/spellings [FUNCTION...]     the table, and how many rows are not the best
//     build/bench/spellings --worse           these rows only
//     build/bench/spellings --most N          fails if more than N rows are not the best
//
// Functions: bench/spellings/*.xh, one op per spelling; ops that others call are parts of them. The first lines have the sizes of the
// plans, and small ones at which every spelling's results and gradients, after all passes, are compared with the first one's.
// Nothing is timed. A row is not the best if another spelling is better by more than a tenth in a column (a star), and worse in none
// (bench/spelling_costs.h); that one stands in the last column.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <set>
#include <sstream>

#include "bench/spelling_costs.h"

namespace {

using namespace xhat;
using bench::SpellingCost;

struct Function {
  std::string name;
  DimValues sizes, small;
  std::vector<std::shared_ptr<const Program>> spellings;
};

// "# sizes: N=64,D=1024"
DimValues dims_after(const std::string& word, const std::string& text, const std::string& file) {
  const std::string mark = "\n# " + word + ": ";
  const size_t at = text.find(mark);
  if (at == std::string::npos) throw Error(file + ": there is no line '# " + word + ": N=64,…' at its head");
  std::istringstream line(text.substr(at + mark.size(), text.find('\n', at + 1) - at - mark.size()));
  DimValues dims;
  for (std::string part; std::getline(line, part, ',');) dims[part.substr(0, part.find('='))] = std::stoll(part.substr(part.find('=') + 1));
  return dims;
}

void names_called(const Program& p, std::set<std::string>& names) {
  for (const Definition& d : p.definitions())
    if (d.is_call() && names.insert(d.callee->name).second) names_called(*d.callee, names);
}

Function read_function(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  Function f{path.stem(), dims_after("sizes", text.str(), path), dims_after("small", text.str(), path), {}};
  const Module module = parse(text.str(), path);
  std::set<std::string> parts;
  for (const auto& op : module.ops) names_called(*op, parts);
  for (const auto& op : module.ops)
    if (!parts.contains(op->name)) f.spellings.push_back(op);
  return f;
}

struct Count {
  int rows = 0, worse = 0, different = 0;
};

Count print_function(const Function& f, bool worse_only) {
  std::vector<std::string> heading = {f.name};
  heading.insert(heading.end(), SpellingCost::kColumns.begin(), SpellingCost::kColumns.end());
  heading.emplace_back("than");
  std::vector<std::vector<std::string>> rows = {heading};
  std::vector<SpellingCost> costs;
  for (const auto& op : f.spellings) costs.push_back(bench::cost_of(*op, f.sizes));
  Count count;
  const Arrays data = bench::data_for(*f.spellings[0], f.small);
  const Arrays expected = bench::results_of(*f.spellings[0], data, f.small);
  for (size_t i = 0; i < costs.size(); ++i) {
    const auto better = std::ranges::find_if(costs, [&](const SpellingCost& other) { return bench::worse(costs[i], other); });
    std::vector<std::string> row = {f.spellings[i]->name};
    for (size_t k = 0; k < costs[i].values.size(); ++k)
      row.push_back(fmt::format("{}{}", costs[i].values[k], better != costs.end() && bench::worse(costs[i], *better, k) ? "*" : " "));
    if (better != costs.end())
      row.push_back(f.spellings[static_cast<size_t>(better - costs.begin())]->name);
    else
      row.emplace_back();
    ++count.rows;
    count.worse += better != costs.end();
    if (!worse_only || better != costs.end()) rows.push_back(row);
    const std::string differs = bench::difference(expected, bench::results_of(*f.spellings[i], data, f.small));
    if (differs.empty()) continue;
    ++count.different;
    std::cout << f.name << ", " << f.spellings[i]->name << ": " << differs << "\n";
  }
  if (rows.size() > 1) std::cout << table_text(rows, {1, 2, 3, 4, 5, 6}, "  ") << "\n";
  return count;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::vector<std::string> words(argv + 1, argv + argc);
    int most = INT_MAX;
    if (auto at = std::ranges::find(words, "--most"); at != words.end() && at + 1 != words.end()) {
      most = std::stoi(*(at + 1));
      words.erase(at, at + 2);
    }
    const bool worse_only = std::erase(words, "--worse") > 0;
    std::vector<std::filesystem::path> files;
    for (const auto& file : std::filesystem::directory_iterator(XHAT_SOURCE_DIR "/bench/spellings"))
      if (words.empty() || std::ranges::count(words, file.path().stem().string())) files.push_back(file.path());
    std::ranges::sort(files);
    Count all;
    for (const auto& file : files) {
      const Count c = print_function(read_function(file), worse_only);
      all = {all.rows + c.rows, all.worse + c.worse, all.different + c.different};
    }
    std::cout << fmt::format("{} functions, {} spellings: {} are not the best of their function, {} give another result\n", files.size(),
                             all.rows, all.worse, all.different);
    return all.different > 0 || all.worse > most;
  } catch (const std::exception& e) {
    std::cerr << "spellings: " << e.what() << "\n";
    return 1;
  }
}
