from __future__ import annotations

import torch

from crossattention.translate.translation import Translation, strongest, word_weights


def test_word_weights_sum_over_source_tokens_and_average_over_target_tokens() -> None:
    torch.manual_seed(0)
    weights = torch.rand(5, 7).softmax(-1)  # source tokens 0..5 and the end
    source = [("a", [0]), ("bcd", [1, 2, 3]), ("e", [4, 5])]
    target = [("x", [0, 1]), ("y", [2]), ("z", [3, 4])]
    words = word_weights(weights, target, source)
    assert words.shape == (3, 4)
    torch.testing.assert_close(words[0, 1], weights[:2, 1:4].sum() / 2)
    torch.testing.assert_close(words[1, 2], weights[2, 4:6].sum())
    torch.testing.assert_close(words[2, 3], weights[3:, 6].mean())
    torch.testing.assert_close(words.sum(1), torch.ones(3))


def test_the_end_keeps_its_weight_and_wins_where_it_is_read_most() -> None:
    weights = torch.tensor([[0.1, 0.2, 0.7]])
    words = word_weights(weights, [("x", [0])], [("a", [0]), ("b", [1])])
    assert strongest(words[0].tolist()) is None
    assert strongest([0.1, 0.6, 0.3]) == 1
    made = Translation("a b", "x", 0.0, words=("x", "y"), alignment=((0.1, 0.9), (0.9, 0.1)))
    assert made.strongest() == [None, 0]
