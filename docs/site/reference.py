"""The pages below reference/, made of what the sources say: the commands' own help, the table of functions, comments of the public headers, docstrings
of the Python package."""
import ast
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
# What users of C++ include, in the order in which a newcomer needs it.
CPP = ("xhat.h", "expr/dsl/dsl.h", "expr/dsl/formulas.h", "expr/dsl/prog.h", "runtime/call/compile.h", "runtime/host/tensor_view.h", "cse/stash/stash_planner.h",
       "ad/reverse/gradient.h", "ad/forward/jvp.h", "ad/forward/transform.h", "ad/check/gradcheck.h", "expr/eval/evaluate.h", "expr/eval/nonfinite.h",
       "runtime/explain/explain.h", "runtime/explain/tuning.h", "runtime/ahead/build/registered_ops.h", "runtime/interop/eigen.h", "runtime/interop/dlpack.h", "runtime/interop/mdspan.h")
LAZY = ("runtime/lazy/array.h", "runtime/lazy/functions.h", "runtime/lazy/options.h")
PYTHON = ("__init__", "dsl", "torch", "jax")


def code(text, language):
    return f"```{language}\n{text.rstrip()}\n```\n"


def commands(run):
    out = ["# Commands\n\nWhat `xhat SUBCOMMAND --help` prints, as of this version.\n", code(run("--help"), "text")]
    for name in re.findall(r"^  ([a-z]+)  ", run("--help").split("Subcommands:")[1], re.M):
        out.append(f"## xhat {name}\n\n" + code(run(name, "--help"), "text"))
    return "\n".join(out)


def op_rows():
    """(text, syntax, operands, type rule, parity, price in ps, partial derivatives) of each row of the table."""
    source = (ROOT / "expr/core/ops.def").read_text()
    macros = dict(re.findall(r"#define (\w+)\s*\\?\s*\n?\s*(\"[^\n]*\")", source))
    for name, text in macros.items():
        source = re.sub(rf"(?<!#define )\b{name}\b", lambda _: text, source)
    row = re.compile(r'^XHAT_OP\(\s*(\w+)\s*,\s*"([^"]*)"\s*,\s*(\w+)\s*,\s*(-?\d+)\s*,\s*(\w+)\s*,\s*(\w+)\s*,\s*(\d+)\s*((?:,\s*"[^"]*"\s*)*)\)', re.M)
    return [(m[2], m[3], int(m[4]), m[5], m[6], int(m[7]), re.findall(r'"([^"]*)"', m[8])) for m in row.finditer(source)]


def functions():
    kinds = {"same_float": "floats", "same": "numbers", "compare": "numbers, gives bool", "logic": "bool", "classify": "floats, gives bool", "any": "see the language"}
    out = ["# Functions and operators\n\nThe table that parser, evaluator, gradients and cost read ([expr/core/ops.def](../expr/core/ops.def.md)). `a`, `b`, `c` are the operands, "
           "`r` is the result. What each does at special values is in [the language](../docs/language.md#functions).\n",
           "| | operands | of | parity | derivative to each operand | price, ps an element |", "|---|--:|---|---|---|--:|"]
    for text, syntax, operands, kind, parity, price, partials in op_rows():
        if syntax == "special":
            continue
        shown = text if syntax != "function" else f"{text}({','.join('abc'[:operands])})"
        derivative = ", ".join(f"`{p}`" if len(p) < 120 else "a series, in the table" for p in partials)
        out.append(f"| `{shown}` | {operands} | {kinds.get(kind, kind)} | {parity if parity != 'none' else ''} | {derivative} | {price} |")
    return "\n".join(out) + "\n"


def closing(line, at):
    """Where the parenthesis at `at` closes, or None."""
    depth = 0
    for i in range(at, len(line)):
        depth += (line[i] == "(") - (line[i] == ")")
        if depth == 0:
            return i
    return None


