"""Folders, commands and answers from strangers: refused clearly or examined, never a crash, never much time or memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from tests.unit.doctor.folders import LAYER_IDS, base_config, copied, head_tensors, make_target, portable, safetensors

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.examine import examine
from breakeven.doctor.gather import Inputs, gather
from breakeven.doctor.launch import parse_launch
from breakeven.doctor.repair.writing import repaired
from breakeven.errors import BreakevenError

HEAD, MODEL = portable(), make_target()
ONE = settings(
    max_examples=int(os.environ.get("BREAKEVEN_FUZZ_EXAMPLES", "25")), deadline=None, suppress_health_check=list(HealthCheck)
)

anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.sampled_from([0, 1, 2, 3, 64, 128, 512, -1, 1 << 62])
    | st.floats()
    | st.text(max_size=12)
    | st.sampled_from(["re:(a+)+$", "[", "*" * 30, "eagle3", "yarn", "Linear", "\x1b[2J", "q_proj"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = sorted(
    {
        *base_config(),
        LAYER_IDS,
        "eagle_config",
        "quantization_config",
        "rope_scaling",
        "rope_parameters",
        "transformer_layer_config",
        "text_config",
        "speculators_config",
        "speculators_model_type",
        "target_hidden_size",
        "num_aux_hidden_states",
        "norm_output",
        "fc_norm",
        "use_aux_norm",
        "norm_before_fc",
        "norm_before_residual",
        "kv_lora_rank",
        "partial_rotary_factor",
        "rope_interleave",
        "_name_or_path",
        "verifier",
    }
)
INNER = [
    LAYER_IDS,
    "norm_before_fc",
    "ignore",
    "config_groups",
    "transform_config",
    "verifier",
    "rope_theta",
    "factor",
    "rope_type",
    "targets",
]
nested = st.dictionaries(st.sampled_from(INNER), anything, max_size=4)
changes = st.dictionaries(st.sampled_from(KEYS), anything | nested, max_size=6)


def evidence_of(draft: Path, target: Path, **more: Any) -> Evidence:
    return gather(Inputs(draft=str(draft), target=str(target), parent=str(draft), **more))


@ONE
@given(changes, changes, st.sampled_from([None, "vllm", "sglang"]), st.sampled_from([None, "0.5.9", "0.5.23", "0.33.0", "99.1"]))
def test_any_configuration_is_examined(
    draft: dict[str, Any], target: dict[str, Any], engine: str | None, version: str | None
) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        head, model = copied(HEAD), copied(MODEL)
        head.config |= draft
        model.config |= target
        evidence = evidence_of(head.write(root), model.write(root), engine=engine, engine_version=version)
        result = examine(evidence)
        for finding in result.findings:
            assert finding.evidence or finding.kind == "sign"
        result.model_dump_json()
        repaired(evidence, result, root / "out")


def filled(dtype: str, shape: list[int], fill: float) -> Any:
    with np.errstate(all="ignore"):
        return np.full(shape, fill).astype(dtype)


arrays = st.builds(
    filled,
    st.sampled_from(["f4", "f2", "i8", "i4", "b1", "u1"]),
    st.lists(st.sampled_from([0, 1, 2, 64, 128, 192, 512]), max_size=2),
    st.sampled_from([0, 1, -1, 300, np.nan, np.inf]),
)
NAMES = [
    *head_tensors(),
    "embed_tokens.weight",
    "fc_norm.0.weight",
    "input_norm.weight",
    "layers.99999999999.x",
    "layers.3.mlp.up_proj.weight",
    "model.fc.weight",
]


@ONE
@given(
    st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=6), arrays, max_size=6), st.sets(st.sampled_from(NAMES), max_size=4)
)
def test_any_tensors_are_examined(other: dict[str, Any], missing: set[str]) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        head, model = copied(HEAD), copied(MODEL)
        head.tensors = {key: value for key, value in head.tensors.items() if key not in missing} | other
        try:
            evidence = evidence_of(head.write(root), model.write(root))
        except BreakevenError as error:
            note(f"refused: {error}")
            return
        result = examine(evidence)
        result.model_dump_json()
        repaired(evidence, result, root / "out")


words = st.sampled_from(
    [
        "vllm", "serve", "sglang.launch_server", "--speculative-config", "{}", '{"method":3}', "--tp", "-1",
        "--quantization=x", "-sc",
        ";", "|", "'a", "--max-num-seqs", "9e9", "--speculative-algorithm", "EAGLE3", "--speculative-num-steps", "9" * 18,
        "--chat-template", "/dev/zero", "--kv-cache-dtype", "\\", "$(x)", "docker",
        "VLLM_USE_V2_MODEL_RUNNER=1", "lmsysorg/sglang:v0.5.9",
    ]
)  # fmt: skip


@ONE
@given(st.lists(words | st.text(max_size=8), max_size=14))
def test_any_command_is_read_or_refused(parts: list[str]) -> None:
    text = " ".join(parts)
    try:
        launch = parse_launch(text)
        examine(Evidence(launch=launch, engine=launch.engine))
    except BreakevenError as error:
        note(f"refused: {error}")


@pytest.mark.parametrize(
    "line", [b"{", b"[1]", b"null", b'{"output_ids": [1e400, "x", -4, true]}', b'{"messages": 3}', b"\xff\xfe", b"[" * 5000]
)
def test_answers_that_are_none_are_refused(line: bytes, tmp_path: Path) -> None:
    (tmp_path / "answers.jsonl").write_bytes(line + b"\n")
    head, model = portable().write(tmp_path), make_target().write(tmp_path)
    with pytest.raises(BreakevenError, match=r"answers\.jsonl"):
        evidence_of(head, model, answers=tmp_path / "answers.jsonl")


MEASURE = """
import re, sys, time
from pathlib import Path
from breakeven.cli import main
began_s = time.process_time()
try:
    main()
