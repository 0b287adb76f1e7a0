// Tree to canonical text.
//
// Signs have spaces around them, except ^ and inside index brackets, extents and ranges, where everything
// stands tight: x[n,2*i+r-1]. Expressions are printed from a stack of pieces (text, or a node yet to be taken
// apart), so that chains take no recursion. Comments, where kept, are merged in by line: what stands on its
// own line comes before the next statement, brace or op; what stands beside a statement stays beside it.
#include <algorithm>

#include "expr/core/syntax.h"
#include "expr/text/ast.h"

namespace xhat::ast {
namespace {

class ExpressionPrinter {
 public:
  ExpressionPrinter(const File& file, std::string& out) : file_(file), out_(out) {}

  void run(Ref root, bool tight) {
    add(root, level_open, tight);
    write();
  }

  void left_side(const std::vector<Axis>& list) {
    axes(list, false);
    write();
  }

 private:
  struct Piece {
    std::string text;
    Ref node = kAbsent;
    Level level = level_open;  // what the place asks for
    bool tight = false;
  };

  void write() {
    flush();
    while (!stack_.empty()) {
      Piece piece = std::move(stack_.back());
      stack_.pop_back();
      if (piece.node == kAbsent) {
        out_ += piece.text;
        continue;
      }
      take_apart(piece);
      flush();
    }
  }
  void add(std::string text) { pieces_.push_back({std::move(text)}); }
  void add(Ref node, Level level, bool tight) { pieces_.push_back({{}, node, level, tight}); }
  void flush() {
    std::move(pieces_.rbegin(), pieces_.rend(), std::back_inserter(stack_));
    pieces_.clear();
  }

  void axes(const std::vector<Axis>& list, bool spaced) {
    for (const Axis& axis : list) spaced = spaced || axis.begin != kAbsent;
    for (size_t i = 0; i < list.size(); ++i) {
      if (i > 0) add(spaced ? ", " : ",");
      add(list[i].name);
      if (list[i].begin == kAbsent) continue;
      add(" in ");
      add(list[i].begin, level_open, true);
      add("..");
      add(list[i].end, level_open, true);
    }
  }
  static Level level_of(const Node& node) {
    switch (node.kind) {
      case Kind::number: return node.text.starts_with('-') ? level_unary : level_primary;  // built by a pass
      case Kind::unary: return level_unary;
      case Kind::binary: return infix_level(node.text);
      case Kind::choose:
      case Kind::let: return level_open;
      case Kind::boolean:
      case Kind::name:
      case Kind::read:
      case Kind::call:
      case Kind::reduce:
      case Kind::index:
      case Kind::method:
      case Kind::filled: return level_primary;
      case Kind::slice:
      case Kind::range: return level_open;
    }
    throw Bug("unknown kind of syntax node");
  }

  void take_apart(const Piece& piece) {
    const Node& node = file_.nodes[piece.node];
    bool parentheses = level_of(node) < piece.level;
    if (parentheses) add("(");
    parts(node, piece.tight);
    if (parentheses) add(")");
  }

  void parts(const Node& node, bool tight) {
    switch (node.kind) {
      case Kind::number:
      case Kind::boolean:
      case Kind::name: return add(node.text);
      case Kind::unary: add(node.text); return add(node.args[0], level_unary, tight);
      case Kind::binary: return binary(node, tight);
      case Kind::choose:
        add("if ");
        add(node.args[0], level_open, tight);
        add(" then ");
        add(node.args[1], level_open, tight);
        add(" else ");
        return add(node.args[2], level_open, tight);
      case Kind::let:
        add("let " + node.text + (tight ? "=" : " = "));
        add(node.args[0], level_open, tight);
        add(" in ");
        return add(node.args[1], level_open, tight);
      case Kind::read: return read(node);
      case Kind::call:
        add(node.text + "(");
        list(node.args, tight);
        return add(")");
      case Kind::reduce: return reduce(node, tight);
      case Kind::slice: return slice(node);
      case Kind::index: add(node.args[0], level_primary, tight); return brackets(node, 1);
      case Kind::method: return method(node, tight);
      case Kind::filled: return filled(node);
      case Kind::range:
        add(node.text + " in ");
        add(node.args[0], level_open, true);
        add("..");
        return add(node.args[1], level_open, true);
    }
  }

