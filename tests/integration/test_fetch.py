"""The fetched model is the one that transformers reads from the same GGUF, and the command is quick once it is there."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
import transformers

from breakeven.checkpoints.cache import demo_model_path, is_complete

pytestmark = pytest.mark.integration

MODEL = demo_model_path("smollm2-135m-instruct")
BREAKEVEN = Path(sys.executable).parent / "breakeven"


@pytest.fixture(scope="module", autouse=True)
def _model() -> None:
    if not is_complete(MODEL):
        pytest.skip("the model is not here: run breakeven fetch smollm2-135m-instruct")


def test_second_fetch_is_quick_and_imports_no_torch() -> None:
    program = (
        "import sys; sys.argv = ['breakeven', 'fetch', 'smollm2-135m-instruct']\n"
        "from breakeven.cli import main\n"
        "try: main()\n"
        "finally: print('torch' in sys.modules)"
    )
    started_s = time.monotonic()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert time.monotonic() - started_s < 3  # 0.3 s on an idle machine
    assert done.stdout.splitlines() == [f"already there: {MODEL}", "False"]


def test_unknown_name() -> None:
    done = subprocess.run([BREAKEVEN, "fetch", "gpt-5"], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert "no demo model is called 'gpt-5': known: smollm2-135m-instruct" in done.stderr.replace("\n", " ")


def test_transformers_reads_the_folder_and_its_template() -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(MODEL, local_files_only=True)
    messages = [{"role": "user", "content": "What is 12 + 30?"}]
    ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"]
    from breakeven.drafter.serving.tokenizer import TextTokenizer

    assert list(TextTokenizer.from_folder(MODEL).encode_chat(messages)) == list(ids)
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<|im_start|>", "<|im_end|>")
    model = transformers.LlamaForCausalLM.from_pretrained(MODEL, local_files_only=True)
    assert model.generation_config.eos_token_id == 2
    prompt = tokenizer("The capital of France is", return_tensors="pt")
    answer = model.generate(**prompt, max_new_tokens=3, do_sample=False, pad_token_id=2)
    assert "Paris" in tokenizer.decode(answer[0])
