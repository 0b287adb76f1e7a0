"""Ops are highlighted: MkDocs loads this, and Pygments then finds the lexer of the language by the name of the fence."""
import pygments.lexers


def on_startup(**_):
    pygments.lexers.LEXERS["XhLexer"] = ("xh_lexer", "xhat", ("xh",), ("*.xh",), ())