  // 1:, :2, ::2 and the like: a step has both colons before it.
  void slice(const Node& node) {
    for (size_t part = 0; part < 3; ++part) {
      if (part == 1 || (part == 2 && node.args[2] != kAbsent)) add(":");
      if (node.args[part] != kAbsent) add(node.args[part], level_open, true);
    }
  }
  void method(const Node& node, bool tight) {
    const bool extents = node.text == "reshape" || node.text == "expand";
    add(node.args[0], level_primary, tight);
    add("." + node.text + (extents ? "[" : "("));
    list({node.args.begin() + 1, node.args.end()}, true);
    add(extents ? "]" : ")");
  }
  void filled(const Node& node) {
    add(node.args[0] == kAbsent ? "zeros " : "full(");
    if (node.args[0] != kAbsent) {
      add(node.args[0], level_open, false);
      add(") ");
    }
    add(node.text);
    if (node.args.size() > 1) brackets(node, 1);
  }

  void binary(const Node& node, bool tight) {
    Level level = infix_level(node.text);
    auto above = [](Level l) { return static_cast<Level>(l + 1); };
    bool power = level == level_power;
    add(node.args[0], power || level == level_compare ? above(level) : level, tight);
    add(tight || power ? node.text : " " + node.text + " ");
    add(node.args[1], power ? level_unary : above(level), tight);
  }

  void list(const std::vector<Ref>& items, bool tight) {
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) add(tight ? "," : ", ");
      add(items[i], level_open, tight);
    }
  }

  void read(const Node& node) {
    add(node.text);
    brackets(node, 0);
  }
  void brackets(const Node& node, size_t first) {
    const auto begin = node.args.begin() + static_cast<std::ptrdiff_t>(first);
    const bool spaced = std::any_of(begin, node.args.end(), [&](Ref r) { return file_.nodes[r].kind == Kind::range; });
    add("[");
    for (auto at = begin; at != node.args.end(); ++at) {
      if (at != begin) add(spaced ? ", " : ",");
      add(*at, level_open, true);
    }
    if (node.otherwise != kAbsent) {
      add(" else ");
      add(node.otherwise, level_open, true);
    }
    add("]");
  }

  void reduce(const Node& node, bool tight) {
    add(node.text + "(");
    axes(node.axes, node.condition != kAbsent);
    if (node.condition != kAbsent) {
      add(" if ");
      add(node.condition, level_open, tight);
    }
    add(": ");
    add(node.args[0], level_open, tight);
    add(")");
  }

  const File& file_;
  std::string& out_;
  std::vector<Piece> pieces_;  // in order, of the node being taken apart
  std::vector<Piece> stack_;   // what is still to be written, next one last
};

// The lines of a file: one for each head, statement and closing brace.
class FilePrinter {
 public:
  FilePrinter(const File& file, bool keep_comments) : file_(file), keep_comments_(keep_comments) {
    list_lines();
    if (keep_comments) place_comments();
  }

  std::string run() {
    for (const Line& line : lines_) {
      for (const Comment* comment : line.before) own_line(*comment, line.comment_depth);
      bool closes = line.text.starts_with("}");
      blank_line_before(line.pos.line, closes);
      out_ += indent(line.depth) + line.text + line.beside + '\n';
      last_line_ = std::max({last_line_, line.pos.line, line.end_line});
      after_op_ = line.text == "}" && line.depth == 0;
      opened_ = line.text.ends_with("{");
    }
    for (const Comment* comment : at_end_) own_line(*comment, 0);
    return std::move(out_);
  }

 private:
  struct Line {
    std::string text;
    int depth;
    Pos pos;            // in the text that was parsed
    int end_line;       // there
    int comment_depth;  // of comments that come before it
    std::vector<const Comment*> before = {};
    std::string beside = {};
  };

  static std::string indent(int depth) { return std::string(static_cast<size_t>(depth) * 2, ' '); }

  void list_lines() {
    for (const Op& op : file_.ops) {
      const char* words[] = {"op ", "grad ", "prog "};
      std::string head = words[static_cast<int>(op.kind)] + op.name + block_head(op.body);
      lines_.push_back({head, 0, op.pos, op.pos.line, 0});
      statements(op.body.statements, 1);
      if (op.backward) {
        lines_.push_back({"} backward " + block_head(*op.backward), 0, op.body.end, op.backward->pos.line, 1});
        statements(op.backward->statements, 1);
      }
      Pos end = op.backward ? op.backward->end : op.body.end;
      lines_.push_back({"}", 0, end, end.line, 1});
    }
  }
  void statements(const std::vector<Statement>& list, int depth) {
    for (const Statement& s : list) {
      const bool control = s.kind == Statement::Kind::loop || s.kind == Statement::Kind::repeat || s.kind == Statement::Kind::branch;
      if (control) {
        control_lines(s, depth, "");
      } else {
        lines_.push_back({statement(s), depth, s.pos, s.end.line, depth});
      }
    }
  }
  // `before`: the closing brace and `else` of the branch that this one continues.
  void control_lines(const Statement& s, int depth, const std::string& before) {
    auto text = [&](Ref r, bool tight) {
      std::string out;
      ExpressionPrinter(file_, out).run(r, tight);
      return out;
    };
    std::string head = before;
    if (s.kind == Statement::Kind::loop) head += "for " + s.targets[0].text + " in " + text(s.first, true) + ".." + text(s.last, true);
    if (s.kind == Statement::Kind::repeat) head += "while " + text(s.body, false) + " max " + text(s.last, false);
    if (s.kind == Statement::Kind::branch) head += "if " + text(s.body, false);
    lines_.push_back({head + " {", depth, s.pos, s.pos.line, before.empty() ? depth : depth + 1});
    statements(s.statements, depth + 1);
    if (s.has_otherwise && s.otherwise.size() == 1 && s.otherwise[0].kind == Statement::Kind::branch)
      return control_lines(s.otherwise[0], depth, "} else ");
    if (s.has_otherwise) {
      lines_.push_back({"} else {", depth, s.otherwise_pos, s.otherwise_pos.line, depth + 1});
      statements(s.otherwise, depth + 1);
    }
    lines_.push_back({"}", depth, s.end, s.end.line, depth + 1});
  }

