"""The one table of rules: code, family, what it needs, since which release. A new rule is one line here and one file."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import ModuleType

from breakeven.doctor.evidence import Evidence, Need
from breakeven.doctor.rules.acceptance import (
    accept_length_at_ceiling,
    accept_length_at_floor,
    accept_length_collapses,
    accept_length_drifts,
    accept_length_falls_after_cache_reuse,
    accept_length_falls_with_batch,
    accept_length_falls_with_context,
    accept_length_near_floor,
    accept_lengths_differ,
    all_positions_lower,
    backend_lowers_acceptance,
    only_first_position_alive,
    rank_accepts_less,
    served_below_training,
    setting_lowers_acceptance,
    steep_fall_after_first,
    training_acceptance_low,
)
from breakeven.doctor.rules.auxiliary import (
    auxiliary_states_off,
    layer_convention_unclear,
    layer_count_differs,
    layer_keys_contradict,
    layers_defaulted,
    layers_off_by_one,
    layers_out_of_range,
    layers_unordered,
)
from breakeven.doctor.rules.capacity import (
    memory_does_not_fit,
)
from breakeven.doctor.rules.cost import (
    admission_capped,
    collectives_unmeasured,
    cuda_graph_off,
    drafter_too_large,
    experts_woken,
    queue_saturated,
    speculation_slower,
    target_saturated,
)
from breakeven.doctor.rules.counters import (
    acceptance_forced,
    counters_contradict,
    impossible_baseline,
    output_degenerate,
    rate_ambiguous,
    steps_without_drafts,
)
from breakeven.doctor.rules.data import (
    base_model_mismatch,
    chat_template_differs,
    target_changed,
    target_size_differs,
)
from breakeven.doctor.rules.launch import (
    algorithm_against_name,
    algorithm_mismatch,
    another_drafter_launched,
    architecture_unsupported,
    combination_refused,
    draft_parallel_size,
    draft_tokens_contradict,
    drafter_not_given,
    graphs_off,
    graphs_too_small,
    launch_not_of_log,
    method_guessed_from_path,
    mtp_layers_reused,
    running_requests_capped,
    running_requests_unequal,
    server_did_not_start,
    speculative_key_refused,
    target_unsupported,
    token_map_ignored,
    tree_too_wide,
)
from breakeven.doctor.rules.precision import (
    kv_cache_unscaled,
    quantization_announced,
    quantization_inherited,
    quantization_parts_ignored,
    quantization_scales_missing,
    quantization_unannounced,
    target_rotated,
)
from breakeven.doctor.rules.rope import (
    position_limit,
    rope_contradictory,
    rope_layout_differs,
    rope_scaling_differs,
    rope_theta_differs,
)
from breakeven.doctor.rules.tensors import (
    attention_bias_dropped,
    draft_layers_unsupported,
    embedding_trained,
    embedding_unrelated,
    fc_norm_unsupported,
    layer_names_dropped,
    lm_head_absent,
    lm_head_frozen,
    lm_head_random,
    lm_head_tied,
    lm_head_wrong_rows,
    name_prefix_refused,
    norm_before_fc_unsupported,
    norm_before_residual_dropped,
    norm_before_residual_unstated,
    norm_output_ambiguous,
    norm_output_unsupported,
    norm_tensors_contradict,
    norms_zero_centred,
    shapes_contradict,
    tensors_misnamed,
    tensors_missing,
    tensors_unknown,
    untrained_head,
    weights_not_finite,
)
from breakeven.doctor.rules.vocabulary import (
    draft_vocabulary_unstated,
    vocabulary_coverage,
    vocabulary_map_absent,
    vocabulary_map_absolute,
    vocabulary_map_at_odds,
    vocabulary_map_out_of_range,
    vocabulary_map_rebuilt,
    vocabulary_map_unexpected,
    vocabulary_map_unordered,
    vocabulary_size_differs,
)
from breakeven.doctor.told import Told

__all__ = ["RULES", "Rule"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """`module` is the rule's file: `check` in it judges, its docstring explains. `needs`: all of them, or it is not checked."""

    module: ModuleType
    needs: tuple[Need, ...]
    since: str = "0.1.0"

    @property
    def code(self) -> str:
        return self.module.__name__.rpartition(".")[2].replace("_", "-")

    @property
    def family(self) -> str:
        return self.module.__name__.split(".")[-2]

    @property
    def explanation(self) -> str:
        return inspect.getdoc(self.module) or ""

    @property
    def check(self) -> Callable[[Evidence], Iterable[Told]]:
        check: Callable[[Evidence], Iterable[Told]] = self.module.check
        return check


def _rule(module: ModuleType, *needs: Need) -> Rule:
    return Rule(module=module, needs=needs)


