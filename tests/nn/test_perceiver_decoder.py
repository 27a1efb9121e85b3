"""Perceiver IO's decoder: each output row is its query's own, and the laws of its latents."""

from __future__ import annotations

import pytest
import torch

import summaries
from crossattention import ContractError, Memory
from crossattention.nn import PerceiverDecoder

FORMS = ["raw", "projected"]


def make(adds_queries: bool = False) -> PerceiverDecoder:
    torch.manual_seed(0)
    decoder = PerceiverDecoder(6, 3, memory_width=5, feed_forward=7, adds_queries=adds_queries)
    summaries.disturb(decoder)
    return decoder


def asked(count: int = 11) -> torch.Tensor:
    return torch.randn(3, count, 6, dtype=torch.float64)


@pytest.mark.parametrize("adds_queries", [False, True])
def test_value_is_the_definition(adds_queries: bool) -> None:
    decoder, queries, latents = make(adds_queries), asked(), summaries.rows_of(5)
    mean = latents.mean(-1, keepdim=True)
    deviation = (latents.var(-1, keepdim=True, unbiased=False) + 1e-5).sqrt()
    read = decoder.cross_attention(decoder.query_norm(queries), (latents - mean) / deviation)
    found = queries + read if adds_queries else read
    wanted = found + decoder.feed_forward(decoder.around_feed.norm(found))
    torch.testing.assert_close(decoder(queries, latents), wanted)


@pytest.mark.parametrize("form", FORMS)
def test_parts_equal_the_whole_and_remembered_equals_fresh(form: str) -> None:
    decoder, queries, latents = make(), asked(), summaries.rows_of(5)
    decoder.form = form
    whole, memory = decoder(queries, latents), decoder.remember(latents)
    parts = torch.cat([decoder(queries[:, :4], memory), decoder(queries[:, 4:], memory)], 1)
    torch.testing.assert_close(parts, whole)
    order = torch.randperm(latents.shape[1])
    torch.testing.assert_close(decoder(queries, latents[:, order]), whole)


@pytest.mark.parametrize("form", FORMS)
def test_padding_and_what_it_holds_change_nothing(form: str) -> None:
    decoder, queries, latents = make(), asked(), summaries.rows_of(5)
    decoder.form = form
    lengths = summaries.LENGTHS
    for index, length in enumerate(lengths):
        latents[index, length:] = torch.nan
    given = latents.clone().requires_grad_()
    found = decoder(queries, decoder.remember(given, lengths))
    for index, length in enumerate(lengths):
        one = decoder(queries[index : index + 1], latents[index : index + 1, :length])
        torch.testing.assert_close(found[index : index + 1], one)
    found.square().sum().backward()
    gradients = [given.grad, *summaries.gradients(decoder).values()]
    assert all(bool(each.isfinite().all()) for each in gradients)


@pytest.mark.parametrize("form", FORMS)
def test_sequences_share_latents(form: str) -> None:
    decoder, latents = make(), summaries.rows_of(5)
    decoder.form = form
    queries = torch.randn(6, 2, 6, dtype=torch.float64)
    shared = decoder(queries, decoder.remember(latents).shared_by(2))
    torch.testing.assert_close(shared, decoder(queries, latents.repeat_interleave(2, 0)))


@pytest.mark.parametrize("form", FORMS)
def test_gradients_reach_everything(form: str) -> None:
    decoder, latents = make(), summaries.rows_of(5).requires_grad_()
    decoder.form = form
    queries = asked().requires_grad_()
    decoder(queries, latents).square().sum().backward()
    assert float(queries.grad.abs().min()) > 0 and float(latents.grad.abs().min()) > 0
    for name, gradient in summaries.gradients(decoder).items():
        assert (float(gradient.abs().max()) > 1e-9) != name.endswith("key_projection.bias"), name


def test_refuses() -> None:
    decoder, latents = make(), summaries.rows_of(5)
    with pytest.raises(ContractError, match="queries"):
        decoder(torch.zeros(3, 2, 7, dtype=torch.float64), latents)
    with pytest.raises(ContractError, match=r"rows.*\[m, s, 5\]"):
        decoder(asked(), asked())
    with pytest.raises(ContractError, match="made by the layer that reads it"):
        decoder(asked(), Memory.of(latents))
    with pytest.raises(ContractError, match="memory_width"):
        PerceiverDecoder(6, 3, memory_width=0)
    with pytest.raises(ContractError, match="adds_queries"):
        PerceiverDecoder(6, 3, memory_width=5, adds_queries=1)  # type: ignore[arg-type]