  // A comment on its own line goes before the line of ours that comes next, another one beside the line it
  // stands in.
  void place_comments() {
    size_t next = 0;  // the first line that begins below the comment
    for (const Comment& comment : file_.comments) {
      while (next < lines_.size() && lines_[next].pos.line <= comment.line) ++next;
      if (!comment.own_line && next > 0) {
        lines_[next - 1].beside += "  " + comment.text;
        lines_[next - 1].end_line = std::max(lines_[next - 1].end_line, comment.line);
      } else {
        (next < lines_.size() ? lines_[next].before : at_end_).push_back(&comment);
      }
    }
  }

  void own_line(const Comment& comment, int depth) {
    blank_line_before(comment.line, false);
    out_ += indent(depth) + comment.text + '\n';
    last_line_ = std::max(last_line_, comment.line);
    opened_ = false;
  }

  // Always between ops; elsewhere, with comments kept, where the text has one, but not at the ends of a
  // block.
  void blank_line_before(int line, bool closes) {
    bool in_text = keep_comments_ && line > last_line_ + 1 && !opened_ && !closes;
    if (!out_.empty() && (after_op_ || in_text)) out_ += '\n';
    after_op_ = false;
  }

  std::string block_head(const Block& block) {
    std::string text = "(";
    for (const Parameter& p : block.parameters) text += (text.size() > 1 ? ", " : "") + parameter(p);
    text += ") -> (";
    for (size_t i = 0; i < block.outputs.size(); ++i) text += (i > 0 ? ", " : "") + block.outputs[i].text;
    return text + ") {";
  }

  std::string parameter(const Parameter& p) {
    if (!p.typed) return p.name;
    std::string text = p.name + (p.inout ? ": inout " : ": ") + std::string(name_of(p.type));
    for (size_t i = 0; i < p.extents.size(); ++i) {
      text += i > 0 ? "," : "[";
      ExpressionPrinter(file_, text).run(p.extents[i], true);
    }
    if (!p.extents.empty()) text += "]";
    return text + (p.constant ? " const" : "");
  }

  std::string statement(const Statement& s) {
    std::string text = s.kind == Statement::Kind::dim ? "dim " : s.kind == Statement::Kind::variable ? "var " : "";
    if (s.kind == Statement::Kind::assign) {
      ExpressionPrinter(file_, text).run(s.place, false);
      text += " " + s.sign + " ";
      ExpressionPrinter(file_, text).run(s.body, false);
      return text;
    }
    bool several = s.targets.size() > 1;
    if (several) text += "(";
    for (size_t i = 0; i < s.targets.size(); ++i) text += (i > 0 ? ", " : "") + s.targets[i].text;
    if (several) text += ")";
    if (!s.axes.empty()) {
      text += "[";
      ExpressionPrinter(file_, text).left_side(s.axes);
      text += "]";
    }
    text += " = ";
    ExpressionPrinter(file_, text).run(s.body, false);
    return text;
  }

  const File& file_;
  bool keep_comments_;
  std::vector<Line> lines_;
  std::vector<const Comment*> at_end_;
  std::string out_;
  int last_line_ = 0;  // of the parsed text, among what is written
  bool after_op_ = false;
  bool opened_ = false;
};

}  // namespace

std::string print(const File& file, bool keep_comments) { return FilePrinter(file, keep_comments).run(); }

std::string print(const File& file, Ref expression) {
  std::string out;
  ExpressionPrinter(file, out).run(expression, false);
  return out;
}

}  // namespace xhat::ast
