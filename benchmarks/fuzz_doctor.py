"""Coverage-guided fuzzing of what the doctor reads from strangers: headers, configurations, commands, logs, metrics and answers.

    pip install atheris && python benchmarks/fuzz_doctor.py -max_total_time=600

Anything but an answer or one of our own errors is a crash, which atheris prints with the input that made it. Not part of the tests:
atheris has no builds for every Python, and time is what it needs (tests/unit/doctor/test_hostile.py has the kinds found so far).
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["breakeven"]):
    from breakeven.doctor.evidence import Evidence
    from breakeven.doctor.examine import examine
    from breakeven.doctor.gather import Inputs, gather
    from breakeven.doctor.launch import parse_launch
    from breakeven.errors import BreakevenError

CONFIG = {
    "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_size": 64, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 128, "num_hidden_layers": 1, "vocab_size": 512,
    "draft_vocab_size": 128, "rms_norm_eps": 1e-5, "max_position_embeddings": 512, "rope_theta": 1e4,
    "eagle_aux_hidden_state_layer_ids": [2, 4, 5], "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 3, 4]},
}  # fmt: skip
TARGET = {**CONFIG, "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 8}
HEADER = {"fc.weight": {"dtype": "BF16", "shape": [64, 192], "data_offsets": [0, 24576]}}
LOG = (
    b"Decode batch. #running-req: 1, #token: 186, token usage: 0.00, accept len: 1.00, accept rate: 0.25, cuda graph: True, "
    b"gen throughput (token/s): 178.86, #queue-req: 0, \n"
)
SERVERS = ((None, None), ("vllm", "0.32.0"), ("sglang", "0.5.23"), ("sglang", "0.5.9"))
ROOT = Path(tempfile.mkdtemp(prefix="fuzz-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))


def write(folder: Path, config: bytes, weights: bytes) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_bytes(config)
    (folder / "model.safetensors").write_bytes(weights)
    return str(folder)


def whole(header: bytes, size: int = 24576) -> bytes:
    return len(header).to_bytes(8, "little") + header + bytes(size)


def spliced(provider: atheris.FuzzedDataProvider, text: bytes) -> bytes:
    """`text` with a stretch replaced by fuzzed bytes: most of it stays sensible, so that the deeper code is reached."""
    begin = provider.ConsumeIntInRange(0, len(text))
    end = provider.ConsumeIntInRange(begin, min(len(text), begin + 40))
    return text[:begin] + provider.ConsumeBytes(provider.ConsumeIntInRange(0, 60)) + text[end:]


def one_input(data: bytes) -> None:
    provider = atheris.FuzzedDataProvider(data)
    kind = provider.ConsumeIntInRange(0, 5)
    engine, version = provider.PickValueInList(list(SERVERS))
    config, header, log = json.dumps(CONFIG).encode(), json.dumps(HEADER).encode(), LOG
    weights = whole(header)
    try:
        if kind == 0:
            config = spliced(provider, config)
        elif kind == 1:
            weights = spliced(provider, weights[: 8 + len(header)]) + bytes(24576)
        elif kind == 2:
            weights = whole(spliced(provider, header))
        elif kind == 3:
            launch = parse_launch(provider.ConsumeUnicodeNoSurrogates(400))
            examine(Evidence(launch=launch, engine=launch.engine)).model_dump_json()
            return
        elif kind == 4:
            log = spliced(provider, log * 3)
        inputs = Inputs(
            draft=write(ROOT / "draft", config, weights),
            target=write(ROOT / "target", json.dumps(TARGET).encode(), whole(header)),
            engine=engine,
            engine_version=version,
        )
        if kind >= 4:
            name = "answers.jsonl" if kind == 5 else "server.log"
            (ROOT / name).write_bytes(
                log if kind == 4 else spliced(provider, b'{"token_ids": [1, 2, 3], "num_prompt_tokens": 1}\n')
            )
            inputs = Inputs(
                draft=inputs.draft,
                target=inputs.target,
                engine=engine,
                engine_version=version,
                logs=() if kind == 5 else (ROOT / name,),
                answers=ROOT / name if kind == 5 else None,
            )
        examine(gather(inputs)).model_dump_json()
    except BreakevenError:
        return


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
