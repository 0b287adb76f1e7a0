"""The language for Pygments: words, types, functions, numbers, comments."""
from pygments.lexer import RegexLexer, words
from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, Text

__all__ = ["XhLexer"]


class XhLexer(RegexLexer):
    name, aliases, filenames = "xhat", ["xh"], ["*.xh"]
    tokens = {
        "root": [
            (r"#.*", Comment.Single),
            (r"\s+", Text),
            (r"(op|prog|grad|dim|backward|var)\b", Keyword.Declaration),
            (words(("if", "then", "else", "let", "in", "for", "while", "max", "const", "inout"), suffix=r"\b(?!\()"), Keyword),
            (words(("f64", "f32", "f16", "bf16", "i64", "i32", "u32", "u8", "bool"), suffix=r"\b"), Keyword.Type),
            (words(("true", "false", "inf", "nan"), suffix=r"\b"), Keyword.Constant),
            (r"[A-Za-z_]\w*(?=\()", Name.Function),
            (r"[A-Za-z_]\w*", Name),
            (r"\d+(\.\d+)?(e[-+]?\d+)?", Number),
            (r"->|\.\.|[-+*/%^=<>!&|]+", Operator),
            (r".", Punctuation),
        ]
    }
