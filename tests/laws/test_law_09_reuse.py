"""Law 9. A remembered memory answers as a fresh one would, or refuses: never stale, never foreign.

Step by step equals all at once. Whatever has changed a layer since it wrote (an optimiser, loading,
moving, an adapter, a functional call) makes it refuse what it wrote.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import crossattention as xa
from crossattention.nn import DecoderBlock
from crossattention.seq2seq import Config, EncoderDecoder
from laws import modules
from laws.ask import ask, layer_masks, remember
from laws.given import Sizes, build, draw
from laws.table import EXACT, FORMS, Case, cases, every

AXES = every(
    door=("layer",), kept=("remembered",), dtype=("float64", "float32"),
    mode=("eval", "no_grad", "inference_mode"), size=("primes", "s=33", "t=31"),
)  # fmt: skip


@pytest.mark.parametrize("case", cases(**AXES), ids=str)
def test_remembered_equals_fresh(case: Case, device: torch.device) -> None:
    given, again = draw(case, device), draw(case, device)
    assert given.layer is not None
    masks, query = layer_masks(given), given.leaves["query"]
    given.layer.kernel = "auto" if case.kernel in ("fused", "native") else case.kernel
    kept = remember(case, given)
    first = given.layer(query, kept, **masks)
    given.layer(query + 1, kept, **masks)  # another question changes nothing
    assert torch.equal(given.layer(query, kept, **masks), first)
    torch.testing.assert_close(ask(case.but(kernel="reference"), again), first)


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("chunk", [1, 2, 7])
@pytest.mark.parametrize("form", FORMS)
def test_step_by_step_is_all_at_once(form: str, chunk: int, norm: str) -> None:
    torch.manual_seed(1)
    config = Config(vocabulary=29, width=12, heads=3, feed_forward=17, decoder_layers=2, norm=norm)
    model = EncoderDecoder(config).double().eval()
    source, target = torch.randint(3, 29, (3, 11)), torch.randint(3, 29, (6, 7))
    memory = model.encode(source, [11, 4, 9], form=form).shared_by(2)
    wanted, maps = model.decode_aligned(target, memory)
    state, found, shown = model.start(memory, capacity=2), [], []
    for start in range(0, 7, chunk):
        tokens = target[:, start : start + chunk]
        rows, state, weights = model.step(tokens, memory, state, model.alignment_heads)
        found.append(rows)
        shown.append(weights.mean(1))
    torch.testing.assert_close(torch.cat(found, 1), wanted, atol=1e-11, rtol=1e-11)
    torch.testing.assert_close(torch.cat(shown, 1), maps, atol=1e-11, rtol=1e-11)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_step_calls_what_each_projection_has_become(norm: str) -> None:
    """A step may read weights by itself, but passes over nothing that is done beside."""
    torch.manual_seed(1)
    block = DecoderBlock(48, 3, 32, norm=norm).eval()
    stream, rows = torch.randn(5, 1, 48), torch.randn(5, 7, 48)
    own, cross, feed = block.self_attention, block.cross_attention, block.feed_forward
    for each in (
        own.projection, own.output_projection, cross.query_projection, cross.output_projection,
        feed.expand, feed.contract,
    ):  # fmt: skip
        with torch.no_grad():
            before = block(stream, rows)
            each.weight.data.mul_(1.5)
        each.register_forward_hook(lambda module, given, output: output * 2)
        with torch.no_grad():
            found = block(stream, rows)
        torch.testing.assert_close(found, block(stream, rows).detach())
        assert not torch.allclose(found, before)


def test_the_past_follows_its_lane() -> None:
    torch.manual_seed(2)
    config = Config(vocabulary=29, width=12, heads=3, feed_forward=17, decoder_layers=2)
    model = EncoderDecoder(config).double().eval()
    memory = model.encode(torch.randint(3, 29, (2, 11)), [11, 4]).shared_by(2)
    target = torch.randint(3, 29, (4, 5))
    _, state, _ = model.step(target[:, :3], memory, model.start(memory))
    order = torch.tensor([1, 1, 2, 3])
    moved, _, _ = model.step(target[order, 3:], memory.select(order), state.select(order))
    whole = model.decode(target, memory)[order, 3:]
    torch.testing.assert_close(moved, whole, atol=1e-11, rtol=1e-11)


class Adapter(nn.Linear):
    """A projection with a low-rank part that a flag switches on."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__(base.in_features, base.out_features)
        self.load_state_dict(base.state_dict())
        self.down = nn.Parameter(torch.randn(2, base.in_features))
        self.up = nn.Parameter(torch.randn(base.out_features, 2))
        self.enabled = True

    def forward(self, rows: Tensor) -> Tensor:
        plain = super().forward(rows)
        return plain + rows @ self.down.T @ self.up.T if self.enabled else plain

    def merge(self) -> None:
        """Add the low-rank part for good, as adapters do: through `.data`."""
        self.weight.data += self.up.detach() @ self.down.detach()
        self.enabled = False


