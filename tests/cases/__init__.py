"""Public faults of attention libraries, and laws of the mathematics, as small cases with numbers.

One file of numbers a kind of fault, one test module beside it. A case says what goes in, what must
come out and where it was reported. The words of a case:

    query [b, h, t, d]   key [m, g, s, d]   value [m, g, s, e]   or, unprojected,
    query_rows [b, t, c]   memory, value_memory [m, s, c]   w_q, w_k, w_v [heads, width, c]
    w_o [c, h, e]   b_*: their biases
    visible: True = may be read; hidden: the opposite; bias: added to the scaled scores
    lengths [m]: real rows; owner [b]: which memory a query sequence reads
    causal, query_offset: row i reads s <= i + offset; softcap, scale: as in `attend`
    zero_slot: one more row of score 0 and value 0 that every query reads
    wrong: what the reported fault gave;  null: a number that is not compared
    same_under: settings that must not change the numbers

In an array given by recipe the entry at (i0, i1, i2, i3) is amp * sin(sin . i + phase), and a
boolean is (coef . i) % mod != hide. A number is right within tolerance * max(1, |number|).
"""
