"""Canonical text of an answer: one spelling for what LaTeX, Unicode and plain text write in many ways.

All functions expect text of bounded length and take linear time, or quadratic time in the number of `\\frac`.
"""

from __future__ import annotations

import re

_UNICODE = str.maketrans(
    {
        **dict.fromkeys("−–—‐‑‒﹣－", "-"),
        **dict.fromkeys(
            "\u00a0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000\t\n\r\f\v", " "
        ),
        **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff", ""),
        **{chr(0xFF10 + i): str(i) for i in range(10)},
        **dict(zip("（）［］｛｝，．：；＝＋＜＞％", "()[]{},.:;=+<>%", strict=True)),
        **dict.fromkeys("‘’′", "'"),
        **dict.fromkeys("“”", '"'),
        "π": r"\pi ",
        "θ": r"\theta ",
        "α": r"\alpha ",
        "β": r"\beta ",
        "φ": r"\phi ",
        "λ": r"\lambda ",
        "∞": r"\infty ",
        "°": r"^\circ ",
        "º": r"^\circ ",
        "≥": r"\ge ",
        "⩾": r"\ge ",
        "≤": r"\le ",
        "⩽": r"\le ",
        "≠": r"\ne ",
        "≈": r"\approx ",
        "→": r"\to ",
        "⇒": r"\to ",
        "×": r"\cdot ",
        "·": r"\cdot ",
        "⋅": r"\cdot ",
        "∙": r"\cdot ",
        "÷": "/",
        "∕": "/",
        "⁄": "/",
        "±": r"\pm ",
        "∪": r"\cup ",
        "∩": r"\cap ",
        "∈": r"\in ",
        "∅": r"\emptyset ",
        "ℝ": r"\mathbb{R}",
        "ℤ": r"\mathbb{Z}",
        "⟨": r"\langle ",
        "⟩": r"\rangle ",
        "⌊": r"\lfloor ",
        "⌋": r"\rfloor ",
        "⌈": r"\lceil ",
        "⌉": r"\rceil ",
        "½": r"\frac{1}{2}",
        "⅓": r"\frac{1}{3}",
        "⅔": r"\frac{2}{3}",
        "¼": r"\frac{1}{4}",
        "¾": r"\frac{3}{4}",
        "⅕": r"\frac{1}{5}",
        "⅛": r"\frac{1}{8}",
        "€": "",
        "£": "",
    }
)
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻ⁿ", "0123456789-n")
_SUPERSCRIPT_RUN = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻ⁿ]+")

_SPELLINGS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\\!\s*", ""),
        (r"\{\s*,\s*\}", ","),
        (r"(?<=[0-9])\\[,;: ](?=[0-9]{3}(?![0-9]))", ""),  # 12\,345
        (r"\\(?:left|right|[bB]igg?[lrm]?)(?![A-Za-z])(?:\s*\.(?![0-9]))?", ""),
        (
            r"\\(?:displaystyle|textstyle|scriptstyle|limits|nolimits|quad|qquad|thinspace|hfill)(?![A-Za-z])",
            " ",
        ),
        (r"(?<!\\)\\[,;: ]", " "),
        (r"~", " "),
        (r"\$\s*([,;])\s*\$", r"\1 "),  # $69$,$84$ is a list, not 69,84
        (r"\\\$|\$|(?<!\\)\\[()\[\]]", ""),
        (r"\\(?:l|r)vert(?![A-Za-z])|\\(?:mid|vert)(?![A-Za-z])", "|"),
        (r"\\lbrace(?![A-Za-z])", r"\\{"),
        (r"\\rbrace(?![A-Za-z])", r"\\}"),
        (r"\\lbrack(?![A-Za-z])", "["),
        (r"\\rbrack(?![A-Za-z])", "]"),
        (r"\\langle(?![A-Za-z])", "("),
        (r"\\rangle(?![A-Za-z])", ")"),
        (r"\\[dtc]frac(?![A-Za-z])", r"\\frac"),
        (r"\\[dt]binom(?![A-Za-z])", r"\\binom"),
        (r"\\(?:times|ast|bullet)(?![A-Za-z])", r"\\cdot "),
        (r"\\div(?![A-Za-z])", "/"),
        (r"\\lg(?![A-Za-z])", r"\\log_{10} "),
        (r"\\(?:leqslant|leqq?|le)(?![A-Za-z])|<=", r"\\le "),
        (r"\\(?:geqslant|geqq?|ge)(?![A-Za-z])|>=", r"\\ge "),
        (r"\\lt(?![A-Za-z])", "<"),
        (r"\\gt(?![A-Za-z])", ">"),
        (r"\\neq?(?![A-Za-z])|\\not\s*=", r"\\ne "),
        (r"\\(?:approx|simeq|thickapprox)(?![A-Za-z])", r"\\approx "),
        (r"\\(?:rightarrow|Rightarrow|implies|iff|longrightarrow|to)(?![A-Za-z])", r"\\to "),
        (r"\\(?:varnothing|emptyset)(?![A-Za-z])|\\\{\s*\\\}", r"\\emptyset "),
        (r"\\(?:mathbb|mathbf)\s*\{?\s*([RZNQC])\s*\}?", r"\\mathbb{\1}"),
        (r"\\(?:mathrm|operatorname|mathit|mathsf|rm)\s*\{\s*(?:i|\\i)\s*\}", "i"),
        (r"\^\s*\{?\s*\\(?:circ|degree)\s*\}?|\\degree(?![A-Za-z])|\\textdegree(?![A-Za-z])", r"^\\circ "),
        (r"\+\s*\\infty|\+\s*\binfinity\b|\binfinity\b", r"\\infty "),
        (r"\\(?:mathrm|mathbf|mathit|rm|bf)\s+(?=[A-Za-z0-9])", ""),
        (r"\\%", "%"),
        (r"(?<![*\\])\*(?![*])", r"\\cdot "),
        (r"(?<=[0-9A-Za-z)])\*\*(?=[-0-9A-Za-z(])", "^"),
        (r"[*]{2,}|`", ""),
    )
)

