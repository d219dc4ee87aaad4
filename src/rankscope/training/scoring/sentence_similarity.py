"""How well an encoder's sentence vectors agree with people: the STS benchmark.

Cer et al. (2017), arXiv:1708.00055; scored as sentence-transformers does, by Spearman's correlation
of people's scores with the cosines of mean-pooled vectors.
"""

from collections.abc import Callable, Sequence

import torch
from scipy import stats
from torch import Tensor, nn

from rankscope.architectures.models.encoder import mean_of_tokens
from rankscope.errors import DataError
from rankscope.modes import inference

Tokenizer = Callable[[Sequence[str]], Tensor]


def similarity_correlation(
    model: nn.Module,
    tokenize: Tokenizer,
    pairs: Sequence[tuple[str, str, float]],
    *,
    batch_size: int = 64,
) -> float:
    """Spearman's rank correlation of cosines and given scores, between -1 and 1.

    Args:
        model: tokens (batch, length) to states (batch, length, width).
        tokenize: sentences to tokens, 0 for padding.
        pairs: two sentences and how alike people found them.
        batch_size: sentences at a time.

    Raises:
        DataError: if there are not two pairs with different scores, which have no correlation.
    """
    scores = [score for _, _, score in pairs]
    if len(set(scores)) < 2:
        raise DataError(
            f"similarity_correlation: wanted pairs with at least two different scores, got "
            f"{len(pairs)} pairs with {len(set(scores))}."
        )
    sentences = [sentence for one, other, _ in pairs for sentence in (one, other)]
    vectors = sentence_vectors(model, tokenize, sentences, batch_size=batch_size)
    cosines = nn.functional.cosine_similarity(vectors[::2], vectors[1::2])
    return float(stats.spearmanr(cosines.double().numpy(), scores).statistic)


def sentence_vectors(
    model: nn.Module, tokenize: Tokenizer, sentences: Sequence[str], *, batch_size: int = 64
) -> Tensor:
    """The mean state of each sentence's tokens, (sentences, width).

    Sentences of similar length are run together, so that little is spent on padding.
    """
    order = sorted(range(len(sentences)), key=lambda number: len(sentences[number]))
    found = []
    with torch.no_grad(), inference(model):
        for start in range(0, len(order), batch_size):
            numbers = order[start : start + batch_size]
            tokens = tokenize([sentences[number] for number in numbers])
            found.append(mean_of_tokens(model(tokens), tokens))
    places = torch.tensor(order).argsort()
    return torch.cat(found)[places]
