"""Finding the final answer in a completion: one policy, in one pass over the text."""

from __future__ import annotations

import re
from collections import deque

# A box command may come with doubled backslashes from double-escaped output; at most three are looked at, so that
# that a run of backslashes costs linear time.
_BOX_TOKEN = re.compile(r"\\{1,3}(?:boxed|fbox)(?![A-Za-z])\s{0,4}(\{)?|\\[\s\S]|[{}]")
_ANSWER_COLON = re.compile(r"answer[ \t*_]{0,8}:[ \t*_]{0,8}", re.IGNORECASE)
_ANSWER_IS = re.compile(r"answer[ \t]{1,4}is\b[ \t*_:]{0,8}", re.IGNORECASE)
_SENTENCE_END = re.compile(r"\.(?:\s|$)")


def extract_answer(completion: str, *, max_chars: int, answer_line: bool = True) -> str | None:
    """The raw text of the final answer.

    The last `\\boxed{}` or `\\fbox{}` counts, with the outermost balanced box around it. A last box that is
    unterminated or without braces is no answer: earlier boxes are not looked at. Without any box, the last line
    `Answer: ...` (the DAPO format) counts, else the last sentence `... answer is ...`. Text before the last
    `</think>`, and text of an unfinished `<think>`, is ignored.

    Args:
        completion: what the policy wrote, without the prompt.
        max_chars: only so many characters at the end are looked at.
        answer_line: whether `Answer: ...` counts; if not, only boxes do.

    Returns:
        The answer, stripped; None if there is none or it is empty.
    """
    text = completion[-max_chars:]
    _, closed, text_after = text.rpartition("</think>")
    if closed:
        text = text_after
    text = text.partition("<think>")[0]
    has_box, answer = last_box(text)
    if not has_box and answer_line:
        answer = _last_answer_line(text)
    return answer.strip() or None if answer is not None else None


def last_box(text: str) -> tuple[bool, str | None]:
    """Whether there is a box command, and the content of the last one (None if that one is not balanced)."""
    if "boxed" not in text and "fbox" not in text:
        return False, None
    open_braces: list[tuple[int, int | None]] = []  # (start of the command or brace, start of a box's content)
    boxes: list[tuple[int, int, int]] = []  # (start of the command, start of the content, end of the content)
    last_command = -1
    for token in _BOX_TOKEN.finditer(text):
        kind = token.group()
        if kind == "{":
            open_braces.append((token.start(), None))
        elif kind == "}":
            if open_braces:
                start, content = open_braces.pop()
                if content is not None:
                    boxes.append((start, content, token.start()))
        elif "box" in kind:
            last_command = token.start()
            if token.group(1):
                open_braces.append((token.start(), token.end()))
    if last_command < 0:
        return False, None
    closing = next((end for start, _, end in boxes if start == last_command), None)
    if closing is None:
        return True, None
    _, content, end = min(box for box in boxes if box[0] <= last_command and box[2] >= closing)
    return True, text[content:end]


def _last_answer_line(text: str) -> str | None:
    """What follows the last `Answer:` on its line, else what follows the last `answer is` in its sentence."""
    last = _last_match(_ANSWER_COLON, text)
    if last is not None:
        return text[last.end() :].partition("\n")[0]
    last = _last_match(_ANSWER_IS, text)
    if last is not None:
        return _SENTENCE_END.split(text[last.end() :].partition("\n")[0], maxsplit=1)[0]
    return None


def _last_match(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    matches = deque(pattern.finditer(text), maxlen=1)
    return matches[0] if matches else None