def without_body(line):
    """(the line as a declaration, whether its body goes on below)."""
    at = line.find("(", line.find("operator()") + 10 if "operator()" in line else 0)
    end = closing(line, at) if at >= 0 else None
    if end is None:
        return line, False
    rest = re.fullmatch(r"((?:\s*(?:const|noexcept|override|&&?))*)\s*(?::[^:].*)?\{(.*)", line[end + 1:])
    if not rest or re.match(r"\s*(struct|class|enum|union|inline constexpr|if|for)\b", line):
        return line, False
    return line[:end + 1] + rest[1] + ";", not rest[2].rstrip().endswith("}")


def without_bodies(lines):
    """Declarations: functions lose their bodies, classes what is private."""
    out, private, indent, skip = [], False, 0, None  # skip: the indentation of a body that is left out
    for line in lines:
        own = len(line) - len(line.lstrip())
        if skip is not None:
            skip = None if own <= skip and line.strip().startswith("}") else skip
        elif private and not (own <= indent and line.strip().startswith("}")) and line.strip() != "public:":
            pass
        elif line.strip() in ("private:", "protected:"):
            private, indent = True, own - 1
        elif re.match(r"\s*: \w+\(.*\{(.*\})?$", line):  # initializers of members
            out[-1] += ";"
            skip = None if line.endswith("}") else own - 6
        else:
            private = False
            line, more = without_body(line)
            skip = own if more else None
            if line.startswith("}"):
                while out and not out[-1]:
                    out.pop()
            out.append(line)
    return out


def declarations(path):
    """(what the head says, [(comment, declaration)]) of a header."""
    lines = (ROOT / path).read_text().split("\n")
    at = next(i for i, line in enumerate(lines) if not line.startswith("//"))
    head = [line[3:] for line in lines[:at]]
    items, comment, i = [], [], at
    inside = 0  # of a namespace that is not for users: braces that are open
    while i < len(lines):
        line = lines[i]
        i += 1
        if inside or re.match(r"namespace (\w+::)?(detail|runtime)\b", line):
            inside += line.count("{") - line.count("}")
        elif line.startswith("#"):
            while line.endswith("\\"):
                line = lines[i]
                i += 1
            comment = []
        elif line.startswith("//"):
            comment.append(line[3:])
        elif not line.strip() or re.match(r"(namespace|\}|using )", line):
            if comment and not line.strip():
                items.append(("\n".join(comment), ""))
            comment = []
        else:
            block = [line]
            braces = line.count("{") - line.count("}")
            while i < len(lines) and (braces > 0 or not re.search(r"[;})]\s*(//.*)?$|^[A-Z_]+\(.*\)", block[-1]) or (braces == 0 and re.search(r"\)$|>$", block[-1]) and not re.match(r"[A-Z_]+\(", block[0]))):
                block.append(lines[i])
                braces += lines[i].count("{") - lines[i].count("}")
                i += 1
            if not re.match(r"(struct|class) \w+;", block[0]):
                items.append(("\n".join(comment), "\n".join(without_bodies(block))))
                comment = []
    return head, items


def prose(line):
    """A line of a comment, in which only backticks mean something."""
    parts = line.split("`")
    parts[::2] = [re.sub(r"([*_|\[\]])", r"\\\1", p).replace("<", "&lt;").replace(">", "&gt;") for p in parts[::2]]
    return "`".join(parts)


def as_text(lines):
    """A comment as Markdown: indented parts are code."""
    out, fenced = [], False
    for line in lines:
        indented = line.startswith("  ")
        if indented != fenced and (indented or line.strip()):
            out.append("\n```cpp" if indented else "```\n")
            fenced = indented
        out.append(line[2:] if fenced else prose(line))
    return "\n".join(out + (["```"] if fenced else []))


