"""The mutants: one-place changes of the source, and for each a test of a law that must fail on it.

Most are faults that attention code has had in public. A text must occur exactly once in its file.
"""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    """A change: in `file`, `old` becomes `new`. `law` is file::test, shortened."""

    name: str
    law: str
    file: str
    old: str
    new: str

    @property
    def number(self) -> int:
        """The law's number."""
        return int(self.law[:2])


MATMUL, FOLD = "kernels/matmul.py", "kernels/fold.py"
DOOR, HIDDEN = "attention/door.py", "attention/hidden.py"
LAYER, POSE, BATCH = "nn/reader.py", "nn/pose.py", "seq2seq/batch.py"
HIDE = "scores = scores.masked_fill(~folded.visible, -torch.inf)"
CAP = """    if score.softcap is not None:
        scores = score.softcap * torch.tanh(scores / score.softcap)
"""
BIAS = """    if folded.bias is not None:
        scores = scores + folded.bias.to(dtype)
"""
PROBLEM = "    return Problem(query, key, value, memory.owner, mask, score)\n"
GATHERED = """    if memory.owner is not None:
        at = memory.owner.index
        mask = mask._replace(rows=None if mask.rows is None else mask.rows[at])
        return Problem(query, key[at], value[at], None, mask, score)
"""
OF_SELF = "shape, query.device, readable, None, None, None, causal, readable is not None"
AS_QUERIES = """shape, query.device, None, None,
            None if readable is None else readable[:, None, :, None], None, causal"""