except SystemExit as leave:
    code = leave.code
peak_kb = int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
print("MEASURED", code, time.process_time() - began_s, peak_kb / 1e3, file=sys.stderr)
"""


def header(encoded: bytes, claimed: int | None = None) -> bytes:
    return (len(encoded) if claimed is None else claimed).to_bytes(8, "little") + encoded


def entry(begin: int, end: int) -> dict[str, Any]:
    return {"dtype": "U8", "shape": [end - begin], "data_offsets": [begin, end]}


HOSTILE: dict[str, Callable[[Path], None]] = {
    "a header longer than the file": lambda folder: (folder / "model.safetensors").write_bytes(header(b"{}", 1 << 62)) and None,
    "a header of 2 GB, sparse": lambda folder: sparse(folder / "model.safetensors", 2_000_000_000),
    "deep JSON in the header": lambda folder: (
        (folder / "model.safetensors").write_bytes(header(b'{"a":' + b"[" * 400_000)) and None
    ),
    "deep JSON in config.json": lambda folder: (folder / "config.json").write_bytes(b"[" * 400_000) and None,
    "overlapping offsets": lambda folder: (
        (folder / "model.safetensors").write_bytes(header(json.dumps({"a": entry(0, 8), "b": entry(4, 12)}).encode()) + bytes(12))
        and None
    ),
    "a link out of the folder": lambda folder: linked(folder / "config.json"),
    "control characters in a name": lambda folder: (
        (folder / "model.safetensors").write_bytes(header(json.dumps({"a\x1b[2J": entry(0, 4)}).encode()) + bytes(4)) and None
    ),
    "a pickle": lambda folder: (folder / "model.safetensors").rename(folder / "pytorch_model.bin") and None,
    "a pipe": lambda folder: piped(folder / "config.json"),
    "half a million tensors": lambda folder: (
        (folder / "model.safetensors").write_bytes(
            header(b"{" + b",".join(b'"t%d":0' % number for number in range(490_000)) + b"}")
        )
        and None
    ),
}


def sparse(file: Path, size: int) -> None:
    with file.open("wb") as opened:
        opened.write((size - 8).to_bytes(8, "little"))
        opened.truncate(size)


def linked(file: Path) -> None:
    file.unlink()
    file.symlink_to("/etc/passwd")


def piped(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


# A process for each folder, so that each has a peak of its own; only what they import is imported once (a second of CPU a start).
EACH = f"""
import os, sys
from pathlib import Path
import breakeven.cli, breakeven.doctor.examine, breakeven.doctor.gather
for root in sys.argv[1:]:
    if not (child := os.fork()):
        os.dup2(os.open(Path(root, "said"), os.O_WRONLY | os.O_CREAT), 2)
        sys.argv[1:] = ["doctor", "--draft", root + "/draft", "--target", root + "/target"]
        exec({MEASURE!r})
        os._exit(0)
    os.waitpid(child, 0)
"""


@pytest.fixture(scope="module")
def refusals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the doctor said of each hostile folder, and the line of MEASURE."""
    roots = {kind: tmp_path_factory.mktemp("hostile") for kind in HOSTILE}
    for kind, root in roots.items():
        make_target().write(root)
        HOSTILE[kind](portable().write(root))
    subprocess.run([sys.executable, "-c", EACH, *map(str, roots.values())], timeout=120, check=True, stdin=subprocess.DEVNULL)
    return {kind: (root / "said").read_text() for kind, root in roots.items()}


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_hostile_folders_are_refused_cheaply(kind: str, refusals: dict[str, str]) -> None:
    said, measured, figures = refusals[kind].rpartition("MEASURED ")
    assert measured, said
    code, took_s, peak_mb = figures.split()
    assert code == "2", said
    assert "Traceback" not in said
    assert said.startswith("breakeven: ")
    assert all(char.isprintable() or char == "\n" for char in said)
    assert float(took_s) < 2
    assert float(peak_mb) < 200


def test_a_healthy_pair_costs_little_whatever_the_targets_size(tmp_path: Path) -> None:
    """A target of 600 GB: sparse shards, of which only headers and a few rows are read."""
    head, model = portable().write(tmp_path), make_target().write(tmp_path)
    size = 10_000_000_000
    for shard in range(60):
        encoded = json.dumps(
            {
                f"model.layers.{shard}.mlp.experts.{one}.up_proj.weight": {
                    "dtype": "F8_E4M3",
                    "shape": [size // 200],
                    "data_offsets": [one * (size // 200), (one + 1) * (size // 200)],
                }
                for one in range(200)
            }
        ).encode()
        file = model / f"model-{shard:05}.safetensors"
        with file.open("wb") as opened:
            opened.write(header(encoded))
            opened.truncate(8 + len(encoded) + size)
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, "doctor", "--draft", str(head), "--target", str(model)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    code, took_s, peak_mb = done.stderr.rpartition("MEASURED ")[2].split()
    assert code == "0", done.stdout + done.stderr
    assert float(took_s) < 2
    assert float(peak_mb) < 200
    assert safetensors({})