def train(layer: xa.CrossAttention, fused: bool) -> None:
    optimizer = torch.optim.AdamW(layer.parameters(), lr=0.1, fused=fused)
    layer(torch.randn(2, 7, 19), torch.randn(2, 5, 23)).square().sum().backward()
    optimizer.step()


def write(layer: xa.CrossAttention) -> None:
    with torch.no_grad():
        layer.value_projection.weight.mul_(2)


def assign(layer: xa.CrossAttention) -> None:
    layer.load_state_dict({k: v + 1 for k, v in layer.state_dict().items()}, assign=True)


def switch(layer: xa.CrossAttention) -> None:
    layer.key_projection.enabled = False


def hook(layer: xa.CrossAttention) -> None:
    layer.key_projection.register_forward_hook(lambda module, given, out: out * 2)


def parametrize(layer: xa.CrossAttention) -> None:
    nn.utils.parametrizations.weight_norm(layer.value_projection)


def swap(layer: xa.CrossAttention) -> None:
    layer.value_projection = nn.Linear(23, layer.sizes.heads * 13)


CHANGES: dict[str, Callable[[xa.CrossAttention], object]] = {
    "written": write,
    "trained": lambda layer: train(layer, fused=False),
    "trained by a fused optimiser": lambda layer: train(layer, fused=True),
    "loaded": lambda layer: layer.load_state_dict(
        {k: v + 1 for k, v in layer.state_dict().items()}
    ),
    "assigned": assign,
    "rounded": lambda layer: layer.half().float(),
    "moved to float64": lambda layer: layer.double(),
    "adapter switched off": switch,
    "adapter merged": lambda layer: layer.key_projection.merge(),
    "hooked": hook,
    "parametrised": parametrize,
    "replaced": swap,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("form", FORMS)
def test_what_a_layer_wrote_before_it_changed(
    form: str, change: Callable[[xa.CrossAttention], object], request: pytest.FixtureRequest
) -> None:
    torch.manual_seed(3)
    layer = build(Sizes.of(Case())).float()
    rows, query = torch.randn(2, 11, 23), torch.randn(2, 7, 19)
    if "adapter" in request.node.callspec.id:
        layer.key_projection = Adapter(layer.key_projection)
        form = "projected"  # an adapter cannot be folded
    kept = layer.remember(rows, form=form)
    layer(query, kept)
    change(layer)
    like = layer.query_projection.weight
    try:
        found = layer(query.to(like), kept)
    except xa.ContractError as error:
        assert "stale" in str(error)
    else:
        fresh = layer(query.to(like), layer.remember(rows.to(like)))
        torch.testing.assert_close(found, fresh)


def test_an_address_that_comes_back() -> None:
    """Other weights may lie where the old ones lay, as they do when memory is freed and reused."""
    layer, place = xa.CrossAttention(13, 1), bytearray(4 * 13 * 13)
    weight, rows = layer.key_projection.weight, torch.randn(2, 11, 13)
    weight.data = torch.frombuffer(place, dtype=torch.float32).view(13, 13)
    address = weight.data_ptr()
    kept = layer.remember(rows)
    weight.data = torch.zeros(0)
    torch.frombuffer(place, dtype=torch.float32).fill_(0.5)
    weight.data = torch.frombuffer(place, dtype=torch.float32).view(13, 13)
    assert weight.data_ptr() == address
    with pytest.raises(xa.ContractError, match="stale"):
        layer(torch.randn(2, 7, 13), kept)


def test_a_mode_is_no_change() -> None:
    """What does not change what is projected does not cost a second projection."""
    layer = build(Sizes.of(Case()))
    rows, query = torch.randn(2, 11, 23).double(), torch.randn(2, 7, 19).double()
    layer.key_projection = Adapter(layer.key_projection).double()
    kept = layer.remember(rows)
    before = layer(query, kept)
    assert torch.equal(layer.train()(query, kept), before)
    with torch.no_grad():
        assert torch.equal(layer.eval().requires_grad_(False)(query, kept), before)


def test_a_functional_call_is_another_layer() -> None:
    torch.manual_seed(4)
    layer = build(Sizes.of(Case()))
    rows, query = torch.randn(2, 11, 23).double(), torch.randn(2, 7, 19).double()
    kept = layer.remember(rows)
    for scale in (0.5, 2.0, 3.0):
        weights = {name: each.detach() * scale for name, each in layer.named_parameters()}
        fresh = torch.func.functional_call(layer, weights, (query, rows))
        assert not torch.allclose(fresh, layer(query, rows))
        with pytest.raises(xa.ContractError, match="stale"):
            torch.func.functional_call(layer, weights, (query, kept))


@pytest.mark.parametrize("kernel", EXACT)
def test_a_foreign_memory_is_refused(kernel: str) -> None:
    torch.manual_seed(5)
    layer, other = (build(Sizes.of(Case())) for _ in "ab")
    layer.kernel = kernel
    query = torch.randn(2, 7, 19).double()
    kept = other.remember(torch.randn(2, 11, 23).double())
    for foreign in (layer, copy.deepcopy(other)):
        with pytest.raises(xa.ContractError, match="memory"):
            foreign(query, kept)


@pytest.mark.parametrize(("subject", "form"), modules.PAIRS, ids=modules.NAMES)
def test_modules_refuse_what_they_wrote_before_they_changed(
    subject: modules.Subject, form: str
) -> None:
    module, (query, rows) = subject.build(), modules.given()
    memory = subject.remember(module, rows, modules.LENGTHS[0], form)
    subject.read(module, query, memory)
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.1, fused=True)
    subject.read(module, query, memory).sum().backward()
    optimizer.step()
    with pytest.raises(xa.ContractError, match="stale"):
        subject.read(module, query, memory)


