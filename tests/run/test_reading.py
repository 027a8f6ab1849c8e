"""Whatever is wrong with a checkpoint is named; nothing damaged is accepted, nothing in it runs."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from saves import SmallRun

from border_cli.core.errors import CheckpointError
from border_cli.nn.saving import load_state
from border_cli.run.checkpoint_files import read_checkpoint, verify
from border_cli.run.finding import best_score, find_checkpoint, find_weights, resumable, steps_saved
from border_cli.run.layout import partial_of

FILES = ["agent.pt", "candidate.pt", "state.json", "arrays.npz", "manifest.json"]
NAME = "0000000020"


@pytest.fixture(scope="module")
def saved_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints 10 and 20, and a best model at 10."""
    run_dir = tmp_path_factory.mktemp("saved")
    case = SmallRun(run_dir, prioritized=True)
    case.save_best(10, 1.5)
    case.save(10, push=30)
    case.push(20)
    state = case.state(20)
    names = ("counters", "agent", "run", "replay_buffer")
    more = {name: getattr(state, name) for name in names}
    assert case.store.save(type(state)(**more, candidate={"n": 19}))
    case.store.close()
    return run_dir


@pytest.fixture
def run_dir(saved_run: Path, tmp_path: Path) -> Path:
    """A copy of its own for every test."""
    return Path(shutil.copytree(saved_run, tmp_path / "run", symlinks=True))


def path_of(run_dir: Path, name: str) -> Path:
    return run_dir / "checkpoints" / NAME / name


def chunk_of(run_dir: Path) -> Path:
    return next((run_dir / "checkpoints" / "replay").glob("rows-0000000030-*"))


def test_a_whole_one_is_read(run_dir: Path) -> None:
    newest, oldest = (read_checkpoint(each) for each in resumable(run_dir))
    assert (newest.opt_steps, oldest.opt_steps) == (20, 10)
    assert newest.counters["env_steps"] == 7
    assert newest.run["opt_steps"] == 20
    assert newest.agent.read_text() == "weights 20"
    assert newest.candidate is not None
    assert newest.candidate.read_text() == "weights 19"
    assert oldest.candidate is None
    assert newest.has_rows
    case = SmallRun(run_dir, prioritized=True)
    case.resume()
    assert case.numbers == list(range(50))


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "truncated": lambda content: content[:-1],
    "half": lambda content: content[: len(content) // 2],
    "flipped at the start": lambda content: bytes([content[0] ^ 1]) + content[1:],
    "flipped in the middle": lambda content: flipped(content, 4 * len(content)),
    "longer": lambda content: content + b"x",
    "zeros": lambda content: bytes(len(content)),
    "random": lambda content: np.random.default_rng(0).bytes(len(content)),
}


def flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_file_is_named(run_dir: Path, name: str, how: str) -> None:
    path = path_of(run_dir, name)
    path.write_bytes(DAMAGE[how](path.read_bytes()))
    for read in (read_checkpoint, verify):
        with pytest.raises(CheckpointError, match=rf"{NAME}/{name}|{NAME} has checkpoint format"):
            read(path.parent)
    assert [each.name for each in resumable(run_dir)] == [NAME, "0000000010"]
    assert read_checkpoint(resumable(run_dir)[1]).opt_steps == 10


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(run_dir: Path, name: str) -> None:
    path_of(run_dir, name).unlink()
    with pytest.raises(CheckpointError, match=rf"{NAME}/{name} (is missing|cannot be read)"):
        read_checkpoint(path_of(run_dir, name).parent)


