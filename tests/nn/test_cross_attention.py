"""The layer: forms agree, masks and empty rows behave, and what was changed is refused."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

import crossattention as xa
from crossattention.nn import NullRow

FORMS = ("projected", "raw")


def layer(seed: int = 0, **options: object) -> xa.CrossAttention:
    torch.manual_seed(seed)
    made = xa.CrossAttention(12, 4, **{"memory_width": 5, "key_width": 3, **options}).double()
    for parameter in made.parameters():
        nn.init.normal_(parameter)
    return made.eval()


def rows(m: int = 3, s: int = 7, c: int = 5) -> Tensor:
    return torch.randn(m, s, c, dtype=torch.float64)


def queries(b: int = 3, t: int = 5) -> Tensor:
    return torch.randn(b, t, 12, dtype=torch.float64)


def split(stream: Tensor, heads: int) -> Tensor:
    return stream.unflatten(-1, (heads, -1)).transpose(1, 2)


def by_hand(
    made: xa.CrossAttention, query: Tensor, memory: Tensor, owner: list[int], **masks: object
) -> Tensor:
    """The layer by its equation, from the verb that the kernels' tests judge."""
    key = split(made.key_projection(memory), made.sizes.memory_heads)
    value = split(made.value_projection(memory), made.sizes.memory_heads)
    asked = split(made.query_projection(query), made.sizes.heads)
    read = xa.attend(asked, key, value, owner=owner, scale=made.scale, softcap=made.softcap,
                     kernel="reference", **masks)  # fmt: skip
    return made.output_projection(read.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("softcap", [None, 1.5])
@pytest.mark.parametrize(
    "options", [{}, {"value_width": 2}, {"memory_heads": 2}, {"bias": False}, {"memory_heads": 1}]
)
def test_forms_equal_the_equation(options: dict[str, object], softcap: float, form: str) -> None:
    made, memory, query = layer(**options), rows(), queries(b=6)
    made.softcap = softcap
    owner = [2, 0, 0, 1, 0, 2]
    kept = made.remember(memory, [7, 3, 5], form=form).select(torch.tensor(owner))
    assert (kept.contents[made.number].key is None) == (form == "raw")
    visible = torch.rand(6, 4, 5, 7) > 0.2
    visible[..., 2] = True
    wanted = by_hand(made, query, memory, owner, lengths=[7, 3, 5], visible=visible)
    torch.testing.assert_close(made(query, kept, visible=visible), wanted, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("form", FORMS)
def test_gradients_of_every_parameter_agree_with_the_equation(form: str) -> None:
    made, memory, query = layer(), rows(), queries()
    memory[1, 3:] = torch.nan
    inputs = [query.requires_grad_(), memory.requires_grad_(), *made.parameters()]
    found = made(query, made.remember(memory, [7, 3, 5], form=form))
    clean = memory.masked_fill(memory.isnan(), 0)
    wanted = by_hand(made, query, clean, [0, 1, 2], lengths=[7, 3, 5])
    torch.testing.assert_close(found, wanted, atol=1e-10, rtol=1e-10)
    ours = torch.autograd.grad(found.sin().sum(), inputs)
    theirs = torch.autograd.grad(wanted.sin().sum(), inputs)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("form", FORMS)
def test_a_row_that_reads_nothing_is_exactly_zero(form: str) -> None:
    made, memory = layer(), rows()
    output = made(queries(), made.remember(memory, [7, 0, 5], form=form))
    assert torch.equal(output[1], torch.zeros(5, 12, dtype=torch.float64))
    assert bool(output[0].any())
    visible = torch.ones(3, 4, 5, 7, dtype=torch.bool)
    visible[0, :, 2] = False
    visible[2, 1:, 3] = False  # one head still reads
    output = made(queries(), made.remember(memory, form=form), visible=visible)
    assert not output[0, 2].any()
    assert bool(output[2, 3].any())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("memory_heads", [4, 2])
def test_null_row_equals_one_more_visible_row(form: str, memory_heads: int) -> None:
    made, memory, query = layer(memory_heads=memory_heads), rows(), queries()
    made.null_row = NullRow(memory_heads, 3, 3).double()
    nn.init.normal_(made.null_row.value)
    output = made(query, made.remember(memory, [7, 0, 4], form=form))
    key = split(made.key_projection(memory), memory_heads)
    value = split(made.value_projection(memory), memory_heads)
    key = torch.cat([key, made.null_row.key[:, None].expand(3, -1, -1, -1)], 2)
    value = torch.cat([value, made.null_row.value[:, None].expand(3, -1, -1, -1)], 2)
    seen = torch.arange(8) < torch.tensor([7, 0, 4])[:, None]
    seen[:, 7] = True
    asked = split(made.query_projection(query), 4)
    read, lse = xa.attend_with_lse(
        asked, key, value, visible=seen[:, None, None], kernel="reference"
    )
    wanted = made.output_projection(read.transpose(1, 2).flatten(2))
    torch.testing.assert_close(output, wanted, atol=1e-10, rtol=1e-10)
    shown = made.weights(query, made.remember(memory, [7, 0, 4], form=form))
    wanted_weights = xa.attention_weights(asked, key, visible=seen[:, None, None])[..., :7]
    torch.testing.assert_close(shown, wanted_weights, atol=1e-10, rtol=1e-10)


def test_norms_are_used_and_refuse_the_raw_form() -> None:
    made, memory, query = layer(), rows(), queries()
    plain = made(query, memory)
    made.query_norm = nn.LayerNorm(3).double()
    normed = made(query, memory)
    assert not torch.allclose(plain, normed)
    made.key_norm = nn.LayerNorm(3).double()
    assert not torch.allclose(normed, made(query, memory))
    with pytest.raises(xa.ContractError, match="key norm does not commute"):
        made.remember(memory, form="raw")
    assert made.remember(memory, queries=1).contents[made.number].key is not None


def test_raw_form_is_refused_for_watched_projections() -> None:
    made, memory = layer(), rows()
    handle = made.key_projection.register_forward_hook(lambda *_: None)
    with pytest.raises(xa.ContractError, match="hooks"):
        made.remember(memory, form="raw")
    handle.remove()
    nn.utils.parametrizations.weight_norm(made.value_projection)
    with pytest.raises(xa.ContractError, match="hooks or parametrisations|not nn.Linear"):
        made.remember(memory, form="raw")


def test_form_follows_the_expected_queries() -> None:
    made = xa.CrossAttention(64, 8)
    memory = torch.randn(2, 997, 64)

    def is_raw(queries: int | None = None, reads: int | None = None) -> bool:
        return made.remember(memory, queries=queries, reads=reads).contents[made.number].key is None

    assert is_raw(1) and not is_raw(500) and not is_raw()
    assert is_raw(7, reads=1) and not is_raw(7, reads=7) and not is_raw(7)  # as one row a read
    with pytest.raises(xa.ContractError, match="`reads` must be at most `queries`, 7, got 8"):
        is_raw(7, reads=8)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("training", [False, True])
def test_weights_never_change_the_output_and_reproduce_it(form: str, training: bool) -> None:
    made, memory, query = layer(), rows(), queries()
    kept = made.train(training).remember(memory, [7, 3, 5], form=form)
    before = made(query, kept)
    shown = made.weights(query, kept)
    assert torch.equal(made(query, kept), before)
    value = split(made.value_projection(memory), 4)
    beyond = ~kept.holding.extent.readable[:, None, :, None]
    read = (shown @ value.masked_fill(beyond, 0)).transpose(1, 2)
    torch.testing.assert_close(made.output_projection(read.flatten(2)), before)
    torch.testing.assert_close(made.weights(query, kept, heads=[2, 0]), shown[:, [2, 0]])


def test_dropout_in_training_only_and_value_bias_follows_the_total() -> None:
    made, memory, query = layer(dropout=0.4), rows(), queries()
    assert torch.equal(made(query, memory), made(query, memory))
    made.train()
    for form in FORMS:
        kept = made.remember(memory, form=form)
        torch.manual_seed(3)
        one = made(query, kept)
        torch.manual_seed(3)
        assert torch.equal(one, made(query, kept))
        assert not torch.equal(one, made(query, kept))
    outputs = []
    for form in FORMS:  # the same draws drop the same weights in both forms
        torch.manual_seed(5)
        outputs.append(made(query, made.remember(memory, form=form)))
    torch.testing.assert_close(outputs[0], outputs[1], atol=1e-10, rtol=1e-10)


def test_what_changed_is_refused() -> None:
    made, memory, query = layer(), rows(), queries()
    kept = made.remember(memory)
    with torch.no_grad():
        made.key_projection.weight.mul_(2)
    with pytest.raises(xa.ContractError, match="stale"):
        made(query, kept)
    with pytest.raises(xa.ContractError, match="others"):
        layer()(query, kept)
    for fused in (False, True):
        made = layer(bias=False)
        kept = made.remember(memory)
        optimizer = torch.optim.AdamW(made.parameters(), fused=fused)
        made(query, kept).sum().backward()
        optimizer.step()
        with pytest.raises(xa.ContractError, match="stale"):
            made(query, kept)
    kept = made.remember(memory)
    made.load_state_dict({k: v + 1 for k, v in made.state_dict().items()}, assign=True)
    with pytest.raises(xa.ContractError, match="stale"):
        made(query, kept)
    kept = made.remember(memory)
    with pytest.raises(xa.ContractError, match="others"):
        copy.deepcopy(made)(query, kept)


def test_copies_of_a_layer_share_a_memory_as_other_layers_do() -> None:
    made, memory, query = layer(), rows(), queries()
    twin = copy.deepcopy(made)
    with torch.no_grad():
        twin.value_projection.weight.mul_(2)
    both = twin.remember(made.remember(memory))
    assert torch.equal(made(query, both), made(query, memory))
    assert torch.equal(twin(query, both), twin(query, memory))


def test_wrong_shapes_are_refused_at_the_door() -> None:
    made = layer()
    with pytest.raises(xa.ContractError, match=r"`query` must be \[b, t, 12\]"):
        made(torch.randn(3, 5, 11, dtype=torch.float64), rows())
    with pytest.raises(xa.ContractError, match="`rows` must be of width 5"):
        made.remember(rows(c=6))
    with pytest.raises(xa.ContractError, match="b = 6"):
        made(queries(), made.remember(rows()).shared_by(2))
    with pytest.raises(xa.ContractError, match="multiple of memory_heads"):
        xa.CrossAttention(12, 4, memory_heads=3)
    with pytest.raises(xa.ContractError, match="multiple of heads"):
        xa.CrossAttention(12, 5)


def test_hidden_rows_spoil_no_gradient_of_a_key_norm() -> None:
    made, memory, query = layer(), rows(), queries()
    made.key_norm = nn.LayerNorm(3).double()
    visible = torch.ones(5, 7, dtype=torch.bool)
    visible[:, 4] = False
    found = []
    for garbage in (0.0, torch.nan, torch.inf):
        memory[:, 4] = garbage
        output = made(query, made.remember(memory.clone()), visible=visible)
        found.append([output, *torch.autograd.grad(output.sin().sum(), list(made.parameters()))])
    for dirty in found[1:]:
        for ours, clean in zip(dirty, found[0], strict=True):
            torch.testing.assert_close(ours, clean)


def test_asking_for_weights_draws_no_chance() -> None:
    made, memory, query = layer(dropout=0.4).train(), rows(), queries()
    made.null_row = NullRow(4, 3, 3).double()
    torch.manual_seed(3)
    wanted = made(query, memory)
    torch.manual_seed(3)
    made.weights(query, memory)
    assert torch.equal(made(query, memory), wanted)
