// Steps of a loop, backward.
#include "runtime/loops/loop_writer.h"

#include <algorithm>

namespace xhat::runtime {

Stmt LoopWriter::list_back(const Steps& steps) {
  std::vector<Stmt> made;
  for (size_t i = steps.size(); i-- > 0;) std::visit([&](const auto& x) { made.push_back(back(x)); }, steps[i].is);
  return made.empty() ? hi::Evaluate::make(0) : hi::Block::make(made);
}

Stmt LoopWriter::back(const Block& b) {
  const LoopBlock& block = blocks.at(&b);
  std::vector<Stmt> made;
  std::vector<Temporary> temporaries;
  auto take_results = [&](bool first) {
    const std::vector<size_t> order = tape_plan.results_in_order(b);
    for (bool computed : {true, false})
      for (size_t k = order.size(); k-- > 0;) {
        if (tape_plan.is_undone_first(b, order[k]) != first || tape_plan.is_computed(b, order[k]) != computed) continue;
        const std::vector<Part> parts = changed(b, order[k]);
        for (size_t i = parts.size(); i-- > 0;) take_back(made, b.results[order[k]], parts[i]);
      }
  };
  const std::vector<size_t> results = tape_plan.results_as_read(b), operands = tape_plan.operands_as_read(b);
  for (size_t k = results.size(); k-- > 0;) pop(made, value(b.results[results[k]]));
  for (size_t k = operands.size(); k-- > 0;) pop(made, copied_row(b, operands[k]));
  take_results(true);
  if (block.backward) made.push_back(nest_of(b, backward_in_place(b, block, adjoints), temporaries));
  for (size_t k = 0; k < b.results.size(); ++k)
    if (is_float_value(b.results[k]) && !is_written_over(b, block, adjoints, k)) made.push_back(clear(adjoint(b.results[k])));
  for (size_t k = block.forward ? block.kept.size() : 0; k-- > 0;) pop(made, kept_part(&b, k));
  take_results(false);
  const std::vector<size_t> rows = copied_rows(b, true);
  for (size_t k = rows.size(); k-- > 0;) pop(made, copied_row(b, rows[k]));
  return with_temporaries(complete(std::move(made)), temporaries);
}

Stmt LoopWriter::back(const Update& u) {
  std::vector<Stmt> made;
  if (is_float_value(u.base)) {
    const Part all = adjoint(u.result), row = row_of(all, u.row, row_offset(u.base, u.row, all.region.strides));
    made.push_back(copy(adjoint(u.value).region, row.region, row, true));
    made.push_back(clear(row));
    if (adjoints.place(u.base) != adjoints.place(u.result)) {
      made.push_back(copy(adjoint(u.base).region, all.region, all, true));
      made.push_back(clear(all));
    }
  }
  if (!tape_plan.is_restored(u.result)) return complete(std::move(made));
  const bool same = place(u.base) == place(u.result);
  const Part all = value(u.result);
  take_back(made, u.result, same ? row_of(all, u.row, row_offset(u.base, u.row, all.region.strides)) : all);
  return complete(std::move(made));
}

Stmt LoopWriter::turns_back(const Loop& l) {
  const std::string name = names("loop");
  auto body = [&](const Turns& turns) {
    const Expr turn = turns.count - 1 - variable(Halide::Int(32), name);
    return with_variable(l, turns, turn, [&] {
      const Stmt s = hi::Block::make(moved_back(moves(l, &Carried::entering, &Carried::leaving)), list_back(l.body));
      return l.condition ? hi::Block::make(s, list_back(l.test)) : s;
    });
  };
  if (!depends_on_data(l)) {
    const Turns turns = turns_of(l);
    auto outer_lets = std::exchange(lets, {});
    const Stmt each = body(turns);
    lets = std::move(outer_lets);
    return complete({serial(name, 0, turns.count, each)});
  }
  const std::string first = names("first"), done = names("done"), going = names("going"), begin = names("begin"), count = names("count");
  std::vector<Stmt> made;
  if (l.condition) pop(made, number_in(going));
  pop(made, number_in(done));
  pop(made, {{first, 0, {}}, Halide::Int(64), {}});
  const Turns turns{variable(Halide::Int(64), begin), variable(Halide::Int(32), count)};
  std::vector<Stmt> undone;
  if (l.condition) {  // the test that ended it
    const Stmt test = with_variable(l, turns, turns.count, [&] { return list_back(l.test); });
    undone.push_back(where(Halide::cast<int32_t>(loaded(Halide::Int(32), going, 0) == 0), test));
  }
  undone.push_back(serial(name, 0, turns.count, body(turns)));
  made.push_back(hi::LetStmt::make(
      begin, loaded(Halide::Int(64), first, 0),
      hi::LetStmt::make(count, loaded(Halide::Int(32), done, 0), undone.size() == 1 ? undone[0] : hi::Block::make(undone))));
  Stmt s = hi::Block::make(made);
  for (const auto& [buffer, t] : {std::pair(going, Halide::Int(32)), std::pair(done, Halide::Int(32)), std::pair(first, Halide::Int(64))})
    s = on_stack(buffer, t, 1, s);
  return s;
}

Stmt LoopWriter::back(const Loop& l) {
  std::vector<Stmt> made = {moved_back(moves(l, &Carried::result, &Carried::entering)), turns_back(l),
                            moved_back(moves(l, &Carried::entering, &Carried::initial))};
  return hi::Block::make(made);
}

Stmt LoopWriter::back(const Branch& b) {
  const std::string taken = names("taken");
  std::vector<Stmt> made;
  pop(made, number_in(taken));
  made.push_back(where(loaded(Halide::Int(32), taken, 0), hi::Block::make(moved_back(merged(b, &Branch::Merge::then)), list_back(b.then)),
                       hi::Block::make(moved_back(merged(b, &Branch::Merge::otherwise)), list_back(b.otherwise))));
  return on_stack(taken, Halide::Int(32), 1, hi::Block::make(made));
}

}  // namespace xhat::runtime
