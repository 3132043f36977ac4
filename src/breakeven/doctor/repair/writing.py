"""Faults to repairs, repairs to a folder: never in place, whole or not at all."""

from __future__ import annotations

import difflib
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from breakeven.checkpoints.folder import ModelFolder, open_folder, side_file
from breakeven.checkpoints.model_folder import model_folder
from breakeven.checkpoints.writing import write_safetensors
from breakeven.doctor.drafter import Drafter
from breakeven.doctor.evidence import Evidence
from breakeven.doctor.examine import examine
from breakeven.doctor.repair import configuration, tensors
from breakeven.doctor.repair.copying import Copying
from breakeven.doctor.result import DoctorResult
from breakeven.errors import CheckpointError, UsageError

__all__ = ["REPAIRS", "repaired"]

Repair = Callable[[Copying, Evidence], None]
# Names before values, so that later repairs find what they change; the head last, since it follows the map.
REPAIRS: Mapping[str, Repair] = {
    "tensors-misnamed": tensors.rename_tensors,
    "name-prefix-refused": tensors.strip_prefix,
    "layer-names-dropped": tensors.rename_layers,
    "vocabulary-map-absolute": tensors.map_to_offsets,
    "vocabulary-map-absent": tensors.map_from_marks,
    "vocabulary-map-unordered": tensors.map_from_marks,
    "vocabulary-map-rebuilt": tensors.parents_map,
    "vocabulary-map-unexpected": tensors.drop_map,
    "norms-zero-centred": tensors.centre_norms_on_one,
    "embedding-unrelated": tensors.drop_embeddings,
    "auxiliary-states-off": configuration.use_states,
    "layers-defaulted": configuration.write_layer_ids,
    "layers-off-by-one": configuration.write_layer_ids,
    "layer-count-differs": configuration.count_states,
    "draft-layers-unsupported": configuration.count_layers,
    "draft-vocabulary-unstated": configuration.size_draft_vocabulary,
    "attention-bias-dropped": configuration.announce_biases,
    "norm-tensors-contradict": configuration.announce_norms,
    "lm-head-tied": configuration.untie_head,
    "rope-contradictory": configuration.settle_rope,
    "rope-theta-differs": configuration.take_targets_theta,
    "position-limit": configuration.raise_position_limit,
    "quantization-announced": configuration.unannounce_quantization,
    "quantization-parts-ignored": configuration.except_fused_names,
    "lm-head-absent": tensors.head_from_target,
    "lm-head-wrong-rows": tensors.head_from_target,
}
# Copied along; everything else (pickles, training states) stays behind.
_BESIDE = (".json", ".jinja", ".txt", ".md", ".model")
_OWN = ("config.json", "model.safetensors.index.json")
MAX_BESIDE_BYTES = 100_000_000


def repaired(evidence: Evidence, result: DoctorResult, out: Path) -> DoctorResult:
    """Write a repaired copy to `out`, which must not exist, and examine it: the result with what changed and what remains.

    Nothing is written where no finding has a repair that applies: `not_repaired` says so.

    Raises:
        UsageError: there is no drafter to repair, or `out` lies inside it.
        CheckpointError: `out` is there already or cannot be written.
    """
    draft = evidence.draft
    if draft is None:
        raise UsageError("--fix repairs a drafter; give --draft DIR")
    if out.exists():
        raise CheckpointError(f"{out}: is there already; --fix writes a new folder, choose another name")
    if out.absolute().is_relative_to(draft.folder.path.absolute()) or out.resolve().is_relative_to(draft.folder.path.resolve()):
        raise UsageError(f"{out}: lies inside the drafter's own folder, which is never changed; choose a folder beside it")
    copying = Copying.of(draft)
    wanted = {finding.code for finding in result.findings if finding.repairable}
    for code, repair in REPAIRS.items():
        if code in wanted:
            repair(copying, evidence)
    if not copying.changes:
        return result.model_copy(update={"not_repaired": _why_not(result, wanted)})
    _write(copying, draft.folder, out)
    again = examine(replace(evidence, draft=Drafter(folder=open_folder(out))))
    return result.model_copy(
        update={
            "repaired": str(out),
            "repairs": (*copying.changes, *_config_diff(draft.folder, copying)),
            "remaining": tuple(
                finding.code for finding in again.findings if finding.severity != "info" and finding.kind == "cause"
            ),
        }
    )


def _why_not(result: DoctorResult, repairable: set[str]) -> str:
    if repairable:
        return f"{', '.join(sorted(repairable))}: the repair changes nothing in this drafter; follow the remedy by hand"
    if result.findings:
        return "no finding has one right repair that --fix knows; follow the remedies by hand"
    return "nothing was found that needs mending"


def _write(copying: Copying, source: ModelFolder, out: Path) -> None:
    with model_folder(out) as building:
        write_safetensors(building / "model.safetensors", copying.tensors)
        (building / "config.json").write_text(json.dumps(copying.config, indent=2) + "\n", encoding="utf-8")
        for file in sorted(source.path.iterdir()):
            side = side_file(source.path, file.name) if file.suffix in _BESIDE and file.name not in _OWN else None
            if side is not None and side.stat().st_size <= MAX_BESIDE_BYTES:
                shutil.copyfile(side, building / file.name)


def _config_diff(source: ModelFolder, copying: Copying) -> tuple[str, ...]:
    before = json.dumps(source.config, indent=2).splitlines()
    after = json.dumps(copying.config, indent=2).splitlines()
    return tuple(line for line in difflib.unified_diff(before, after, "config.json", "config.json", n=1, lineterm=""))
