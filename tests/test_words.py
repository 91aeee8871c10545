"""Plain English in docstrings, comments, messages and pages: CONTRIBUTING.md lists what is refused."""

import ast
import io
import re
import tokenize
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "fairlead"
WRONG = {
    r"(is|are|was|were|be|been) (told|said)": "report, know, read, name",
    r"told of": "reported, known",
    r"passed over": "skipped, ignored",
    r"anew": "again",
    r"another now": "changed",
    r"as usual": "by default",
    r"go(es)? along": "is sent with",
    r"called so": "of that name",
    r"so many": "N, this many, at most N",
    r"whoever": "the caller, anyone who",
    r"on paper": "in a dry run",
    r"let in\b(?! to)": "admitted",
    r"com(es?|ing) to (its|their) end": "ends",
    r"for want of": "without",
    r"manieth": "th",
    r"is to be had": "is available",
    r"what (becomes|became) of": "the end of",
    r"as ever": "unchanged",
    r"as good as": "almost",
    r"at the latest": "by",
    r"drives? out": "push out",
    r"for all of a machine": "for a whole machine",
    r"in the place of": "instead of, replacing",
    r"(are|is) noted": "recorded",
    r"one's own": "your own",
    r"takes? along": "is sent with, needs",
    r"(?<=[.;,] )should (it|they|the|a)": "if it",
    r"without a word": "silently",
}
ANY_WRONG = re.compile(rf"\b(?:{'|'.join(WRONG)})\b", re.IGNORECASE)
PAGES = sorted([ROOT / "README.md", ROOT / "SECURITY.md", ROOT / "CHANGELOG.md", *ROOT.glob("docs/**/*.md")])
FILES = sorted(p for p in SOURCE.rglob("*") if p.suffix in {".py", ".pyx", ".pxi", ".pxd"} and "messages" not in p.parts)


def prose(path):
    """Comments and strings of a file, each with its line."""
    text = path.read_text()
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.lineno, node.value
    else:
        for string in re.finditer(r'"""(.*?)"""', text, re.DOTALL):
            yield text[: string.start()].count("\n") + 1, string[1]
    if not ANY_WRONG.search(text):  # then no comment has anything of it, and no file is taken apart for nothing
        return
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string
    except tokenize.TokenError:  # Cython is not quite Python
        return


def wrong_in(path, lines):
    """What is wrong in numbered texts of a file, with what would be right."""
    return [
        f"{path.relative_to(ROOT)}:{number}: {hit[0]!r}: write {right}"
        for number, text in lines
        if ANY_WRONG.search(text)
        for wrong, right in WRONG.items()
        for hit in re.finditer(rf"\b(?:{wrong})\b", text, re.IGNORECASE)
    ]


def test_sentences_are_plain_english():
    wrong = [each for path in FILES for each in wrong_in(path, prose(path))]
    assert not wrong, "\n".join(wrong)


def lines_without_code(path):
    """Of a page, numbered."""
    text = re.sub(r"```.*?```", lambda block: "\n" * block[0].count("\n"), path.read_text(), flags=re.DOTALL)
    return enumerate(text.splitlines(), 1)


def test_pages_are_plain_english():
    wrong = [each for path in PAGES for each in wrong_in(path, lines_without_code(path))]
    assert not wrong, "\n".join(wrong)


def sentences(page):
    """Sentences of paragraphs and lists; tables, headings and code have none."""
    text = re.sub(r"^( *)```.*?^\1```|<!--.*?-->|^\s*[|#<:].*?$", "\n\n", page, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^\s*([-*]|\d+\.)\s", "\n\n", re.sub(r"\]\([^)]*\)", "]", text), flags=re.MULTILINE)
    for paragraph in re.split(r"\n\s*\n", text):
        yield from re.split(r"(?<=[.!?])[)*\"]*\s+(?=\S)", paragraph)


def test_no_sentence_of_a_page_is_long():
    pages = {path.relative_to(ROOT): sentences(path.read_text()) for path in PAGES}
    long = [f"{path}: {each}" for path, found in pages.items() for each in found if len(each.split()) > 40]
    assert not long, "\n".join(long)