_FONT = re.compile(
    r"\\(?:(?P<box>boxed|fbox|phantom|underline)"
    r"|(?P<math>mathrm|mathbf|mathit|mathsf|mathtt|mathnormal|operatorname\*?|bm|boldsymbol)"
    r"|(?P<text>text(?:normal|rm|bf|it|tt|sf|sc)?|mbox|hbox|emph))\s*\{"
)
_WORDY = re.compile(r"[A-Za-z]")
_SEVERAL_LETTERS = re.compile(r"[A-Za-z ]{2,}")
_TEXT = re.compile(r"\\text\{([^{}]*)\}")
_FUNCTIONS = frozenset(
    [
        "sin",
        "cos",
        "tan",
        "cot",
        "sec",
        "csc",
        "arcsin",
        "arccos",
        "arctan",
        "sinh",
        "cosh",
        "tanh",
        "ln",
        "log",
        "exp",
        "lcm",
        "gcd",
        "min",
        "max",
        "det",
        "arg",
    ]
)
_PLAIN_FUNCTION = re.compile(
    r"(?<![A-Za-z\\])(arcsin|arccos|arctan|sinh|cosh|tanh|sin|cos|tan|cot|sec|csc|ln|log|exp)(?=\s*[({\\0-9]|\s+[a-z]\b)"
)
_PLAIN_PI = re.compile(r"(?<![A-Za-z\\])pi(?![A-Za-z])")
_ROOT_SIGN = re.compile(r"√\s*([0-9]+)?")
_PLAIN_SQRT = re.compile(r"(?<![A-Za-z\\])sqrt(?![A-Za-z])")
_PROSE_IS = re.compile(r"^[A-Za-z][A-Za-z ,']{0,80}\bis:?\s+(?=[-+0-9\\(\[{.])")
_MIXED_SLASH = re.compile(r"(?<![0-9.^_}/])([0-9]{1,12})\s+([0-9]{1,12})\s*/\s*([0-9]{1,12})(?![0-9]|\.[0-9])")
_MIXED_FRAC = re.compile(r"(?<![0-9.^_}/A-Za-z])([0-9]{1,12})\s*\\frac\{([0-9]{1,12})\}\{([0-9]{1,12})\}")
_SPACED_THOUSANDS = re.compile(r"(?<![0-9., ])[0-9]{1,3}(?: [0-9]{3}){1,20}(?![0-9 ])")


class UnbalancedError(ValueError):
    """Braces of the text do not match."""