MUTANTS = [Mutant(*row) for row in (
    ("no scale", "01_definition::test_value_is", DOOR,
     "return width**-0.5 if width else 1.0", "return 1.0"),
    ("scale twice", "13_parity::test_scaled", MATMUL,
     "folded.query.to(dtype) * score.scale\n", "folded.query.to(dtype) * score.scale**2\n"),
    ("mask flipped", "10_hull::test_weights_sum", MATMUL, HIDE, HIDE.replace("~", "")),
    ("mask dropped in step-by-step decoding", "09_reuse::test_step_by_step", POSE,
     "query.device, extent.readable,", "query.device, None if t == 1 else extent.readable,"),
    ("causal order dropped in a chunk", "09_reuse::test_step_by_step", "nn/self_attention.py",
     "causal = None if stream.shape[1] == 1 else cache.length", "causal = None"),
    ("key mask applied to queries", "05_padding::test_model", "nn/self_attention.py",
     OF_SELF, AS_QUERIES),
    ("last length off by one", "05_padding::test_layer", "extent.py",
     "torch.arange(rows, device=device) < checked",
     "torch.arange(rows, device=device) <= checked"),
    ("remainder after tiles of 32 skipped", "05_padding::test_function", MATMUL,
     "folded.unfold(kept @ problem.value.to(kept.dtype))",
     "folded.unfold(kept[..., : (end := kept.shape[-1] // 32 * 32 or None)]"
     " @ problem.value.to(kept.dtype)[..., :end, :])"),
    ("batch and heads swapped as a mask is flattened", "01_definition::test_value_is", FOLD,
     "return _folded(mask, problem)",
     "return _folded(mask.transpose(0, 1).reshape(mask.shape), problem)"),
    ("owner tiled instead of repeated", "08_sharing::test_sharing", "owner.py",
     "torch.arange(memories, device=device).repeat_interleave(count)",
     "torch.arange(memories, device=device).repeat(count)"),
    ("owner not moved when a sentence finishes", "12_search::test_a_batch", BATCH,
     "self.memory.select(rows).compact()",
     "self.memory.select(torch.arange(len(rows), device=rows.device)).compact()"),
    ("stale memory answered", "09_reuse::test_what_a_layer", "content.py",
     "if self.stamp and stamp and self.stamp != stamp:", "if not stamp and self.stamp != stamp:"),
    ("switched adapters unseen", "09_reuse::test_what_a_layer", "nn/stamp.py",
     "return id(module), hash(hooks), hash(switches)", "return id(module), hash(hooks), 0"),
    ("a storage known by its address alone", "09_reuse::test_an_address", "nn/stamp.py",
     "known[0], kept.data_ptr(), version", "kept.data_ptr(), version"),
    ("causal by default", "06_permutation::test_memory_rows", HIDDEN,
     "masks.causal_rows(causal, shape[2]", 'masks.causal_rows(causal or "top_left", shape[2]'),
    ("causal corner wrong", "01_definition::test_value_is", "mask.py",
     "offset = rows - queries", "offset = 0"),
    ("softmax over the wrong axis", "10_hull::test_weights_sum", MATMUL,
     "torch.softmax(scores, -1)", "torch.softmax(scores, -2)"),
    ("softmax in half precision", "01_definition::test_large_numbers_stay", MATMUL,
     "torch.softmax(scores, -1)",
     "torch.softmax(scores.to(folded.problem.query.dtype), -1).to(scores.dtype)"),
    ("soft cap after the bias", "01_definition::test_value_is", MATMUL, CAP + BIAS, BIAS + CAP),
    ("soft cap after the mask", "10_hull::test_weights_sum", MATMUL,
     HIDE, HIDE + "\n        scores = scores if score.softcap is None else "
     "score.softcap * torch.tanh(scores / score.softcap)"),
    ("value bias on empty heads", "01_definition::test_value_is", POSE,
     "total = reads[..., 0].to(reading.value.dtype)", "total = None"),
    ("key bias missing from lse", "10_hull::test_both_forms", MATMUL,
     "(score.softcap is not None or problem.wants_lse)", "score.softcap is not None"),
    ("key bias missing beside a null row", "13_parity::test_multihead", "kernels/fused.py",
     "finished + folded.offset.to(finished.dtype) * folded.problem.score.scale", "finished + 0"),
    ("null row not scaled", "13_parity::test_multihead", "nn/null_row.py",
     "torch.promote_types(query.dtype, torch.float32)) * scale",
     "torch.promote_types(query.dtype, torch.float32))"),
    ("dropout outside training", "10_hull::test_dropout_is_off", LAYER,
     "check_dropout(self.dropout) * self.training", "check_dropout(self.dropout)"),
    ("weights shown after dropout", "11_maps::test_layer", LAYER,
     "weights(problem if kept is None else only_heads(problem, kept))",
     "torch.dropout(weights(problem if kept is None else only_heads(problem, kept)),"
     " problem.dropout, True)"),
    ("dropped weights not made up for", "10_hull::test_the_mean", "kernels/reference.py",
     "F.dropout(weights, problem.dropout)",
     "F.dropout(weights, problem.dropout) * (1 - problem.dropout)"),
    ("finite sentinel added", "04_hidden_rows::test_hidden_however", MATMUL,
     HIDE, "scores = scores - 1e4 * ~folded.visible"),
    ("beam alignment a row late", "11_maps::test_alignment_row", BATCH,
     "zip(self.maps[1:], self.trail.fed[row, lane].tolist(), strict=True)",
     "zip(self.maps[1:2] + self.maps[1:], self.trail.fed[row, lane].tolist(), strict=False)"),
    ("grouped heads in the wrong order", "01_definition::test_value_is", "kernels/reference.py",
     "owned.repeat_interleave(problem.query.shape[1] // kept.shape[1], dim=1)",
     "owned.repeat(1, problem.query.shape[1] // kept.shape[1], 1, 1)"),
    ("lse without the maximum", "01_definition::test_large_numbers_stay", MATMUL,
     "lse = torch.logsumexp(scores, -1)", "lse = scores.exp().sum(-1).log()"),
    ("two empty parts merged to NaN", "07_merge::test_two_empty", "attention/merge.py",
     "torch.softmax(lses.masked_fill(empty, 0), 0).masked_fill(empty, 0)",
     "torch.softmax(lses, 0)"),
    ("shares of a rounded total", "07_merge::test_large_scores", "attention/merge.py",
     "torch.softmax(lses.masked_fill(empty, 0), 0)", "(lses.masked_fill(empty, 0) - total).exp()"),
    ("gradient through lse lost", "02_gradients::test_through", "kernels/reference.py",
     "return weights, torch.logsumexp(scores, -1)",
     "return weights, torch.logsumexp(scores.detach(), -1)"),
    ("second derivative cut off", "02_gradients::test_second_derivatives_are_refused",
     "kernels/first_order.py", "apply(grads[0], ctx.kernel), None", "grads[0].detach(), None"),
    ("query and memory swapped", "13_parity::test_multihead", "nn/from_torch.py",
     "query, key, value = module.in_proj_weight.chunk(3)",
     "key, query, value = module.in_proj_weight.chunk(3)"),
    ("keys gathered by owner", "08_sharing::test_a_step", POSE, PROBLEM, GATHERED + PROBLEM),
    ("output bias on a row that read nothing", "03_empty_row::test_layer", "nn/project.py",
     "output.masked_fill(~reads.any(1), 0)", "output"),
    ("one column makes an empty memory readable", "03_empty_row::test_layer", HIDDEN,
     "if shape[3] == 0:", "if shape[3] < 0:"),
    ("hidden garbage multiplied by zero", "04_hidden_rows::test_hidden_rows", HIDDEN,
     "return key.masked_fill(unread, 0), value.masked_fill(unread, 0)",
     "return key * ~unread, value * ~unread"),
    ("garbage beyond lengths multiplied by zero", "04_hidden_rows::test_beyond", "extent.py",
     "rows.masked_fill(~self.readable[..., None], 0)", "rows * self.readable[..., None]"),
    ("the past left behind by its lane", "09_reuse::test_the_past", "nn/cache.py",
     "Cache(self.keys.selected(kept), self.values.selected(kept))", "self"),
    ("a step at position 0", "09_reuse::test_step_by_step", "seq2seq/embedding.py",
     "self.positions[start:end]", "self.positions[: tokens.shape[1]]"),
    ("a prepared decoder that outlives its weights", "12_search::test_a_prepared",
     "seq2seq/prepared.py", "if found is None or found[0] != stamp:", "if found is None:"),
    ("a prepared encoder that reads padding", "12_search::test_a_prepared",
     "seq2seq/prepared.py", "rows.device, hidden, None", "rows.device, None, None"),
    ("embedded rows as narrow as the table", "12_search::test_a_prepared", "nn/half.py",
     "nn.functional.embedding(tokens, self.weight).float()",
     "nn.functional.embedding(tokens, self.weight)"),
    ("rows narrowed with the weights", "12_search::test_a_prepared", "nn/half.py",
     "nn.functional.linear(rows, self.weight.to(rows.dtype), self.bias)",
     "nn.functional.linear(rows.to(self.weight.dtype).float(), self.weight.float(), self.bias)"),
    ("the past of all layers left behind by a sentence", "12_search::test_a_prepared",
     "seq2seq/past.py", "1, index, out=rows", "1, torch.arange(len(index)), out=rows"),
    ("the past of all layers left behind by its lane", "12_search::test_a_prepared",
     "seq2seq/past.py", "moved - lane + index[lane]", "moved"),
    ("length penalty ignored", "12_search::test_wide", "seq2seq/trail.py",
     "sum(scores) / len(scores) ** length_penalty", "sum(scores) / len(scores)"),
    ("a sink that counts as read", "03_empty_row::test_modules", "nn/sink.py",
     "always_read = False", "always_read = True"),
    ("a memory that counts for nothing is read", "03_empty_row::test_modules", "nn/combine.py",
     "whole = torch.zeros(1, 1, 1, 1,", "whole = torch.ones(1, 1, 1, 1,"),
    ("the medium before the latest", "04_hidden_rows::test_text", "media.py",
     "chosen = medium == begun if", "chosen = medium == begun - 1 if"),
    ("media that have not begun", "04_hidden_rows::test_text", "media.py",
     "else medium <= begun", "else medium <= begun + 1"),
    ("a gate that changes rows without media", "04_hidden_rows::test_text", "nn/gated.py",
     "output if reads is None else torch.where(reads, output, stream)", "output"),
    ("angles by place instead of position", "06_permutation::test_rows_shuffled", "nn/rotary.py",
     "checked.double()[:, None, :, None] * speed",
     "torch.arange(t).double()[None, None, :, None] * speed"),
    ("the query not turned", "06_permutation::test_rows_shuffled", "nn/cross_attention.py",
     "turned(self.rotary, self.query_norm(projected), positions, \"the query\")",
     "self.query_norm(projected)"),
    ("parts added instead of merged", "07_merge::test_a_joint", "nn/multi.py",
     "parts.join(found, self.amounts) if joint else parts.add(", "parts.add("),
    ("a folded query kept too long", "09_reuse::test_what_modules_keep", "nn/kept.py",
     "entry[0] == state", "entry[0] is not None"),
    ("hooks passed over where few rows are mapped", "09_reuse::test_step_calls", "nn/few_rows.py",
     "        and not is_watched(projection)\n", ""),
    ("appended keys projected from the first row", "09_reuse::test_a_memory_in", "nn/reader.py",
     "sources = sources[0][:, begun:], sources[1][:, begun:]",
     "sources = tuple(x[:, : x.shape[1] - begun] for x in sources)"),
    ("appended behind the padding", "09_reuse::test_a_memory_in", "extent.py",
     "place = self.lengths[:, None] + torch", "place = rows.shape[1] + torch"),
    ("two futures in one storage", "09_reuse::test_a_memory_in", "grown.py",
     "or self.written[0] != self.length", "or False"),
    ("replaced rows answered", "09_reuse::test_replaced", "edition.py",
     "if first < self.rows:", "if first < 0:"),
    ("lengths lost as rows are normed", "05_padding::test_modules", "nn/normed.py",
     "Memory.of(norm(cleared), memory.lengths)", "Memory.of(norm(cleared))"),
)]  # fmt: skip
