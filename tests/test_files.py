from __future__ import annotations

import pytest

from ebpo.files import atomic_folder, atomic_path, file_digest, write_json


def test_a_failed_write_leaves_the_old_file_and_no_partial(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def fail() -> None:
        with atomic_path(path) as partial:
            partial.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_a_folder_appears_whole_or_not_at_all(tmp_path):
    folder = tmp_path / "f"

    def fill(number: int, stop: bool) -> None:
        with atomic_folder(folder) as partial:
            (partial / "x").write_text(str(number))
            if stop:
                raise RuntimeError

    fill(1, stop=False)
    with pytest.raises(RuntimeError):
        fill(2, stop=True)
    assert (folder / "x").read_text() == "1"
    fill(3, stop=False)
    assert (folder / "x").read_text() == "3"
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_json_refuses_nan(tmp_path):
    with pytest.raises(ValueError, match=r"JSON"):
        write_json(tmp_path / "x.json", float("nan"))


def test_a_folder_digest_sees_names_and_contents(tmp_path):
    (tmp_path / "a").write_text("1")
    first = file_digest(tmp_path)
    (tmp_path / "a").rename(tmp_path / "b")
    second = file_digest(tmp_path)
    (tmp_path / "b").write_text("2")
    assert len({first, second, file_digest(tmp_path)}) == 3