@pytest.mark.parametrize("subject", modules.SUBJECTS, ids=str)
def test_modules_read_the_same_in_both_forms_and_in_chunks(subject: modules.Subject) -> None:
    module, (query, rows) = subject.build(), modules.given()
    outputs = []
    for form in modules.FORMS:
        for grad in (False, True):
            with torch.set_grad_enabled(grad):
                memory = subject.remember(module, rows, modules.LENGTHS[1], form)
                outputs.append(subject.read(module, query, memory))
                outputs.append(subject.read(module, query, memory))  # whatever it keeps
    for output in outputs[1:]:
        torch.testing.assert_close(output, outputs[0])


@pytest.mark.parametrize("subject", modules.SUBJECTS, ids=str)
def test_what_modules_keep_follows_their_weights(subject: modules.Subject) -> None:
    module, (query, rows) = subject.build(), modules.given()
    with torch.no_grad():
        for change in (1.0, 0.5):
            for parameter in module.parameters():
                parameter.mul_(change)
            kept = subject.read(module, query, subject.remember(module, rows, None, "raw"))
            again = copy.deepcopy(module)
            wanted = subject.read(again, query, subject.remember(again, rows, None, "raw"))
            assert torch.equal(kept, wanted)


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("lengths", [None, [[3, 1, 0], [0, 2, 1], [1, 1, 0]]], ids=["all", "some"])
@pytest.mark.parametrize("form", FORMS)
def test_a_memory_in_chunks_is_the_whole(
    form: str, lengths: list[list[int]] | None, grad: bool
) -> None:
    torch.manual_seed(3)
    layer, query = xa.CrossAttention(12, 2).double().eval(), torch.randn(3, 5, 12).double()
    chunks = [torch.randn(3, size, 12).double() for size in (3, 2, 1)]
    counts = [None] * 3 if lengths is None else lengths
    with torch.set_grad_enabled(grad):
        memory = layer.remember(chunks[0], counts[0], form=form)
        for chunk, count in zip(chunks[1:], counts[1:], strict=True):
            past, before = memory, layer(query, memory)
            memory = layer.remember(past.append(chunk, count), form=form)
            read = layer(query, memory)
            layer.remember(past.append(chunk + 1, count), form=form)  # another future
            assert torch.equal(layer(query, past), before)
            assert torch.equal(layer(query, memory), read)
        for i in range(3):
            parts = zip(chunks, counts, strict=True)
            rows = [x[i : i + 1, : None if n is None else n[i]] for x, n in parts]
            alone = layer(query[i : i + 1], layer.remember(torch.cat(rows, 1), form=form))
            torch.testing.assert_close(layer(query, memory)[i : i + 1], alone)


@pytest.mark.parametrize("form", FORMS)
def test_replaced_rows_are_never_read_again(form: str) -> None:
    torch.manual_seed(3)
    layer, query = xa.CrossAttention(12, 2).double().eval(), torch.randn(3, 5, 12).double()
    rows, new = torch.randn(3, 7, 12).double(), torch.randn(3, 2, 12).double()
    with torch.no_grad():
        old = layer.remember(rows, form=form)
        memory = layer.remember(old.replace(6, new), form=form)
        wanted = layer(query, layer.remember(torch.cat((rows[:, :6], new), 1), form=form))
        torch.testing.assert_close(layer(query, memory), wanted)
        with pytest.raises(xa.ContractError, match="must be the newest"):
            layer(query, old)