def canonical(text: str) -> str:
    """Canonical text of an answer.

    Words stay wrapped as `\\text{...}`; `\\frac`, `\\binom` and `\\sqrt` get braces; mixed numbers become sums in
    parentheses; products are `\\cdot`; sizes, spacing, dollar signs, fonts and trailing punctuation go.

    Raises:
        UnbalancedError: braces do not match.
    """
    text = text.translate(_UNICODE)
    text = _ROOT_SIGN.sub(lambda m: "\\sqrt" + (f"{{{m.group(1)}}}" if m.group(1) else " "), text)
    text = _SUPERSCRIPT_RUN.sub(lambda m: "^{" + m.group().translate(_SUPERSCRIPTS) + "}", text)
    text = text.strip(" $*")
    for pattern, replacement in _SPELLINGS:
        text = pattern.sub(replacement, text)
    text = _unwrap_fonts(text)
    text = _PLAIN_SQRT.sub(r"\\sqrt", _PLAIN_PI.sub(r"\\pi ", text))
    text = _PLAIN_FUNCTION.sub(r"\\\1", text)
    for command, arguments in (("\\sqrt", 1), ("\\binom", 2), ("\\frac", 2)):
        text = _brace_arguments(text, command, arguments)
    text = _MIXED_SLASH.sub(r"(\1+\\frac{\2}{\3})", text)
    text = _MIXED_FRAC.sub(r"(\1+\\frac{\2}{\3})", text)
    text = _SPACED_THOUSANDS.sub(lambda m: m.group().replace(" ", ""), text)
    text = _strip_ends(" ".join(text.split()))
    while text.startswith("{") and matching(text, 0) == len(text) - 1:
        text = _strip_ends(text[1:-1])
    return text


def key(text: str) -> str:
    """Text for comparison by characters: canonical text without the spaces that mean nothing."""
    return re.sub(r"(?<![0-9]) | (?![0-9])", "", text)


def _strip_ends(text: str) -> str:
    """Without surrounding spaces, asterisks and trailing punctuation."""
    text = text.strip(" *")
    while text and text[-1] in ".,;:\\*":
        text = text[:-1].rstrip(" *")
    return text


def _unwrap_fonts(text: str) -> str:
    """Fonts around mathematics go; around words they become `\\text{...}`; a sentence `... is X` becomes `X`."""
    for font in reversed(list(_FONT.finditer(text))):  # inner ones first
        closing = matching(text, font.end() - 1)
        content = " ".join(text[font.end() : closing].split())
        text = text[: font.start()] + _unwrapped(font, content) + text[closing + 1 :]
    plain = _TEXT.sub(r"\1 ", text)
    is_prose = _PROSE_IS.match(plain)
    return plain[is_prose.end() :] if is_prose else text


def _unwrapped(font: re.Match[str], content: str) -> str:
    if font["math"] and content in _FUNCTIONS:
        return f"\\{content} "
    is_words = bool(font["text"] and _WORDY.search(content) and "\\" not in content)
    is_words = is_words or bool(font["math"] and _SEVERAL_LETTERS.fullmatch(content))
    return f"\\text{{{content}}}" if is_words else f" {content} "


def _brace_arguments(text: str, command: str, arguments: int) -> str:
    """Gives every `command` arguments in braces: `\\frac43`, `\\frac 4{3}`, `\\sqrt2`, `\\sqrt(2)`."""
    end = len(text)
    while (start := text.rfind(command, 0, end)) >= 0:
        end = start
        position = start + len(command)
        if text[position : position + 1].isalpha():
            continue
        pieces = []
        if command == "\\sqrt":
            position = _skip_spaces(text, position)
            if text[position : position + 1] == "[":
                close = text.find("]", position)
                if close < 0:
                    raise UnbalancedError(command)
                pieces.append(text[position : close + 1])
                position = close + 1
        for _ in range(arguments):
            piece, position = _argument(text, position)
            pieces.append("{" + piece + "}")
        text = text[:start] + command + "".join(pieces) + text[position:]
    return text


def _skip_spaces(text: str, position: int) -> int:
    while position < len(text) and text[position] == " ":
        position += 1
    return position


_SINGLE = re.compile(r"\\[A-Za-z]+|[0-9A-Za-z]")


def _argument(text: str, position: int) -> tuple[str, int]:
    """One argument of a command, and the position after it."""
    position = _skip_spaces(text, position)
    opening = text[position : position + 1]
    if opening in ("{", "("):
        closing = matching(text, position)
        return text[position + 1 : closing].strip(), closing + 1
    single = _SINGLE.match(text, position)
    if single is None:
        raise UnbalancedError("a command without its argument")
    return single.group(), single.end()


def matching(text: str, position: int) -> int:
    """Position of the brace or parenthesis that closes the one at `position`.

    Only brackets of the same kind are counted.

    Raises:
        UnbalancedError: there is none.
    """
    opening = text[position]
    closing = {"{": "}", "(": ")", "[": "]"}[opening]
    depth = 0
    i = position
    while i < len(text):
        if text[i] == "\\" and text[i + 1 : i + 2] in ("{", "}", "\\"):
            i += 2
            continue
        if text[i] == opening:
            depth += 1
        elif text[i] == closing:
            depth -= 1
            if depth == 0:
                return i
        i += 1
    raise UnbalancedError(f"no {closing} for {opening}")
