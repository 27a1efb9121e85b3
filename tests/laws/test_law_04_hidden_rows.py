"""Law 4. Rows that no query may read may hold anything, NaN included, forward and backward.

Rows beyond a length, rows hidden from all by a boolean or by a bias of -inf, rows of a memory that
nobody owns: every result and every gradient is what zeros in their place would give.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.autograd import grad

import crossattention as xa
from crossattention.nn import GatedCrossAttention
from laws import modules
from laws.ask import ask
from laws.given import Given, draw
from laws.table import EXACT, KERNELS, OWNERS, Case, cases, every

GARBAGE = (float("nan"), float("inf"), -float("inf"), 3e38)
HIDING = (
    "lengths", "visible", "visible of heads", "visible, lengths", "bias that hides",
    "bias, visible, lengths", "causal, lengths", "nothing visible",
)  # fmt: skip
AXES = every(
    mask=HIDING, mode=("train",), size=("primes", "s=33", "t=64"),
    layout=("contiguous", "permuted", "sliced"),
    dtype=("float64", "float32", "bfloat16", "float16", "float32 bias"),
)  # fmt: skip
FUNCTIONS = {**AXES, "door": ("function",), "form": ("projected",), "kept": ("fresh",)}
LAYERS = {**AXES, "door": ("layer",), "mask": tuple(x for x in HIDING if "lengths" in x)}


def unread(case: Case, given: Given) -> Tensor:
    """[m, s], True where no query row of any owner may read; of a layer, beyond the lengths.

    A layer projects before it knows masks, so that only what is beyond a length never reaches it.
    """
    hidden = torch.ones(given.sizes.m, given.sizes.s, dtype=torch.bool, device=given.visible.device)
    if case.door == "layer":
        assert given.lengths is not None
        for memory, length in enumerate(given.lengths):
            hidden[memory, :length] = False
        return hidden
    seen = given.visible if given.bias is None else given.visible & (given.bias != -torch.inf)
    for sequence, memory in enumerate(given.owner):
        hidden[memory] &= ~seen[sequence].flatten(0, 1).any(0)
    return hidden


def results(case: Case, device: torch.device, garbage: float) -> list[Tensor]:
    given = draw(case, device)
    hidden = unread(case, given)
    assert bool(hidden.any())
    for name in ("key", "value", "rows"):
        if name in given.leaves:
            leaf, mask = given.leaves[name], hidden[:, :, None]
            fill = max(min(garbage, torch.finfo(leaf.dtype).max), torch.finfo(leaf.dtype).min)
            fill = garbage if garbage in (torch.inf, -torch.inf) or garbage != garbage else fill
            leaf.masked_fill_(mask if leaf.dim() == 3 else mask[:, None], fill)
    leaves = [leaf.requires_grad_() for leaf in given.leaves.values()]
    asked = leaves + ([] if given.layer is None else list(given.layer.parameters()))
    read = ask(case, given)
    return [read, *grad(read.sin().sum(), asked, materialize_grads=True)]


@pytest.mark.parametrize("case", cases(**FUNCTIONS) + cases(**LAYERS), ids=str)
def test_hidden_rows_may_hold_anything(case: Case, device: torch.device) -> None:
    clean = results(case, device, 0.0)
    for garbage in GARBAGE:
        for ours, wanted in zip(results(case, device, garbage), clean, strict=True):
            assert torch.equal(ours, wanted)


@pytest.mark.parametrize("kernel", ["reference", "auto"])
@pytest.mark.parametrize("owner", OWNERS)
def test_reference_is_right_for_each_query(owner: str, kernel: str) -> None:
    """A row hidden from some queries only: right for each in `reference`; auto without NaN."""
    given = draw(Case(mask="visible", owner=owner), torch.device("cpu"))
    query, key, value = (given.leaves[name] for name in ("query", "key", "value"))
    if kernel == "reference":
        key[:, :, 2], value[:, :, 2] = torch.nan, torch.inf
    read = xa.attend(query, key, value, owner=given.owner, kernel=kernel, **given.options)
    reads_it = given.visible[..., 2] if kernel == "reference" else torch.tensor(False)
    assert torch.equal(read.isnan().any(-1), reads_it.expand(read.shape[:-1]))


@pytest.mark.parametrize("kernel", EXACT)
@pytest.mark.parametrize("form", ["projected", "raw"])
def test_beyond_lengths_a_layer_never_looks(form: str, kernel: str) -> None:
    torch.manual_seed(2)
    layer = xa.CrossAttention(12, 3, memory_width=5, key_width=4)
    layer.kernel = kernel
    rows, query = torch.randn(2, 7, 5), torch.randn(2, 3, 12)
    clean = layer(query, layer.remember(rows[:, :4], form=form))
    rows[:, 4:] = torch.nan
    dirty = rows.requires_grad_()
    found = layer(query, layer.remember(dirty, [4, 4], form=form))
    torch.testing.assert_close(found, clean)
    for each in grad(found.sin().sum(), [dirty, *layer.parameters()]):
        assert bool(each.isfinite().all())


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("hidden_by", ["visible", "bias", "causal"])
def test_hidden_however_large(hidden_by: str, kernel: str) -> None:
    """The best score of all, by far, hidden from some queries: they give it no weight at all."""
    torch.manual_seed(3)
    query, key = torch.rand(1, 3, 7, 13) + 1, torch.randn(1, 3, 11, 13)
    key[:, :, 5], value = 1e6, torch.randn(1, 3, 11, 13)
    visible = torch.ones(7, 11, dtype=torch.bool).tril(2)
    options = {
        "visible": {"visible": visible},
        "bias": {"bias": torch.zeros(7, 11).masked_fill(~visible, -torch.inf)},
        "causal": {"causal": 2},
    }[hidden_by]
    read = xa.attend(query, key, value, kernel=kernel, **options)
    early = xa.attend(query[:, :, :3], key[:, :, :5], value[:, :, :5], causal=2)
    torch.testing.assert_close(read[:, :, :3], early)
    torch.testing.assert_close(read[:, :, 3:], value[:, :, 5:6].expand(1, 3, 4, 13))


@pytest.mark.parametrize(("subject", "form"), modules.PAIRS, ids=modules.NAMES)
def test_modules_never_see_what_lies_beyond_the_lengths(
    subject: modules.Subject, form: str
) -> None:
    module, (query, rows) = subject.build(), modules.given()
    beyond = torch.arange(7) >= torch.tensor(modules.LENGTHS[2])[:, None]
    if subject.name.startswith("Multi"):  # the second memory's rows are every second one of these
        beyond &= torch.arange(7) % 2 == 1
    found = []
    for garbage in (0.0, torch.nan, torch.inf):
        held = rows.masked_fill(beyond[..., None], garbage).requires_grad_()
        output = subject.read(
            module, query, subject.remember(module, held, modules.LENGTHS[2], form)
        )
        gradients = torch.autograd.grad(output.square().sum(), (held, *module.parameters()))
        found.append((output, *gradients))
    for other in found[1:]:
        for one, same in zip(found[0], other, strict=True):
            assert torch.equal(one, same)


@pytest.mark.parametrize("reads", ["latest", "all_previous"])
@pytest.mark.parametrize("form", modules.FORMS)
def test_text_never_sees_a_medium_that_has_not_begun(form: str, reads: str) -> None:
    torch.manual_seed(3)
    module = GatedCrossAttention(12, 2, reads=reads).double().eval()
    torch.nn.init.ones_(module.gate_attention)
    torch.nn.init.ones_(module.gate_feed)
    query, rows = modules.given()
    count, media = torch.tensor([[0, 1, 1, 1, 2]] * 3), torch.tensor([1, 1, 1, 2, 2, 3, 3])
    shown = {"count": count, "media": media}
    output = module(query, module.remember(rows, form=form), **shown)
    assert torch.equal(output[:, 0], query[:, 0])
    for medium, changed in ((1, [1, 2, 3]), (2, [4]), (3, [])):
        moved = rows + (media == medium)[:, None] * torch.randn(12).double()
        other = module(query, module.remember(moved, form=form), **shown)
        differs = (other != output).any(-1)
        if reads == "all_previous" and medium == 1:
            changed = [1, 2, 3, 4]
        assert differs.nonzero()[:, 1].unique().tolist() == changed