def header(path):
    head, items = declarations(path)
    out = [f"## {path}\n", as_text(head) + "\n"]
    group = []  # declarations that share a block: those without a comment go with the one before
    for comment, declaration in items:
        lines = [f"// {line}".rstrip() for line in comment.split("\n")] if comment else []
        if comment and group:
            group.append("")
        macro = re.fullmatch(r"(XHAT_\w+)\((.*)\)(\s*//.*)?", declaration)
        if macro and group and group[-1].startswith(f"// {macro[1]}: "):
            group[-1] += f" {macro[2]}"
        elif declaration:
            group += lines + [f"// {macro[1]}: {macro[2]}" if macro else declaration]
        else:
            group += lines
    return "\n".join(out) + "\n" + (code("\n".join(group), "cpp") if group else "")


def headers(title, intro, paths):
    return f"# {title}\n\n{intro}\n\n" + "\n".join(header(p) for p in paths)


def signature(node):
    text = ast.unparse(node.args)
    return f"{node.name}({text})"


def docstring(node, level):
    text = ast.get_docstring(node) or ""
    out, fenced = [], False
    for line in text.split("\n"):
        indented = line.startswith("    ")
        if indented != fenced and (indented or line.strip()):
            out.append("\n```python" if indented else "```\n")
            fenced = indented
        out.append(line[4:] if fenced else line)
    return "\n".join(out + (["```"] if fenced else [])) + "\n"


def extension():
    """Classes of the extension, from the docstrings that stand where they are bound."""
    source = (ROOT / "python/src/module.cpp").read_text()
    source = re.sub(r'"\s*\n\s*"', "", source)  # texts of several lines
    out = []
    for name, text, members in re.findall(r'nb::class_<\w+>\(m, "(\w+)", "([^"]*)"\)(.*?);\n', source.replace("\n      ", " "), re.S):
        out.append(f"### xhat.{name}\n\n{text}\n")
        for kind, member, rest in re.findall(r'\.(def|def_prop_ro|def_ro)\(\s*"(\w+)",(.*?)(?=\s\.def|$)', members, re.S):
            said = re.findall(r'"([^"]*)"\)\s*$', rest.strip())
            if said and not member.startswith("_") or member == "__call__":
                shown = name.lower() + "(…)" if member == "__call__" else f"{member}(…)" if kind == "def" else member
                out.append(f"- `{shown}`: {said[0]}")
        out.append("")
    return "\n".join(out)


def python():
    out = ["# Python\n\nFrom the docstrings. [The guide](../docs/python.md) has programs, and says what arrays may be.\n"]
    for name in PYTHON:
        tree = ast.parse((ROOT / f"python/xhat/{name}.py").read_text())
        module = "xhat" if name == "__init__" else f"xhat.{name}"
        out.append(f"## {module}\n\n{docstring(tree, 3)}")
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and ast.get_docstring(node):
                out.append(f"### {module}.{signature(node)}\n\n{docstring(node, 4)}")
            elif isinstance(node, ast.ClassDef) and not node.name.startswith("_") and ast.get_docstring(node):
                out.append(f"### {module}.{node.name}\n\n{docstring(node, 4)}")
                for member in node.body:
                    if isinstance(member, ast.FunctionDef) and not member.name.startswith("_") and ast.get_docstring(member):
                        out.append(f"#### {signature(member)}\n\n{docstring(member, 5)}")
            elif name == "__init__" and isinstance(node, ast.FunctionDef) and node.name in ("_explain", "_check", "_viz"):
                out.append(f"### Op{signature(node).replace('_', '.', 1).replace('self, ', '')}\n\n{docstring(node, 4)}")
        if name == "__init__":
            out.append(extension())
    return "\n".join(out)


def pages(run):
    return {
        "reference/commands.md": commands(run),
        "reference/functions.md": functions(),
        "reference/cpp.md": headers("C++", "What `#include <xhat/xhat.h>` and the headers for Eigen, DLPack and mdspan declare, from their comments. Programs open "
                                    "`xhat::dsl`, which has what users need of `xhat`.", CPP),
        "reference/lazy.md": headers("Lazy arrays in C++", "What `#include <xhat/lazy.h>` declares, from its comments. [The guide](../docs/lazy.md) says what runs when.", LAZY),
        "reference/python.md": python(),
    }
