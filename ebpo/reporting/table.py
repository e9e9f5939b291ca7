"""A table as data, and its three forms: CSV, Markdown (read back by the report), LaTeX with booktabs."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass
from pathlib import Path

from ebpo.files import write_text

DASH = "–"


@dataclass(frozen=True)
class Column:
    """A column; `key` heads it in the CSV, `header` elsewhere, `group` spans neighbouring columns in LaTeX."""

    key: str
    header: str
    group: str = ""
    numeric: bool = True


@dataclass(frozen=True)
class Cell:
    """A cell: a number in percent with an optional interval, or a text; without either it shows a dash.

    `key` takes the place of the text in the CSV, where identifiers are better than labels.
    """

    value: float | None = None
    low: float | None = None
    high: float | None = None
    text: str = ""
    key: str = ""
    bold: bool = False
    signed: bool = False

    def number(self) -> str:
        """The number with two decimals, "" for a cell without one."""
        return "" if self.value is None else _decimals(self.value, 2, self.signed)

    def interval(self) -> str:
        """The interval with one decimal, "" for a cell without one."""
        if self.low is None or self.high is None:
            return ""
        return f"[{_decimals(self.low, 1, self.signed)}, {_decimals(self.high, 1, self.signed)}]"


def _decimals(value: float, digits: int, signed: bool) -> str:
    # Adding 0.0 turns a negative zero into a plain one.
    return f"{round(value, digits) + 0.0:{'+' if signed else ''}.{digits}f}"


@dataclass(frozen=True)
class Table:
    """Columns and rows with what a reader needs to know of them. Every row has one cell per column."""

    name: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"table {self.name}: a row has {len(row)} cells for {len(self.columns)} columns")


def to_csv(table: Table) -> str:
    """Comma-separated values: percent with four decimals, the ends of intervals in columns KEY_low and KEY_high."""
    with_interval = [any(row[i].low is not None for row in table.rows) for i in range(len(table.columns))]
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    header: list[str] = []
    for column, interval in zip(table.columns, with_interval, strict=True):
        header += [column.key, *([f"{column.key}_low", f"{column.key}_high"] if interval else [])]
    writer.writerow(header)
    for row in table.rows:
        cells: list[str] = []
        for cell, interval in zip(row, with_interval, strict=True):
            cells.append((cell.key or cell.text) if cell.value is None else _decimals(cell.value, 4, signed=False))
            if interval:
                cells += ["" if end is None else _decimals(end, 4, signed=False) for end in (cell.low, cell.high)]
        writer.writerow(cells)
    return stream.getvalue()


def to_markdown(table: Table) -> str:
    """A Markdown table under its caption, with the notes as a list."""

    def escape(text: str) -> str:
        return text.replace("\\", "\\\\").replace("|", "\\|").replace("*", "\\*").replace("_", "\\_")

    def show(cell: Cell) -> str:
        text = " ".join(filter(None, (cell.number(), cell.interval()))) or escape(cell.text) or DASH
        return f"**{text}**" if cell.bold else text

    lines = [table.caption, ""]
    lines.append("| " + " | ".join(escape(c.header) for c in table.columns) + " |")
    lines.append("|" + "|".join(" ---: " if c.numeric else " :--- " for c in table.columns) + "|")
    lines += ["| " + " | ".join(show(cell) for cell in row) + " |" for row in table.rows]
    return "\n".join([*lines, "", *(f"- {note}" for note in table.notes)]).rstrip() + "\n"


_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{c: "\\" + c for c in "&%$#_{}"},
    "–": "--",
    "−": "$-$",
    "±": r"$\pm$",
    "²": r"\textsuperscript{2}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
}


def latex_escape(text: str) -> str:
    """Text with every character that LaTeX would interpret replaced."""
    return "".join(_LATEX.get(character, character) for character in text)


def to_latex(table: Table) -> str:
    """A LaTeX table environment; needs \\usepackage{booktabs,graphicx}."""

    def show(cell: Cell) -> str:
        text = cell.number().replace("-", "$-$") or latex_escape(cell.text or DASH)
        text = rf"\textbf{{{text}}}" if cell.bold else text
        return rf"{text} {{\scriptsize {interval}}}" if (interval := cell.interval().replace("-", "$-$")) else text

    spans: list[tuple[str, int, int]] = []
    for i, column in enumerate(table.columns, start=1):
        if spans and spans[-1][0] == column.group:
            spans[-1] = (column.group, spans[-1][1], i)
        else:
            spans.append((column.group, i, i))
    heads = [rf"\multicolumn{{{b - a + 1}}}{{c}}{{{latex_escape(group)}}}" for group, a, b in spans]
    rules = [rf"\cmidrule(lr){{{a}-{b}}}" for group, a, b in spans if group]
    lines = [
        r"% needs \usepackage{booktabs,graphicx}",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{latex_escape(table.caption)}}}",
        rf"\label{{tab:{table.name}}}",
        r"\resizebox{\linewidth}{!}{%",
        rf"\begin{{tabular}}{{{''.join('r' if c.numeric else 'l' for c in table.columns)}}}",
        r"\toprule",
        *([" & ".join(heads) + r" \\", " ".join(rules)] if rules else []),
        " & ".join(latex_escape(c.header) for c in table.columns) + r" \\",
        r"\midrule",
        *(" & ".join(show(cell) for cell in row) + r" \\" for row in table.rows),
        r"\bottomrule",
        r"\end{tabular}}",
        *(rf"\par\smallskip\footnotesize {latex_escape(note)}" for note in table.notes),
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def write_table(table: Table, prefix: Path) -> None:
    """Writes PREFIX.csv, PREFIX.md and PREFIX.tex."""
    for suffix, text in ((".csv", to_csv(table)), (".md", to_markdown(table)), (".tex", to_latex(table))):
        write_text(prefix.with_name(prefix.name + suffix), text)


def read_markdown(path: Path) -> Table:
    """Reads a table that `to_markdown` wrote; every cell comes back as text.

    Raises:
        FileNotFoundError: the file is missing.
        ValueError: the file is not such a table.
    """
    if not path.is_file():
        raise FileNotFoundError(f"table {path} is missing")
    lines = path.read_text(encoding="utf-8").splitlines()
    grid = [_split(line) for line in lines if line.startswith("|")]
    if len(grid) < 2 or not lines[0] or lines[0].startswith("|"):
        raise ValueError(f"{path}: not a table with a caption, a header and rows")
    columns = tuple(
        Column(key=header, header=_unescape(header), numeric=":---" not in rule)
        for header, rule in zip(grid[0], grid[1], strict=True)
    )
    rows = []
    for row in grid[2:]:
        bold = [cell.startswith("**") for cell in row]
        texts = [cell.strip("*") if b else _unescape(cell) for cell, b in zip(row, bold, strict=True)]
        rows.append(tuple(Cell(text=text, bold=b) for text, b in zip(texts, bold, strict=True)))
    notes = tuple(line.removeprefix("- ") for line in lines if line.startswith("- "))
    return Table(path.stem, columns, tuple(rows), lines[0], notes)


def _split(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def _unescape(text: str) -> str:
    return re.sub(r"\\([\\|*_])", r"\1", text)
