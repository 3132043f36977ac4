from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models

from breakeven.drafter.serving.tokenizer import TextTokenizer
from breakeven.errors import CheckpointError, UsageError


def sentencepiece() -> Tokenizer:
    vocab = {"<unk>": 0, "<s>": 1, "<0xE2>": 2, "<0x82>": 3, "<0xAC>": 4, "▁the": 5, "▁": 6, "cat": 7}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], unk_token="<unk>", byte_fallback=True))
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens([AddedToken("<s>", special=True)])
    return tokenizer


def test_byte_level_bytes_spell_what_the_library_decodes(byte_tokenizer: TextTokenizer) -> None:
    text = "naïve 日本 😀\n\ttabs"
    ids = byte_tokenizer.encode(text, add_special_tokens=False)
    assert b"".join(map(byte_tokenizer.token_bytes, ids)).decode() == text
    assert ids == tuple(text.encode())


def test_special_tokens_have_no_text_and_other_added_tokens_have_theirs(byte_tokenizer: TextTokenizer) -> None:
    assert byte_tokenizer.token_bytes(256) == b""
    tokenizer = sentencepiece()
    tokenizer.add_tokens([AddedToken("<tool>", special=False)])
    assert TextTokenizer(tokenizer, None).token_bytes(8) == b"<tool>"


def test_many_texts_and_tokens_by_name(byte_tokenizer: TextTokenizer) -> None:
    texts = ["", "é日", "a<|end|>b"]
    assert byte_tokenizer.encode_many(texts) == [byte_tokenizer.encode(text, add_special_tokens=False) for text in texts]
    ids, offsets = byte_tokenizer.encode_with_offsets("a<|end|>b")
    assert (ids, offsets) == ((97, 256, 98), ((0, 1), (1, 8), (8, 9)))
    assert byte_tokenizer.text_of(ids) == "ab"
    assert byte_tokenizer.text_of("é".encode()[:1]) == "\ufffd"
    assert (byte_tokenizer.token_id("<|end|>"), byte_tokenizer.token_name(256)) == (256, "<|end|>")
    assert byte_tokenizer.special_token_ids == {256}
    assert byte_tokenizer.end_token_id is None


def test_sentencepiece_bytes_and_spaces() -> None:
    tokenizer = TextTokenizer(sentencepiece(), None)
    ids = [1, 5, 6, 7, 2, 3, 4]
    assert b"".join(map(tokenizer.token_bytes, ids)).decode() == " the cat€"


def test_ids_beyond_the_vocabulary_have_no_text(byte_tokenizer: TextTokenizer) -> None:
    assert byte_tokenizer.token_bytes(40_000) == b""


def test_unknown_decoder_is_refused() -> None:
    tokenizer = Tokenizer(models.WordPiece(vocab={"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.decoder = decoders.WordPiece()
    with pytest.raises(CheckpointError, match="WordPiece"):
        TextTokenizer(tokenizer, None)


def test_chat_needs_a_template() -> None:
    with pytest.raises(UsageError, match="no chat template"):
        TextTokenizer(sentencepiece(), None).encode_chat([{"role": "user", "content": "hi"}])


def test_folder_without_tokenizer_and_with_a_damaged_one(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: missing"):
        TextTokenizer.from_folder(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"version": "1.0"')
    with pytest.raises(CheckpointError, match="not a tokenizer"):
        TextTokenizer.from_folder(tmp_path)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja"])
def test_what_is_no_file_of_the_folder_is_not_read(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    sentencepiece().save(str(folder / "tokenizer.json"))
    secret = tmp_path / "secret"
    secret.write_text("{}")
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(secret)
    with pytest.raises(CheckpointError, match="links out of a model folder are not followed"):
        TextTokenizer.from_folder(folder)
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(CheckpointError, match=f"{name}: not a regular file"):
        TextTokenizer.from_folder(folder)
    (folder / name).unlink()
    with (folder / name).open("wb") as sparse:
        sparse.truncate(10**12)
    with pytest.raises(CheckpointError, match=f"{name}: 1000000000000 bytes; expected at most"):
        TextTokenizer.from_folder(folder)


def test_a_template_that_is_not_utf8(tmp_path: Path) -> None:
    sentencepiece().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(CheckpointError, match="byte 0 is not UTF-8; expected a chat template"):
        TextTokenizer.from_folder(tmp_path)


def test_folder_gives_special_tokens_to_the_template(tmp_path: Path) -> None:
    sentencepiece().save(str(tmp_path / "tokenizer.json"))
    settings = {"bos_token": {"content": "<s>"}, "eos_token": "</s>", "chat_template": "{{ bos_token }}{{ messages[0].content }}"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    tokenizer = TextTokenizer.from_folder(tmp_path)
    assert tokenizer.encode_chat([{"role": "user", "content": "cat"}])[0] == 1
