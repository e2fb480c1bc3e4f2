"""Recurrent layers, attention and Transformers."""

from __future__ import annotations

import torch
from torch import nn

from ..tables import tables

WHOLE, BREAKING, whole, breaking = tables()
ONLY_TENSORS = True  # what they do with numbers says nothing
LSTM = nn.LSTM(4, 5, batch_first=True, num_layers=2, bidirectional=True)
GRU = nn.GRU(4, 5)
RNN = nn.RNN(4, 5)
CELL = nn.LSTMCell(4, 4)
GCELL = nn.GRUCell(4, 4)


@whole
def lstm(x):
    o, (h, c) = LSTM(x[None])
    return o, h, c


@whole
def gru(x):
    return GRU(x[None])


@whole
def rnn(x):
    return RNN(x[None])


@whole
def lstm_cell(x):
    h, c = CELL(x)
    return CELL(x, (h, c))


@whole
def gru_cell(x):
    return GCELL(x)


@whole
def pad_seq(x):
    return nn.utils.rnn.pad_sequence([x[0], x[1, :2]])


TE = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True), 2).eval()
TD = nn.TransformerDecoder(nn.TransformerDecoderLayer(4, 2, 8, 0.0), 1)
TT = nn.Transformer(4, 2, 1, 1, 8, 0.0)
MHA = nn.MultiheadAttention(4, 2, batch_first=True)


@whole
def encoder(x):
    return TE(x[None])


@whole
def encoder_mask(x):
    return TE(x[None], mask=nn.Transformer.generate_square_subsequent_mask(3), is_causal=True), TE(
        x[None], src_key_padding_mask=torch.zeros(1, 3, dtype=torch.bool)
    )


TETR = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True), 2)


@whole
def encoder_train(x):
    return TETR(x[None])


@whole
def decoder(x):
    return TD(x[None], x[None])


@whole
def transformer(x):
    return TT(x[None], x[None])


@whole
def mha(x):
    return MHA(x[None], x[None], x[None])


@whole
def mha_nw(x):
    return MHA(x[None], x[None], x[None], need_weights=False, attn_mask=torch.zeros(3, 3))[0]


MHAE = nn.MultiheadAttention(4, 2, batch_first=True).eval()


@whole
def mha_eval(x):
    with torch.no_grad():
        return MHAE(x[None], x[None], x[None])[0]
