from __future__ import annotations

from onceward_apps.kit import tokens


def test_a_token_has_more_than_128_bits_and_never_repeats():
    made = {tokens.new().text for _ in range(1_000)}
    assert len(made) == 1_000
    assert min(map(len, made)) >= 43  # 32 bytes in base64


def test_the_digest_of_the_text_finds_the_token():
    token = tokens.new()
    assert tokens.digest(token.text) == token.digest


def test_a_token_that_reaches_a_log_does_not_show_itself():
    token = tokens.new()
    assert token.text not in repr(token)
