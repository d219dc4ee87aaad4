"""A recurrent language model: words in, how likely each word comes next out."""

from torch import Tensor, nn


class RecurrentLanguageModel(nn.Module):
    """An embedding, LSTM layers of the same width, and a linear map back to the vocabulary.

    The parts have the names of github.com/pytorch/examples/word_language_model, whose weights fit.

    Args:
        vocabulary: number of words.
        width: of the embedding and of every layer.
        num_layers: of the LSTM.
        is_tied: whether the last map has the embedding's weight (Press & Wolf 2016,
            arXiv:1608.05859), which then counts once.

    Example:
        >>> model = RecurrentLanguageModel(100, width=8, num_layers=2, is_tied=True)
        >>> sum(weight.numel() for weight in model.parameters()) == 100 * 9 + 2 * 4 * 8 * 18
        True
    """

    def __init__(
        self, vocabulary: int, *, width: int = 200, num_layers: int = 2, is_tied: bool = False
    ) -> None:
        super().__init__()
        self.encoder = nn.Embedding(vocabulary, width)
        self.rnn = nn.LSTM(width, width, num_layers, batch_first=True)
        self.decoder = nn.Linear(width, vocabulary)
        if is_tied:
            self.decoder.weight = self.encoder.weight

    def forward(self, words: Tensor) -> Tensor:
        """Numbers (batch, words) to logits (batch, words, vocabulary) of the next one each."""
        states, _ = self.rnn(self.encoder(words))
        logits: Tensor = self.decoder(states)
        return logits
