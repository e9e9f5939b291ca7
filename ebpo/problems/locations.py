"""Where the files of a data configuration are; imports nothing heavy, since Snakemake asks at every parse."""

from __future__ import annotations

from pathlib import Path

from ebpo.config import Data, Dataset, FilesData, HubData

SUFFIXES = (".parquet", ".jsonl")


def local_path(folder: Path, dataset: Dataset) -> Path | None:
    """The file or folder of a dataset below `folder`: by its whole path, else by the last part of its name."""
    stem = dataset.path.rsplit("/", 1)[-1]
    candidates = [folder / dataset.path, folder / stem, *(folder / f"{stem}{suffix}" for suffix in SUFFIXES)]
    return next((path for path in candidates if path.exists()), None)


def data_files(path: Path) -> list[Path]:
    """The data files of a dataset: the file itself, or those in the folder, apart from hidden ones."""
    if path.is_file():
        return [path]
    visible = (p for p in path.rglob("*") if not any(part.startswith(".") for part in p.relative_to(path).parts))
    return sorted(p for p in visible if p.is_file() and p.suffix in (*SUFFIXES, ".json", ".csv"))


def local_files(data: Data) -> list[str]:
    """The files that the problem sets are read from, as far as they exist; none where they come from elsewhere."""
    if isinstance(data, FilesData):
        folder = data.folder
    elif isinstance(data, HubData) and data.mirror is not None:
        folder = data.mirror
    else:
        return []
    paths = [local_path(Path(folder), dataset) for dataset in (data.train, *data.benchmarks.values())]
    return sorted({str(file) for path in paths if path is not None for file in data_files(path)})