# In the order in which equally weighty findings are told.
RULES: tuple[Rule, ...] = (
    _rule(algorithm_mismatch, "draft", "launch"),
    _rule(algorithm_against_name, "launch"),
    _rule(method_guessed_from_path, "draft", "launch"),
    _rule(drafter_not_given, "launch"),
    _rule(server_did_not_start, "start-up log"),
    _rule(architecture_unsupported, "draft", "engine"),
    _rule(target_unsupported, "draft", "target", "engine"),
    _rule(speculative_key_refused, "launch"),
    _rule(combination_refused, "launch"),
    _rule(mtp_layers_reused, "launch", "target"),
    _rule(draft_parallel_size, "draft", "launch"),
    _rule(draft_tokens_contradict, "launch"),
    _rule(token_map_ignored, "launch"),
    _rule(another_drafter_launched, "draft", "launch"),
    _rule(launch_not_of_log, "launch", "readings"),
    _rule(running_requests_unequal, "launch", "baseline"),
    _rule(running_requests_capped, "launch"),
    _rule(graphs_off, "launch"),
    _rule(graphs_too_small, "launch"),
    _rule(tree_too_wide, "launch"),
    _rule(auxiliary_states_off, "draft"),
    _rule(layers_defaulted, "draft", "engine"),
    _rule(layers_out_of_range, "draft", "target"),
    _rule(layer_count_differs, "draft"),
    _rule(layers_unordered, "draft"),
    _rule(layers_off_by_one, "draft", "engine"),
    _rule(layer_keys_contradict, "draft"),
    _rule(layer_convention_unclear, "draft"),
    _rule(shapes_contradict, "draft"),
    _rule(tensors_misnamed, "draft"),
    _rule(tensors_missing, "draft"),
    _rule(tensors_unknown, "draft"),
    _rule(layer_names_dropped, "draft", "engine"),
    _rule(name_prefix_refused, "draft"),
    _rule(draft_layers_unsupported, "draft"),
    _rule(attention_bias_dropped, "draft"),
    _rule(norm_before_residual_dropped, "draft", "engine"),
    _rule(norm_before_residual_unstated, "draft"),
    _rule(fc_norm_unsupported, "draft", "engine"),
    _rule(norm_before_fc_unsupported, "draft", "engine"),
    _rule(norm_output_unsupported, "draft", "engine"),
    _rule(norm_tensors_contradict, "draft"),
    _rule(norm_output_ambiguous, "draft"),
    _rule(norms_zero_centred, "draft"),
    _rule(weights_not_finite, "draft"),
    _rule(untrained_head, "draft"),
    _rule(lm_head_absent, "draft"),
    _rule(lm_head_tied, "draft"),
    _rule(lm_head_wrong_rows, "draft", "target"),
    _rule(lm_head_random, "draft"),
    _rule(lm_head_frozen, "draft", "target"),
    _rule(embedding_unrelated, "draft", "target"),
    _rule(embedding_trained, "draft", "target"),
    _rule(vocabulary_map_absent, "draft"),
    _rule(vocabulary_map_absolute, "draft"),
    _rule(vocabulary_map_out_of_range, "draft"),
    _rule(vocabulary_map_unordered, "draft"),
    _rule(vocabulary_map_at_odds, "draft"),
    _rule(vocabulary_map_rebuilt, "draft", "parent"),
    _rule(vocabulary_map_unexpected, "draft"),
    _rule(draft_vocabulary_unstated, "draft"),
    _rule(vocabulary_size_differs, "draft", "target"),
    _rule(vocabulary_coverage, "draft", "answers"),
    _rule(rope_contradictory, "draft"),
    _rule(position_limit, "draft"),
    _rule(rope_theta_differs, "draft", "target"),
    _rule(rope_scaling_differs, "draft", "target"),
    _rule(rope_layout_differs, "draft", "target"),
    _rule(quantization_inherited, "draft", "launch"),
    _rule(quantization_announced, "draft"),
    _rule(quantization_parts_ignored, "draft"),
    _rule(quantization_scales_missing, "draft"),
    _rule(quantization_unannounced, "draft"),
    _rule(target_rotated, "draft", "target"),
    _rule(kv_cache_unscaled, "draft", "launch"),
    _rule(target_size_differs, "draft", "target"),
    _rule(base_model_mismatch, "draft", "target"),
    _rule(target_changed, "draft", "target"),
    _rule(chat_template_differs, "draft", "target"),
    _rule(memory_does_not_fit, "draft", "target", "gpu-memory"),
    _rule(drafter_too_large, "draft", "target"),
    _rule(training_acceptance_low, "training-log"),
    _rule(accept_length_at_floor, "measured"),
    _rule(accept_length_near_floor, "measured"),
    _rule(accept_length_at_ceiling, "measured"),
    _rule(only_first_position_alive, "measured"),
    _rule(steep_fall_after_first, "measured"),
    _rule(all_positions_lower, "measured"),
    _rule(accept_length_falls_after_cache_reuse, "readings"),
    _rule(accept_length_collapses, "readings"),
    _rule(accept_length_falls_with_batch, "measured"),
    _rule(accept_length_falls_with_context, "readings"),
    _rule(accept_length_drifts, "readings"),
    _rule(accept_lengths_differ, "measured"),
    _rule(rank_accepts_less, "readings"),
    _rule(backend_lowers_acceptance, "readings"),
    _rule(setting_lowers_acceptance, "readings"),
    _rule(served_below_training, "training-log", "measured"),
    _rule(speculation_slower, "measured"),
    _rule(cuda_graph_off, "readings"),
    _rule(experts_woken, "target", "measured"),
    _rule(target_saturated, "measured"),
    _rule(collectives_unmeasured, "measured"),
    _rule(admission_capped, "readings"),
    _rule(queue_saturated, "readings"),
    _rule(acceptance_forced, "measured"),
    _rule(impossible_baseline, "measured"),
    _rule(counters_contradict, "readings"),
    _rule(rate_ambiguous, "readings"),
    _rule(steps_without_drafts, "readings"),
    _rule(output_degenerate, "run or answers"),
)