def test_a_flipped_bit_in_any_byte_of_a_manifest_is_noticed(run_dir: Path) -> None:
    path = path_of(run_dir, "manifest.json")
    content = path.read_bytes()
    for byte in range(len(content)):
        path.write_bytes(flipped(content, 8 * byte + byte % 8))
        with pytest.raises(CheckpointError, match=NAME):
            read_checkpoint(path.parent)


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_chunk_is_named_when_its_rows_load(run_dir: Path, how: str) -> None:
    path = chunk_of(run_dir)
    path.write_bytes(DAMAGE[how](path.read_bytes()))
    case = SmallRun(run_dir, prioritized=True)
    with pytest.raises(
        CheckpointError, match=rf"{path.name} is damaged: its checksum does not match"
    ):
        case.resume()
    assert len(case.buffer) == 0
    case.resume(run_dir / "checkpoints" / "0000000010")  # the one before it is whole
    assert case.numbers == list(range(30))


def test_a_missing_chunk_is_named_before_anything_loads(run_dir: Path) -> None:
    path = chunk_of(run_dir)
    path.unlink()
    with pytest.raises(CheckpointError, match=rf"replay/{path.name} is missing"):
        read_checkpoint(path_of(run_dir, "x").parent)


def sign(folder: Path, **changes: Any) -> None:
    """Makes the checksums of a folder fit again, as an attacker would."""
    path = folder / "manifest.json"
    content = {**json.loads(path.read_text()), **changes}
    del content["checksum"]
    for name in content["sha256"]:
        if (folder / name).is_file():
            content["sha256"][name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    content["checksum"] = hashlib.sha256(json.dumps(content).encode()).hexdigest()
    path.write_text(json.dumps(content))


class Malicious:
    """Leaves a file where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_a_pickle_in_a_signed_agent_is_refused_and_does_not_run(run_dir: Path) -> None:
    mark = run_dir / "ran"
    path = path_of(run_dir, "agent.pt")
    torch.save({"online": Malicious(mark)}, path)
    sign(path.parent)
    saved = read_checkpoint(path.parent)
    with pytest.raises(CheckpointError, match=r"agent\.pt cannot be read as the state of an agent"):
        load_state(saved.agent)
    assert not mark.exists()


def test_a_pickle_in_signed_arrays_is_refused_and_does_not_run(run_dir: Path) -> None:
    mark = run_dir / "ran"
    path = path_of(run_dir, "arrays.npz")
    np.savez(path, array_0=np.array([Malicious(mark)], object))
    sign(path.parent)
    with pytest.raises(CheckpointError, match=r"arrays\.npz cannot be read: .*allow_pickle"):
        read_checkpoint(path.parent)
    assert not mark.exists()


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../0000000010/agent.pt", "a/b", "..", ".hidden", "c:x", "a\\b", "a\0"]
)
@pytest.mark.parametrize("where", ["folder", "chunk"])
def test_a_manifest_that_names_files_elsewhere_is_refused(
    run_dir: Path, name: str, where: str
) -> None:
    folder = path_of(run_dir, "x").parent
    content = json.loads((folder / "manifest.json").read_text())
    if where == "folder":
        sign(folder, sha256={**content["sha256"], name: "0"})
    else:
        chunks = content["replay"]["chunks"]
        chunks[0]["files"] = {name: "0"}
        sign(folder, replay=content["replay"])
    with pytest.raises(CheckpointError, match="is not a plain file name"):
        read_checkpoint(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"replay": {}}, r"manifest\.json is not a checkpoint manifest: 'chunks'"),
        ({"replay": []}, r"manifest\.json is not a checkpoint manifest"),
        ({"sequence": "x"}, r"manifest\.json is not a checkpoint manifest"),
        ({"sha256": []}, r"manifest\.json is not a checkpoint manifest"),
        ({"versions": 3}, r"manifest\.json is not a checkpoint manifest"),
        ({"sha256": {"agent.pt": ""}}, r"cannot be resumed: it has no state\.json, no arrays\.npz"),
        (
            {"replay": {"first": 0, "end": 9, "capacity": 9, "chunks": []}},
            "its chunks do not cover rows 0 to 9",
        ),
    ],
)
def test_a_signed_manifest_that_makes_no_sense_is_refused(
    run_dir: Path, changes: dict[str, Any], message: str
) -> None:
    folder = path_of(run_dir, "x").parent
    sign(folder, **changes)
    with pytest.raises(CheckpointError, match=message):
        read_checkpoint(folder)


@pytest.mark.parametrize(
    ("first", "ends"), [(0, [(5, 9)]), (0, [(0, 4), (5, 9)]), (3, [(0, 3), (3, 3), (3, 9)])]
)
def test_chunks_with_a_gap_are_refused(
    run_dir: Path, first: int, ends: list[tuple[int, int]]
) -> None:
    folder = path_of(run_dir, "x").parent
    chunks = [{"first": a, "end": b, "files": {"x": "0"}} for a, b in ends]
    sign(folder, replay={"first": first, "end": 9, "capacity": 9, "chunks": chunks})
    with pytest.raises(CheckpointError, match="its chunks do not cover rows"):
        read_checkpoint(folder)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ("[]", r"state\.json cannot be read: it is not a JSON object"),
        ("[" * 100_000, r"state\.json cannot be read"),
        ('{"run": {}}', r"state\.json has no opt_steps"),
        (
            '{"run": {}, "opt_steps": -1, "env_steps": 0, "samples_total": 0, "time_s": 0}',
            "opt_steps must be a count, got -1",
        ),
        (
            '{"opt_steps": 1, "env_steps": 0, "samples_total": 0, "time_s": 0}',
            "does not contain the state of a run",
        ),
        ('{"run": {"a": {"__array__": "array_99"}}}', r"state\.json cannot be read: KeyError"),
    ],
)
def test_a_signed_state_that_makes_no_sense_is_refused(
    run_dir: Path, state: str, message: str
) -> None:
    path = path_of(run_dir, "state.json")
    path.write_text(state)
    sign(path.parent)
    with pytest.raises(CheckpointError, match=message):
        read_checkpoint(path.parent)


def as_format_1(folder: Path) -> None:
    """What the first version of this format wrote."""
    for name in ("arrays.npz", "candidate.pt"):
        (folder / name).unlink()
    (folder / "state.json").write_text('{"opt_steps": 20}')
    sums = {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest()
        for name in ("agent.pt", "state.json")
    }
    (folder / "manifest.json").write_text(
        json.dumps({"format": 1, "versions": {}, "sha256": sums}, indent=2)
    )


def test_an_older_format_says_why_it_cannot_be_resumed_and_its_weights_are_read(
    run_dir: Path,
) -> None:
    folder = path_of(run_dir, "x").parent
    as_format_1(folder)
    with pytest.raises(
        CheckpointError,
        match=r"has format 1 and cannot be resumed: .* neither the replay buffer nor the "
        r"random generators\. init_from",
    ):
        read_checkpoint(folder)
    assert find_checkpoint(run_dir, "20") == folder
    verify(folder)
    assert find_weights(folder) == folder
    assert resumable(run_dir)[-1] == folder  # all others come before it
    (folder / "agent.pt").write_bytes(b"x")
    with pytest.raises(CheckpointError, match=r"agent\.pt is damaged"):
        verify(folder)


@pytest.mark.parametrize("found", ["3", "null", '"2"', "true", "2.5", "[]"])
def test_a_foreign_format_is_refused(run_dir: Path, found: str) -> None:
    path = path_of(run_dir, "manifest.json")
    path.write_text(f'{{"format": {found}, "sha256": {{}}}}')
    with pytest.raises(
        CheckpointError, match=r"has checkpoint format .*, but this version reads 1 and"
    ):
        verify(path.parent)


def test_the_best_model_is_no_checkpoint_to_resume(run_dir: Path) -> None:
    with pytest.raises(CheckpointError, match=r"cannot be resumed: it has no arrays\.npz"):
        read_checkpoint(run_dir / "best")


def test_what_is_half_written_or_not_ours_is_not_picked_up(run_dir: Path) -> None:
    folder = run_dir / "checkpoints"
    partial_of(folder / "0000000040").mkdir()
    (partial_of(folder / "0000000040") / "manifest.json").write_text("{}")
    (folder / "0000000030").mkdir()  # without a manifest
    for name in ("12", "²", "notes"):
        (folder / name).mkdir()
        (folder / name / "manifest.json").write_text("{}")
    assert steps_saved(run_dir) == [10, 20]
    assert [each.name for each in resumable(run_dir)] == ["0000000020", "0000000010"]
    assert find_checkpoint(run_dir, "latest").name == NAME


def test_without_any_folder_there_is_nothing(tmp_path: Path) -> None:
    assert resumable(tmp_path) == []
    assert steps_saved(tmp_path) == []
    assert best_score(tmp_path) is None
    with pytest.raises(CheckpointError, match=r"has no checkpoint latest \(there are none\)$"):
        find_checkpoint(tmp_path, "latest")


@pytest.mark.parametrize("target", [None, "0000000099", "replay", "/nowhere"])
def test_latest_is_the_newest_complete_one_where_the_link_is_broken(
    run_dir: Path, target: str | None
) -> None:
    link = run_dir / "checkpoints" / "latest"
    link.unlink()
    if target is not None:
        link.symlink_to(target)
    assert find_checkpoint(run_dir, "latest").name == NAME


@pytest.mark.parametrize("target", [None, "checkpoints/best-0000000099"])
def test_a_best_model_whose_link_is_broken_is_refused_with_what_is_there(
    run_dir: Path, target: str | None
) -> None:
    link = run_dir / "best"
    link.unlink()
    if target is not None:
        link.symlink_to(target)
    with pytest.raises(CheckpointError, match=r"has no checkpoint best \(choose from 10, 20\)$"):
        find_checkpoint(run_dir, "best")
    assert best_score(run_dir) is None
    assert find_weights(run_dir).name == NAME  # the latest


@pytest.mark.parametrize("which", ["30", "0000000030"])
def test_what_is_not_there_is_refused_with_what_is(run_dir: Path, which: str) -> None:
    with pytest.raises(
        CheckpointError, match=rf"no checkpoint {which} \(choose from best, 10, 20\)$"
    ):
        find_checkpoint(run_dir, which)


@pytest.mark.parametrize("which", ["newest", "-1", "1.5", "²", ""])
def test_a_word_that_is_no_checkpoint_is_refused(run_dir: Path, which: str) -> None:
    with pytest.raises(CheckpointError, match="must be best, latest or an update number, got"):
        find_checkpoint(run_dir, which)


def test_weights_to_begin_with_are_those_of_the_best_model_or_of_a_checkpoint(
    run_dir: Path,
) -> None:
    assert find_weights(run_dir).name == "best-0000000010"
    assert find_weights(run_dir / "checkpoints" / "latest").resolve().name == NAME
    with pytest.raises(CheckpointError, match=r"no such directory: .*nowhere$"):
        find_weights(run_dir / "nowhere")
    (run_dir / "best" / "agent.pt").write_text("x")
    with pytest.raises(CheckpointError, match=r"agent\.pt is damaged"):
        find_weights(run_dir)


def test_weights_are_found_by_the_number_of_a_checkpoint(run_dir: Path) -> None:
    (run_dir / ".hydra").mkdir()
    (run_dir / ".hydra" / "resolved.yaml").touch()
    assert find_weights(run_dir / "checkpoints" / "20").name == NAME
    with pytest.raises(
        CheckpointError, match=r"has no checkpoint 30 \(choose from best, 10, 20\)$"
    ):
        find_weights(run_dir / "checkpoints" / "30")
    with pytest.raises(
        CheckpointError, match=f"is a file, not a run directory; the run is {run_dir}"
    ):
        find_weights(run_dir / "checkpoints" / NAME / "agent.pt")


def test_the_best_score_is_that_of_the_saved_model(run_dir: Path) -> None:
    assert best_score(run_dir) == (1.5, 10)
    (run_dir / "best" / "score.json").write_text("{}")
    assert best_score(run_dir) is None
