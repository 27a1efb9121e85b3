import numpy as np
import torch
from torch.nn import functional as F

from crossattention.seq2seq import Config, EncoderDecoder
from crossattention.translate.batches import collate
from crossattention.translate.corpus import encode_corpus
from crossattention.translate.links import Links
from crossattention.translate.objective import losses
from crossattention.translate.tokenizer import PAD, Tokenizer


def test_both_losses_equal_their_definitions_and_reach_the_head() -> None:
    torch.manual_seed(1)
    tokenizer = Tokenizer.train(["a b c d e"], 259)
    links = Links(np.array([0, 2, 3]), np.array([0, 1, 0], np.int16), np.array([1, 0, 0], np.int16))
    batch = collate(encode_corpus([("a b", "c d"), ("e", "abc")], tokenizer, links), np.arange(2))
    config = Config(259, 8, 2, 12, 2, 2, dropout=0.0, alignment=(0, 1))
    model = EncoderDecoder(config)
    found = losses(model, batch, smoothing=0.1)
    memory = model.encode(batch.source, batch.source_lengths)
    rows, weights = model.decode_aligned(batch.target_in, memory)
    logits = model.logits(rows).flatten(0, 1)
    wanted = F.cross_entropy(
        logits, batch.target_out.flatten(), ignore_index=PAD, label_smoothing=0.1
    )
    torch.testing.assert_close(found.translation, wanted)
    assert batch.links is not None and found.alignment is not None
    taught = batch.links.sum(-1) > 0
    surprise = -torch.xlogy(batch.links, weights).sum(-1)[taught].mean()
    torch.testing.assert_close(found.alignment, surprise)
    assert taught.sum() == sum(len(tokenizer.encode(text)) for text in ("c d", "abc"))
    found.alignment.backward()
    norms = [
        p.grad.norm() for p in model.decoder[0].cross_attention.parameters() if p.grad is not None
    ]
    assert max(norms) > 0
    assert losses(model, batch._replace(links=None), 0.1).alignment is None
