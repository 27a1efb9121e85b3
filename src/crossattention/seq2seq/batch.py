"""A batch that is being written: its lanes, the memory they share, and where they stand.

The memory is prepared once. Moving lanes between beams moves their own past only; a sentence that
leaves takes its memory with it, and no step gathers keys. Before the first token all lanes of a
sentence are equal, so one is stepped and the others continue it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from crossattention.errors import ContractError, complaint
from crossattention.memory import Memory
from crossattention.seq2seq.hypothesis import Hypothesis
from crossattention.seq2seq.model import EncoderDecoder
from crossattention.seq2seq.prepared import Prepared
from crossattention.seq2seq.rules import Rules
from crossattention.seq2seq.trail import Trail

LEAVING = 8  # sentences leave when one in eight has ended: each leaving copies the rest


class Batch:
    """Write n lanes of each of m sentences, step by step.

    Args:
        model: in evaluation mode.
        memory: of m sentences, as `model.encode` returns it.
        rules: what each sentence may write.
        lanes: n.
        align: whether to note what each token reads.
        decoder: the model's, prepared; None steps the model as it is.

    `sentences` names those that are still in the batch, by their place in the source.
    """

    def __init__(
        self,
        model: EncoderDecoder,
        memory: Memory,
        rules: Rules,
        lanes: int,
        align: bool,
        decoder: Prepared | None = None,
    ) -> None:
        self.decoder = model if decoder is None else decoder
        self.rules, self.lanes, self.memory = rules, lanes, memory
        # Of a model's own state, moving lanes copies spare rows too.
        self.state: Any = self.decoder.start(memory, capacity=8)
        self.sentences = list(range(memory.sequences))
        self.lengths = [memory.size[1]] * memory.sequences
        if memory.lengths is not None:
            self.lengths = memory.lengths.tolist()
        self.maps: list[Tensor] | None = [] if align else None
        self.shown = model.alignment_heads if align else ()
        weight = model.embedding.tokens.weight
        like = weight.new_zeros(0, dtype=torch.promote_types(weight.dtype, torch.float32))
        self.trail = Trail.empty(memory.sequences, 1, like)

    def score(self) -> Tensor:
        """Read the last tokens, and score what may follow.

        Returns:
            Log-probabilities `[m, n, vocabulary]`, -inf for what the rules hide.
        Raises:
            ContractError: scores that are not numbers: the model's weights are broken.
        """
        step = self.trail.tokens.shape[-1]
        if step:
            tokens = self.trail.tokens[..., -1]
        else:
            shape = self.trail.tokens.shape[:2]
            tokens = self.trail.tokens.new_full(shape, self.rules.config.begin)
        column = tokens.reshape(-1, 1)  # [m, n] -> [m·n, 1]
        rows, self.state, maps = self.decoder.step(column, self.memory, self.state, self.shown)
        if self.maps is not None:
            self.maps.append(maps.mean(1)[:, 0])  # [m·n, k, 1, s] -> [m·n, s]
        logits = self.decoder.logits(rows[:, 0])
        scores = logits.log_softmax(-1, dtype=self.trail.scores.dtype)
        end = self.rules.config.end
        if bool(scores[:, end].isnan().any()):  # one bad logit spoils its whole row
            do = "the model's weights or activations are not finite"
            raise ContractError(complaint("scores", "numbers", f"NaN at token {step}", do))
        restricted = self.rules.restrict(scores.view(*tokens.shape, -1), step)
        return restricted.expand(-1, self.lanes, -1)  # the first token's are those of all lanes

    def finish(
        self, row: int, lane: int, end_score: float, length_penalty: float = 1.0
    ) -> Hypothesis:
        """Write down a lane that ends here; `row` is a place in `sentences`."""
        lane = min(lane, self._stepped - 1)
        found = self.trail.hypothesis(row, lane, end_score, length_penalty)
        if self.maps is None:
            return found
        fed = zip(self.maps[1:], self.trail.fed[row, lane].tolist(), strict=True)
        read = [rows[at] for rows, at in fed]  # the first step fed begin, whose row is dropped
        length = self.lengths[self.sentences[row]]
        with torch.inference_mode(False):  # an ordinary tensor, for whoever computes on
            alignment = torch.stack(read) if read else self.maps[0][:0]
            return replace(found, alignment=alignment[:, :length].clone())

    def release(self, going: list[int]) -> Tensor:
        """Let sentences leave, if enough have ended.

        Args:
            going: places in `sentences` of those that go on.
        Returns:
            int64 `[m']`, the places of those that are still in the batch.
        """
        present = len(self.sentences)
        ended = present - len(going)
        if not ended or LEAVING * ended < present:
            return torch.arange(present, device=self.trail.tokens.device)
        kept = torch.tensor(going, device=self.trail.tokens.device)
        lanes = torch.arange(self._stepped, device=kept.device).expand(len(going), -1)
        rows = self._rows(lanes, kept)
        self.memory = self.memory.select(rows).compact()
        self.state = self.state.select(rows)
        self.sentences = [self.sentences[row] for row in going]
        self.rules, self.trail = self.rules.keep(going), self.trail.keep(kept)
        return kept

    def write(self, tokens: Tensor, scores: Tensor, parents: Tensor | None = None) -> None:
        """Add tokens and their log-probabilities, [m, n]; lane j continues lane `parents[:, j]`."""
        if self._stepped < self.lanes:
            self.memory, parents = self.memory.shared_by(self.lanes), torch.zeros_like(tokens)
        if parents is not None:
            sentences = torch.arange(len(parents), device=parents.device)
            self.state = self.state.select(self._rows(parents, sentences))
            self.trail = self.trail.moved(parents)
        self.trail = self.trail.grown(tokens, scores)

    @property
    def _stepped(self) -> int:
        """How many lanes of a sentence are stepped: one before the first token, then all."""
        return self.trail.tokens.shape[1]

    def _rows(self, lanes: Tensor, sentences: Tensor) -> Tensor:
        return (sentences[:, None] * self._stepped + lanes).flatten()  # [m'], [m', n] -> [m'·n]
