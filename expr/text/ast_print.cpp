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
      case Kind::reduce: return level_primary;
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
    }
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
    add(node.text + "[");
    list(node.args, true);
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
      after_op_ = line.text == "}";
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
      std::string head = (op.kind == Op::Kind::op ? "op " : "grad ") + op.name + block_head(op.body);
      lines_.push_back({head, 0, op.pos, op.pos.line, 0});
      statements(op.body);
      if (op.backward) {
        lines_.push_back(
            {"} backward " + block_head(*op.backward), 0, op.body.end, op.backward->pos.line, 1});
        statements(*op.backward);
      }
      Pos end = op.backward ? op.backward->end : op.body.end;
      lines_.push_back({"}", 0, end, end.line, 1});
    }
  }
  void statements(const Block& block) {
    for (const Statement& s : block.statements) lines_.push_back({statement(s), 1, s.pos, s.end.line, 1});
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
    std::string text = p.name + ": " + std::string(name_of(p.type));
    for (size_t i = 0; i < p.extents.size(); ++i) {
      text += i > 0 ? "," : "[";
      ExpressionPrinter(file_, text).run(p.extents[i], true);
    }
    if (!p.extents.empty()) text += "]";
    return text + (p.constant ? " const" : "");
  }

  std::string statement(const Statement& s) {
    std::string text = s.kind == Statement::Kind::dim ? "dim " : "";
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
