"""One graph for every size: layer, decoder step and training step, without a break."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import crossattention as xa
from crossattention.seq2seq import Config, EncoderDecoder

COMPILE = {"fullgraph": True, "dynamic": True, "backend": "aot_eager"}


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch.compiler.reset()
    torch.manual_seed(0)


@pytest.mark.parametrize("form", ["projected", "raw"])
def test_layer(form: str) -> None:
    layer = xa.CrossAttention(12, 3, memory_width=5).eval()

    def read(query: Tensor, rows: Tensor, lengths: Tensor, visible: Tensor) -> Tensor:
        return layer(query, layer.remember(rows, lengths, form=form), visible=visible)

    compiled = torch.compile(read, **COMPILE)
    for b, t, s in ((2, 5, 7), (3, 2, 11), (5, 4, 3)):
        arguments = (
            torch.randn(b, t, 12),
            torch.randn(b, s, 5),
            torch.randint(0, s + 1, (b,)),
            torch.rand(b, 3, t, s) > 0.3,
        )
        torch.testing.assert_close(compiled(*arguments), read(*arguments))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("form", ["projected", "raw"])
@pytest.mark.parametrize("grad", [True, False])
def test_an_exported_layer_reads_any_number_of_sequences(
    grad: bool, form: str, dtype: torch.dtype
) -> None:
    layer = xa.CrossAttention(48, 3, memory_width=5).to(dtype).eval()
    layer.kernel = "matmul"  # which one is cheapest hangs on how many sequences there are

    class Read(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, query: Tensor, rows: Tensor) -> Tensor:
            read: Tensor = self.layer(query, self.layer.remember(rows, form=form))
            return read

    def given(b: int) -> tuple[Tensor, Tensor]:
        return torch.randn(b, 5, 48, dtype=dtype), torch.randn(b, 7, 5, dtype=dtype)

    sequences = {0: torch.export.Dim("sequences", max=509)}
    with torch.set_grad_enabled(grad):
        exported = torch.export.export(Read(), given(3), dynamic_shapes=(sequences, sequences))
        for b in (2, 67):
            arguments = given(b)
            torch.testing.assert_close(exported.module()(*arguments), Read()(*arguments))


def test_decoder_step() -> None:
    config = Config(vocabulary=17, width=12, heads=3, feed_forward=20, decoder_layers=2)
    model = EncoderDecoder(config).eval()
    compiled = torch.compile(model.step, **COMPILE)
    with torch.no_grad():
        for m, s, beams in ((2, 7, 3), (3, 11, 2)):
            memory = model.encode(torch.randint(3, 17, (m, s))).shared_by(beams)
            ours, theirs = model.start(memory), model.start(memory)
            for _ in range(4):
                tokens = torch.randint(3, 17, (m * beams, 1))
                rows, ours, _ = compiled(tokens, memory, ours)
                wanted, theirs, _ = model.step(tokens, memory, theirs)
                torch.testing.assert_close(rows, wanted)


def test_training_step() -> None:
    layers = {"encoder_layers": 1, "decoder_layers": 1}
    config = Config(vocabulary=17, width=12, heads=3, feed_forward=20, dropout=0.0, **layers)
    model = EncoderDecoder(config).train()

    def loss_of(source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        return model(source, lengths, target).logsumexp(-1).mean()

    compiled = torch.compile(loss_of, **COMPILE)
    for b, s, t in ((2, 7, 5), (3, 4, 6)):
        arguments = (
            torch.randint(3, 17, (b, s)),
            torch.randint(1, s + 1, (b,)),
            torch.randint(3, 17, (b, t)),
        )
        gradients = []
        for function in (compiled, loss_of):
            model.zero_grad()
            loss = function(*arguments)
            loss.backward()
            gradients.append([loss, *(parameter.grad for parameter in model.parameters())])
        for ours, wanted in zip(*gradients, strict=True):
            torch.testing.assert_close(ours, wanted)
